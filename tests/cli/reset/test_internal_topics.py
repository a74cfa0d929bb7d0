"""Topics of former versions: reset deletes what is proven to be its own, and asks about the rest before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.cli.reset.internal_topics import Choice, internal_topics, of_commits, owner_of
from millpond.errors import ConfigError
from millpond.runtime.topics.identity import digest_of
from tests.cli.conftest import Ended, Millpond
from tests.conftest import CreateTopic
from tests.runtime.running import Running
from tests.support import kafka
from tests.support.broker import Broker

APP = """
import os
import millpond as mp

def build():
    builder = mp.StreamsBuilder()
    words = builder.stream(os.environ["WORDS"], key=mp.String, value=mp.String)
    words.group_by_key().count(store=os.environ["STORE"])
    return builder.build()
"""


def test_the_owner_is_the_application_with_the_longest_id() -> None:
    """Reports of workers name an application as well, which may have no committed offsets yet."""
    groups = ["a", "a-b", "a-b-c/workers", "a-bx", "b"]
    assert owner_of("a-b-c-x-changelog", "a", groups) == "a-b-c"
    assert owner_of("a-b-x-changelog", "a", groups) == "a-b"
    assert owner_of("a-x-changelog", "a", groups) is None


def test_evidence_decides_about_topics_that_the_code_does_not_name() -> None:
    """Commits before groups; without both the user decides, and inputs are never deleted."""
    existing = ["a-in-changelog", "a-b-x-changelog", "a-b-y-changelog", "a-old-changelog", "a-now-changelog", "a-out"]
    found = internal_topics(
        existing, "a", ["a", "a-b"], {"now-changelog"}, inputs=["a-in-changelog"],
        proven=lambda topics: {"a-b-x-changelog"} & set(topics),
    )  # fmt: skip
    assert found.own == ("a-b-x-changelog", "a-now-changelog")
    assert list(found.foreign) == ["a-b-y-changelog"]
    assert "--internal-topics a-b-y-changelog" in found.foreign["a-b-y-changelog"]
    assert found.unclear == ("a-old-changelog",)
    choice = Choice(delete=frozenset({"a-b-y-changelog"}), keep=frozenset({"a-old-changelog"}))
    found = internal_topics(existing, "a", ["a", "a-b"], {"now-changelog"}, inputs=["a-in-changelog"], choice=choice)
    assert "a-b-y-changelog" in found.own
    assert (dict(found.foreign)["a-old-changelog"], found.unclear) == ("--keep-topics names it", ())


def test_a_digest_proves_all_its_changelogs() -> None:
    """It is one of all changelogs of a task, in any order; brokers without ids prove nothing."""
    ids = {"a-x-changelog": "id1", "a-y-changelog": "id2", "a-z-changelog": "id3"}
    assert of_commits(ids, {digest_of(["id3", "id1"])}) == {"a-x-changelog", "a-z-changelog"}
    assert of_commits(dict.fromkeys(ids, ""), {digest_of(["id1"])}) == set()


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("b-x-changelog", "no internal topic of 'a' has such a name"),
        ("a-out", "no internal topic of 'a' has such a name"),
        ("a-in-changelog", "it is an input"),
        ("a-missing-changelog", "it does not exist"),
        ("a-kept-changelog", "--keep-topics names it as well"),
    ],
)
def test_only_internal_topics_can_be_named(topic: str, reason: str) -> None:
    """A mistyped name must not delete a topic with records."""
    choice = Choice(frozenset({topic}), frozenset({"a-kept-changelog"}))
    with pytest.raises(ConfigError, match=reason):
        choice.check(["b-x-changelog", "a-out", "a-in-changelog", "a-kept-changelog"], "a", ["a-in-changelog"])


class Scene:
    """An application that counts words in a store whose name changes between its runs."""

    def __init__(self, broker: Broker, millpond: Millpond, words: str, app_id: str, path: Path) -> None:
        self.servers = broker.bootstrap_servers
        self.words = words
        self.app_id = app_id
        self._millpond = millpond
        self._path = path

    def run(self, store: str, app_id: str | None = None, count: int = 3) -> None:
        from tests.runtime.topics.test_state_of_earlier_life import _counting

        app_id = app_id or self.app_id
        with Running(_counting(self.words, store), self.servers, app_id, self._path / "state") as running:
            running.wait(
                lambda: [
                    offset
                    for offset, _ in kafka.committed_offsets(self.servers, app_id, self.words).values()
                ] == [count],
                "all is committed",
            )  # fmt: skip

    def reset(self, *more: object) -> Ended:
        return self._millpond(
            "reset", "app:build", "--application-id", self.app_id, "--bootstrap-servers", self.servers,
            "--state-dir", self._path / "state", *more,
        )  # fmt: skip

    def internal(self) -> set[str]:
        return kafka.topic_names(self.servers, prefix=f"{self.app_id}-")

    def last_count(self, store: str) -> int:
        rows = kafka.read(self.servers, f"{self.app_id}-{store}-changelog", settled=True)
        return int.from_bytes(rows[-1].value or b"", "big")


@pytest.fixture
def scene(
    broker: Broker,
    millpond: Millpond,
    create_topic: CreateTopic,
    app_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Scene:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "app", raising=False)
    words = create_topic("words")
    monkeypatch.setenv("WORDS", words)
    (tmp_path / "app.py").write_text(APP)
    kafka.produce(broker.bootstrap_servers, words, [("a", "x")] * 3)
    return Scene(broker, millpond, words, app_id, tmp_path)


def test_the_changelog_of_a_renamed_store_is_deleted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets that were committed last prove it. Back under its former name, the store counts from 1."""
    scene.run("counts")
    monkeypatch.setenv("STORE", "renamed")
    ended = scene.reset("--yes")
    assert ended.status == 0, ended.err
    assert f"delete topic {scene.app_id}-counts-changelog" in ended.out
    assert scene.internal() == set()
    scene.run("renamed")
    monkeypatch.setenv("STORE", "counts")
    assert scene.reset("--yes").status == 0
    scene.run("counts")
    assert scene.last_count("counts") == 3


def test_without_a_proof_nothing_is_reset_before_the_user_decides(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renamed store has run, so the commits are about its own changelog."""
    scene.run("counts")
    kafka.produce(scene.servers, scene.words, [("a", "x")])
    scene.run("renamed", count=4)
    monkeypatch.setenv("STORE", "renamed")
    old = f"{scene.app_id}-counts-changelog"
    before = scene.internal()
    dry = scene.reset("--dry-run")
    assert dry.status == 0
    assert f"keep topic {old}: the code does not name it. Delete it by --internal-topics {old}" in dry.out
    assert "Without --dry-run this is refused" in dry.out
    refused = scene.reset("--yes")
    assert refused.status == 1
    assert f"add --internal-topics {old}" in refused.err
    assert f"--keep-topics {old}" in refused.err
    assert scene.internal() == before
    assert kafka.committed_offsets(scene.servers, scene.app_id, scene.words)[0][0] == 4
    kept = scene.reset("--yes", "--keep-topics", old)
    assert (kept.status, scene.internal()) == (0, {old}), kept.err
    # The state is back under the former name: no worker counts twice with it.
    error = Running(
        __import__("tests.runtime.topics.test_state_of_earlier_life", fromlist=["x"])._counting(scene.words),
        scene.servers, scene.app_id, Path.cwd() / "state",
    ).start().join()  # fmt: skip
    assert f"'{old}' has state of an earlier life" in str(error)
    done = scene.reset("--yes", "--internal-topics", old)
    assert (done.status, scene.internal()) == (0, set()), done.err


def test_another_application_with_a_longer_id_keeps_its_topics(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when its topic is named by hand, as long as its commits prove that it is its own."""
    other = f"{scene.app_id}-open"
    scene.run("counts")
    scene.run("counts", app_id=other)
    monkeypatch.setenv("STORE", "counts")
    theirs = f"{other}-counts-changelog"
    named = scene.reset("--yes", "--internal-topics", theirs)
    assert named.status != 0
    assert f"has state of application '{other}'" in named.err
    ended = scene.reset("--yes")
    assert (ended.status, scene.internal()) == (0, {theirs}), ended.err
    assert f"keep topic {theirs}: the consumer group '{other}' exists" in ended.out
