"""An application on a broker that denies by default, with the rights that `millpond acls` prints, and without each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from tests.cli.acls.conftest import Scene
from tests.cli.conftest import Process
from tests.runtime.running import GUARANTEES
from tests.support import kafka

#: What the application needs, as its rules name it, with the sentence without each: `{}` stands for the application.
SENTENCES: dict[tuple[str, str, str], str] = {
    ("topic", "{}.in", "Read"): "lacks Read on topic '{}.in'",
    ("topic", "{}.labels", "Read"): "lacks Read on topic '{}.labels'",
    ("topic", "{}.labels", "DescribeConfigs"): "lacks DescribeConfigs on topic '{}.labels'",
    ("topic", "{}.out", "Write"): "lacks Write on topic '{}.out'",
    ("topic", "{}.dead", "Write"): "lacks Write on topic '{}.dead'",
    ("topic", "{}-*", "Create"): "lacks Create on topic '{}-",
    ("topic", "{}-*", "Read"): "lacks Read on topic '{}-",
    ("topic", "{}-*", "Write"): "lacks Write on topics '{}-by-label-repartition', '{}-counts-changelog'",
    ("topic", "{}-*", "Delete"): "lacks Delete on topic '{}-by-label-repartition'",
    ("topic", "{}-*", "DescribeConfigs"): "lacks DescribeConfigs on topic '{}-counts-changelog'",
    ("group", "{}", "Read"): "lacks Read on group '{}'",
    ("group", "{}/workers", "Read"): "lacks Read on group '{}/workers'",
    ("transactional_id", "{}-*", "Write"): "lacks Write on transactional ids that begin with '{}-'",
}
#: Without these rights the application runs, and warns.
WARNINGS = {("topic", "DescribeConfigs"), ("topic", "Delete"), ("group/workers", "Read")}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_application_runs_with_exactly_the_printed_rights(
    scene: Scene, start: Callable[..., Process], tmp_path: Path, guarantee: str
) -> None:
    """Through a kill -9 and a restart on another disk; brokers deny nothing, and it warns of nothing."""
    scene.settings["processing.guarantee"] = guarantee
    rules = scene.rules()
    kinds = {each for each in SENTENCES if guarantee == "exactly_once" or each[0] != "transactional_id"}
    assert {scene.named(each) for each in rules} == kinds

    def counted(times: int) -> bool:
        found = scene.counts()
        if guarantee == "exactly_once":
            return found == Counter({"0": times, "1": times, "2": times})
        return all(found[each] >= times for each in "012")

    log = scene.guarded.broker.log_file
    with scene.guarded.allowing("alice", rules):
        begin = log.stat().st_size
        options = [*scene.options, "--set", "worker.id=w0"]
        first = start("run", scene.target, *options, "--state-dir", tmp_path / "one")
        scene.produce(30)
        kafka.eventually(lambda: counted(10), "counted")
        first.end()
        scene.produce(30, 30)
        second = start("run", scene.target, *options, "--state-dir", tmp_path / "two")
        kafka.eventually(lambda: counted(20), "counted after the kill")
        kafka.eventually(lambda: _first_offset(scene) > 0, "processed records of the repartition topic are deleted")
        second.signal(15)
        assert second.wait() == 0, second.said
        assert len(kafka.read(scene.guarded.bootstrap_servers, f"{scene.name}.dead")) >= 2
        for said in (first.said, second.said):
            assert "lacks" not in said
            assert "uthoriz" not in said
        with log.open(encoding="utf-8", errors="replace") as file:
            file.seek(begin)
            assert not [line for line in file if "Denied" in line and scene.name in line]


def _first_offset(scene: Scene) -> int:
    rows = kafka.read(scene.guarded.bootstrap_servers, f"{scene.name}-by-label-repartition")
    return min((row.offset for row in rows), default=1)


@pytest.mark.parametrize(
    "missing", SENTENCES, ids=lambda each: f"{each[2]} on {each[0]} {each[1]}".replace("{}", "app")
)
def test_each_right_is_needed_and_named_when_it_is_missing(
    scene: Scene, missing: tuple[str, str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One sentence with user, operation and resource: as the error with which the worker ends, or as a warning."""
    caplog.set_level(logging.INFO)
    rules = [each for each in scene.rules() if scene.named(each) != missing]
    assert len(rules) == len(SENTENCES) - 1
    sentence = f"User:alice {SENTENCES[missing].replace('{}', scene.name)}"

    def told() -> bool:
        if sentence in caplog.text or running.ended:
            return True
        if missing[2] == "Delete":
            scene.produce(3)  # the answer to a deletion is looked at when the next one is due
        return False

    with scene.guarded.allowing("alice", rules):
        running = scene.worker(tmp_path).start()
        try:
            scene.produce(3)
            kafka.eventually(told, sentence)
            if _warns(missing):
                running.wait(lambda: set(scene.counts()) == {"0", "1", "2"}, "it runs all the same")
                said = caplog.text
            else:
                said = str(running.join(60))
        finally:
            running.worker.stop()
            running.join(60)
    assert sentence in said, said
    assert "grant it, as `millpond acls` prints it." in said
    assert len([line for line in caplog.text.splitlines() if sentence in line]) <= 4


def _warns(missing: tuple[str, str, str]) -> bool:
    kind, name, operation = missing
    return (kind, operation) in WARNINGS or (kind + name.removeprefix("{}"), operation) in WARNINGS


def test_application_that_writes_nothing_needs_a_producer_id(scene: Scene, tmp_path: Path) -> None:
    """At least once: a right to write any topic would include it, and this application has none."""
    scene.target = scene.target.replace(":build", ":silent")
    scene.settings["processing.guarantee"] = "at_least_once"
    del scene.settings["errors.dead.letter.queue.topic.name"]
    rules = scene.rules()
    scene.produce(3)
    with scene.guarded.allowing("alice", rules), scene.worker(tmp_path) as running:
        running.wait(lambda: running.worker.metrics.commits, "it commits")
    others = [each for each in rules if each[3] is not AclOperation.IDEMPOTENT_WRITE]
    assert len(others) == len(rules) - 1
    scene.produce(3)
    with scene.guarded.allowing("alice", others):
        running = scene.worker(tmp_path).start()
        try:
            assert "User:alice lacks IdempotentWrite on the cluster" in str(running.join(60))
        finally:
            running.worker.stop()


def test_group_that_may_only_be_seen_is_named(scene: Scene, tmp_path: Path) -> None:
    """The offsets can be read, and the first commit fails."""
    described = (ResourceType.GROUP, scene.name, False, AclOperation.DESCRIBE)
    rules = [each for each in scene.rules() if scene.named(each) != ("group", "{}", "Read")]
    with scene.guarded.allowing("alice", [*rules, described]):
        running = scene.worker(tmp_path).start()
        try:
            assert f"User:alice lacks Read on group '{scene.name}'" in str(running.join(60))
        finally:
            running.worker.stop()
