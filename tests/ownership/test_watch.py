"""The watcher of ownership: reads what real workers commit, and finds every rule that a chain of commits breaks."""

from __future__ import annotations

import struct
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.runtime.offsets.metadata import OffsetMetadata, Partition, encode_metadata
from tests.exactly_once.conftest import application  # noqa: F401  (a fixture)
from tests.exactly_once.processes import Application
from tests.exactly_once.truth import Generator
from tests.ownership.watch import CommitSeen, await_shown, check_chains, faults, parse_commit, read_chains

IN = Partition("in", 0)


def _chain(*commits: tuple[int | None, str | None, int]) -> dict[Partition, list[CommitSeen]]:
    return {IN: [CommitSeen(offset, owner, epoch, 1_000 + at) for at, (offset, owner, epoch) in enumerate(commits)]}


def _only_fault(*commits: tuple[int | None, str | None, int]) -> str:
    (fault,) = faults(_chain(*commits))
    with pytest.raises(AssertionError, match="1 commits break the rules"):
        check_chains(_chain(*commits))
    return fault.splitlines()[0].strip()


# What real workers commit -----------------------------------------------------------------------------------


def _reigns(chain: list[CommitSeen]) -> list[tuple[str | None, int]]:
    """Owners with their epochs, each once."""
    return [each for each, _ in groupby((commit.owner, commit.epoch) for commit in chain)]


@pytest.mark.timeout(240)
def test_restart_and_take_over_are_links_of_one_chain(application: Application, seed: int) -> None:  # noqa: F811
    """A worker that is killed comes back with a higher epoch; a take-over names the next owner; no chain breaks."""
    with Generator(application, seed, 400):
        for take_over, worker in ((False, "w0"), (False, "w0"), (True, "w1")):
            run = application.start(worker=worker, place=worker, take_over=take_over)
            run.await_commits(3)
            run.kill()
    await_shown(application.bootstrap_servers, application.app_id)
    chains = read_chains(application.bootstrap_servers, application.app_id)
    assert {each.topic for each in chains} == {application.source, application.repartition}
    check_chains(chains)
    for chain in chains.values():
        owners = [owner for owner, _ in groupby(owner for owner, _ in _reigns(chain))]
        assert owners == ["w0", "w1"]
        assert len([epoch for owner, epoch in _reigns(chain) if owner == "w0"]) >= 2
        offsets = [each.offset or 0 for each in chain]
        assert offsets == sorted(offsets)
        assert all(each.timestamp > 0 for each in chain)
    assert any(chain[-1].offset != chain[0].offset for chain in chains.values())


# What the rules allow ---------------------------------------------------------------------------------------


def test_hand_over_take_over_and_restart_are_allowed() -> None:
    """The owner's last commit may move the offset, an executor's keeps it; owners return; expired offsets restart."""
    check_chains(
        _chain(
            (0, "w0", 1), (0, "w0", 2), (5, "w0", 2), (9, "w1", 3), (9, "w1", 3), (12, "w1", 3),
            (12, "w2", 4), (12, "w0", 5), (14, "w0", 5), (14, "w0", 6), (None, None, 0), (3, "w1", 1), (4, "w1", 1),
        )
    )  # fmt: skip


def test_offsets_that_name_nobody_may_come_first() -> None:
    """Kafka Streams' own offsets name no owner, until one is named."""
    check_chains(_chain((4, None, 0), (9, None, 0), (9, "w0", 1)))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["work", "hand over", "take over", "come back"]), st.integers(1, 9), st.integers(0, 2)
        )
    )
)
def test_random_valid_histories_pass(deeds: list[tuple[str, int, int]]) -> None:
    """Any sequence of work, hand-overs, take-overs and restarts makes a chain without a fault."""
    offset, owner, epoch = 0, "w0", 1
    commits: list[tuple[int | None, str | None, int]] = [(offset, owner, epoch)]
    for deed, records, other in deeds:
        offset += records if deed in {"work", "hand over"} else 0
        epoch += deed != "work"
        owner = f"w{other}" if deed in {"hand over", "take over"} else owner
        commits.append((offset, owner, epoch))
    check_chains(_chain(*commits))


# What breaks them -------------------------------------------------------------------------------------------


def test_an_offset_that_goes_back_is_found() -> None:
    """A second commit from an earlier offset."""
    assert _only_fault((5, "w0", 1), (9, "w0", 1), (7, "w0", 1)) == ("in-0, commit 2: the offset goes back from 9 to 7")


def test_a_change_of_owner_within_an_epoch_is_found() -> None:
    """A worker commits that no commit has named, under the epoch that it read."""
    assert _only_fault((5, "w0", 3), (9, "w1", 3)) == (
        "in-0, commit 1: the owner changes from 'w0' to 'w1' within epoch 3"
    )


def test_a_commit_after_the_successor_was_named_is_found() -> None:
    """The old owner commits again under its own epoch, even from the right offset."""
    assert _only_fault((5, "w0", 3), (9, "w1", 4), (12, "w0", 3)) == (
        "in-0, commit 2: 'w0' commits under epoch 3 after 'w1' was named his successor"
    )


def test_an_epoch_that_falls_is_found() -> None:
    """An earlier incarnation of the same worker commits."""
    assert _only_fault((5, "w0", 3), (5, "w0", 4), (9, "w0", 3)) == (
        "in-0, commit 2: 'w0' commits under epoch 3 after epoch 4"
    )


def test_commit_without_an_owner_is_found() -> None:
    """A commit names no owner."""
    assert _only_fault((5, "w0", 3), (9, None, 0)) == "in-0, commit 1: it names no owner, where 'w0' was"


def test_faults_are_reported_with_their_commits() -> None:
    """One message has every place, and the last commits before it."""
    chains = _chain((5, "w0", 3), (9, "w1", 4), (7, "w0", 3), (9, "w1", 4))
    chains[Partition("in", 1)] = [CommitSeen(3, "w0", 1, 0), CommitSeen(2, "w0", 1, 0)]
    with pytest.raises(AssertionError) as raised:
        check_chains(chains)
    text = str(raised.value)
    assert text.startswith("3 commits break the rules of ownership:")
    assert "in-0, commit 2: the offset goes back from 9 to 7" in text
    assert "in-0, commit 2: 'w0' commits under epoch 3 after 'w1' was named his successor" in text
    assert "in-1, commit 1: the offset goes back from 3 to 2" in text
    assert "offset 9 owner w1 epoch 4 at 1001" in text


# How it stands in the log -----------------------------------------------------------------------------------


def _short(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _compact(text: str) -> bytes:
    length, data = len(text.encode()) + 1, b""
    while length >= 0x80:
        data += bytes([length & 0x7F | 0x80])
        length >>= 7
    return data + bytes([length]) + text.encode()


@given(
    st.integers(0, 1), st.integers(0, 4), st.text(min_size=1, max_size=200), st.integers(0, 2**62), st.integers(0, 99)
)
def test_every_version_of_a_commit_is_read(key_version: int, version: int, owner: str, offset: int, epoch: int) -> None:
    """Keys of version 0 and 1 and values of version 0 to 4 say the same."""
    key = struct.pack(">h", key_version) + _short("app") + _short("in") + struct.pack(">i", 7)
    text = encode_metadata(OffsetMetadata(owner=owner, epoch=epoch)) + "\0"  # as the client sends it
    value = struct.pack(">hq", version, offset) + (struct.pack(">i", 2) if version >= 3 else b"")
    value += (_compact(text) if version >= 4 else _short(text)) + struct.pack(">q", 1_234)
    value += struct.pack(">q", -1) if version == 1 else b""
    value += b"\x00" if version >= 4 else b""  # tagged fields
    assert parse_commit(key, value) == ("app", Partition("in", 7), CommitSeen(offset, owner, epoch, 1_234))
    assert parse_commit(key, None) == ("app", Partition("in", 7), CommitSeen(None, None, 0, -1))


def test_non_commits_are_skipped_and_unknown_versions_refused() -> None:
    """Records about group members are skipped; an unknown version is an error."""
    assert parse_commit(struct.pack(">h", 2) + _short("app"), b"") is None
    key = struct.pack(">h", 1) + _short("app") + _short("in") + struct.pack(">i", 7)
    with pytest.raises(ValueError, match="version 5"):
        parse_commit(key, struct.pack(">hq", 5, 0))
