"""The check of local stores finds every row that differs from the changelog."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.state import StateFile
from millpond.state.backend import Rows
from millpond.state.formats import partition_prefix
from tests.chaos.application import CUSTOMERS, JOURNAL, PARTITIONS
from tests.chaos.checks.stores import Copies, Layout, find_in_stores
from tests.support.kafka import Row

_LOG = [
    Row(b"ann", b"1 11", 1000, 0, 0),
    Row(b"bob", b"1 22", 1001, 0, 1),
    Row(b"ann", b"2 33", 1002, 0, 2),
    Row(b"bob", None, 1003, 0, 4),
    Row(b"cem", b"1 44", 1004, 0, 5),
]
_LAYOUTS = {JOURNAL: Layout(0), CUSTOMERS: Layout(0, timestamped=True)}


def _check(tmp_path: Path, rows: dict[bytes, bytes], offset: int | None, *, owner: str = "w0") -> Copies:
    directory = tmp_path / "w0"
    with StateFile(directory) as file:
        group = Rows([(partition_prefix(0) + key, value) for key, value in rows.items()])
        file.write([(JOURNAL, 0, group)], {(JOURNAL, 0): (offset, b"")} if offset is not None else None)
    owners = dict.fromkeys(((0, number) for number in range(PARTITIONS)), owner)
    return find_in_stores({"w0": directory}, {JOURNAL: _LOG}, owners, _LAYOUTS, PARTITIONS)


def test_store_equal_to_its_changelog_is_accepted(tmp_path: Path) -> None:
    """A correct store has the newest values, no deleted rows, and the end offset."""
    copies = _check(tmp_path, {b"ann": b"2 33", b"cem": b"1 44"}, 6)
    assert not copies.findings
    assert copies.owned == len(_LAYOUTS) * PARTITIONS


@pytest.mark.parametrize(
    ("rows", "offset"),
    [
        ({b"ann": b"2 33"}, 6),
        ({b"ann": b"1 11", b"cem": b"1 44"}, 6),
        ({b"ann": b"2 33", b"bob": b"1 22", b"cem": b"1 44"}, 6),
        ({b"ann": b"2 33", b"cem": b"1 44", b"dan": b"1 55"}, 6),
        ({b"ann": b"2 33"}, 5),
        ({b"ann": b"2 33", b"cem": b"1 44"}, None),
    ],
    ids=["row missing", "old value", "deleted row", "row from nowhere", "behind", "no offset"],
)
def test_an_owner_whose_store_differs_is_found(tmp_path: Path, rows: dict[bytes, bytes], offset: int | None) -> None:
    """One row too many, too few or too old, or an offset before the end, is found in the store of a task's owner."""
    [finding] = _check(tmp_path, rows, offset).findings
    assert "w0" in finding.place
    assert JOURNAL in finding.place


def test_lagging_copy_equals_the_changelog_at_its_offset(tmp_path: Path) -> None:
    """A standby has exactly the rows of the changelog up to its offset."""
    copies = _check(tmp_path, {b"ann": b"2 33", b"bob": b"1 22"}, 3, owner="w1")
    assert not [finding for finding in copies.findings if finding.place.startswith("w0")]
    assert (copies.behind, copies.complete) == (1, 0)
    ahead = _check(tmp_path / "other", {b"ann": b"2 33", b"bob": b"1 22", b"cem": b"1 44"}, 3, owner="w1")
    assert [finding.place for finding in ahead.findings if "w0" in finding.place] == [f"w0, its copy of {JOURNAL} 0"]


def test_the_owner_of_each_task_has_its_stores(tmp_path: Path) -> None:
    """A task without state on its owner is found."""
    copies = _check(tmp_path, {b"ann": b"2 33", b"cem": b"1 44"}, 6, owner="w9")
    assert {finding.place for finding in copies.findings} >= {f"{JOURNAL} 0", f"{CUSTOMERS} 3"}
