"""Commands on a broker that denies by default, with the rights that `millpond acls --for` prints, and without each."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from millpond.errors import BrokerError, TopicError
from millpond.inspection.tails import Changelogs
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.clients import log
from millpond.runtime.kafka.dry_run import default_replication_factor
from millpond.runtime.offsets.metadata import Partition
from tests.cli.acls.conftest import Scene, options_of
from tests.support import kafka
from tests.support.secured.denying_broker import Rule

#: Arguments of each command, in which `{}` is the application's name, and the sentences without a right.
CASES: dict[str, tuple[list[str], dict[tuple[str, str, str], str]]] = {
    "consume": (["consume", "{}.out"], {("topic", "{}.out", "Read"): "lacks Read on topic '{}.out'"}),
    "produce": (["produce", "{}.in", "lines"], {("topic", "{}.in", "Write"): "lacks Write on topic '{}.in'"}),
    "topics": (["topics", "{}.in"], {("topic", "{}.in", "Describe"): "lacks Describe on topic '{}.in'"}),
    "topics-create": (
        ["topics", "{}.labels", "--create", "1"],
        {("topic", "{}.labels", "Create"): "lacks Create on topic '{}.labels'"},
    ),
    "topics-delete": (
        ["topics", "{}.dead", "--delete", "--yes"],
        {("topic", "{}.dead", "Delete"): "lacks Delete on topic '{}.dead'"},
    ),
    "reset": (
        ["reset", "TARGET", "--yes"],
        {
            ("topic", "{}.in", "Read"): "lacks Read on topic '{}.in'",
            ("topic", "{}-*", "Read"): "lacks Read on topic",
            ("group", "{}", "Read"): "lacks Read on group '{}'",
            ("transactional_id", "{}-*", "Write"): "lacks Write on transactional ids that begin with '{}-'",
            ("group", "{}/workers", "Describe"): "lacks Describe on group '{}/workers'",
            ("topic", "{}-*", "Delete"): "lacks Delete on topic '{}-",
        },
    ),
    "delete": (
        ["reset", "TARGET", "--delete", "--yes"],
        {
            ("topic", "{}-*", "Delete"): "lacks Delete on topics '{}-by-label-repartition', '{}-counts-changelog'",
            ("group", "{}", "Delete"): "lacks Delete on group '{}'",
            ("transactional_id", "{}-*", "Write"): "lacks Write on transactional ids that begin with '{}-'",
            ("group", "{}/workers", "Delete"): "lacks Describe on group '{}/workers'",
        },
    ),
}


@pytest.mark.parametrize("part", CASES)
def test_command_needs_its_rights_and_names_those_that_are_missing(scene: Scene, part: str, tmp_path: Path) -> None:
    """A command without a right fails and changes nothing that another attempt could not finish."""
    with scene.worker(
        tmp_path, bootstrap_servers=scene.guarded.bootstrap_servers, security_protocol="plaintext"
    ) as made:
        scene.produce(3)
        made.wait(lambda: scene.counts() == Counter({"0": 1, "1": 1, "2": 1}), "counted")
    (Path.cwd() / "lines").write_text('{"key": "k", "value": "v"}\n', encoding="utf-8")
    if part == "topics-create":
        kafka.delete_topics(scene.guarded.bootstrap_servers, [f"{scene.name}.labels"])
    words, sentences = CASES[part]
    command = [scene.target if each == "TARGET" else each.replace("{}", scene.name) for each in words]
    options = ["--application-id", scene.name, *options_of(scene.guarded.settings("bob"))]
    rules = scene.rules("--for", part, user="bob")
    for missing, sentence in sentences.items():
        left = [each for each in rules if scene.named(each) != missing]
        assert len(left) == len(rules) - 1, missing
        with scene.guarded.allowing("bob", left):
            ended = scene.millpond(*command, *options)
            assert ended.status == 1, (missing, ended)
            assert f"User:bob {sentence.replace('{}', scene.name)}" in ended.err, (missing, ended.err)
            assert "grant it, as `millpond acls` prints it." in ended.err
    with scene.guarded.allowing("bob", rules):
        ended = scene.millpond(*command, *options)
        assert ended.status == 0, ended.err
        assert "lacks" not in ended.err


def test_state_is_verified_without_a_right_to_the_group(scene: Scene) -> None:
    """Its consumer reads changelogs alone; a changelog that is hidden does not count as deleted."""
    changelog = Partition(f"{scene.name}-counts-changelog", 0)
    kafka.create_topic(scene.guarded.bootstrap_servers, changelog.topic)
    kafka.produce(scene.guarded.bootstrap_servers, changelog.topic, [("a", "1"), ("b", "2")])
    config = Config.load(None, {}, {"application.id": scene.name, **scene.guarded.settings("bob")})
    rules = scene.rules("--for", "state", user="bob")
    taken: list[Any] = []
    with scene.guarded.allowing("bob", rules), closing(Changelogs(config)) as changelogs:
        assert changelogs.logs([changelog.topic], [changelog]).keys() == {changelog}
        changelogs.read(changelog, 0, 2, taken.append)
    assert len(taken) == 2
    left = [each for each in rules if scene.named(each) != ("topic", "{}-*", "Read")]
    seen = (ResourceType.TOPIC, f"{scene.name}-", True, AclOperation.DESCRIBE)
    sentence = f"User:bob lacks Read on topic '{changelog.topic}'"
    with closing(Changelogs(config)) as changelogs:
        for allowed, kind, call in (
            (left, TopicError, lambda: changelogs.logs([changelog.topic], [changelog])),
            ([*left, seen], BrokerError, lambda: changelogs.read(changelog, 0, 2, taken.append)),
        ):
            with scene.guarded.allowing("bob", allowed), pytest.raises(kind, match=sentence):
                call()


@pytest.mark.parametrize("seen", [True, False], ids=["groups are seen", "groups are hidden"])
def test_topic_of_an_application_that_is_hidden_is_not_deleted(scene: Scene, *, seen: bool) -> None:
    """Its id begins as that of the application, and so do its topics; without the topology, its group tells it."""
    servers, other = scene.guarded.bootstrap_servers, f"{scene.name}-eu"
    own, foreign = f"{scene.name}-counts-changelog", f"{other}-counts-changelog"
    for topic in (own, foreign):
        kafka.create_topic(servers, topic)
    for id in (scene.name, other):
        kafka.commit_offsets(servers, id, [TopicPartition(f"{scene.name}.in", 0, 0)])
    options = ["--application-id", scene.name, *options_of(scene.guarded.settings("bob"))]
    rules = scene.rules("--for", "delete", user="bob")
    if not seen:
        rules = [each for each in rules if each[0] is not ResourceType.BROKER]
    with scene.guarded.allowing("bob", rules):
        ended = scene.millpond("reset", "--delete", "--yes", *options)
    assert ended.status == 0, ended.err
    left = kafka.topic_names(servers, prefix=f"{scene.name}-")
    assert foreign in left
    assert (own in left) is not seen
    assert f"keep topic {foreign}" in ended.out


def test_list_of_topics_lacks_something_without_each_right(scene: Scene) -> None:
    """No right of the list is for nothing: a topic, its settings or its application is left out."""
    servers = scene.guarded.bootstrap_servers
    kafka.create_topic(servers, f"{scene.name}-counts-changelog")
    kafka.commit_offsets(servers, scene.name, [TopicPartition(f"{scene.name}.in", 0, 0)])
    options = options_of(scene.guarded.settings("bob"))
    rules = scene.rules("--for", "topics", user="bob")

    def listed(allowed: list[Rule]) -> str:
        with scene.guarded.allowing("bob", allowed):
            ended = scene.millpond("topics", "--json", *options)
        assert ended.status == 0, ended.err
        return ended.out

    whole = listed(rules)
    assert whole == listed(rules)
    for rule in rules:
        assert listed([each for each in rules if each != rule]) != whole, scene.named(rule)


def test_check_names_the_rights_that_a_worker_would_lack(scene: Scene) -> None:
    """All at once, before anything is created; without those that only warn, a worker can start."""
    servers = scene.guarded.bootstrap_servers
    options = ["--connect", *scene.options]

    def checked(without: set[tuple[str, str, str]]) -> tuple[int, str]:
        rules = [each for each in scene.rules() if scene.named(each) not in without]
        with scene.guarded.allowing("alice", rules):
            ended = scene.millpond("check", scene.target, *options)
        return ended.status, ended.out + ended.err

    status, said = checked(set())
    assert (status, "lacks" in said) == (0, False), said
    status, said = checked({("topic", "{}-*", "Create"), ("group", "{}", "Read")})
    assert status == 1
    for sentence in (f"Create on topic '{scene.name}-by-label-repartition'", f"Read on group '{scene.name}'"):
        assert f"User:alice lacks {sentence}: grant it, as `millpond acls` prints it." in said
    assert not kafka.topic_names(servers, prefix=f"{scene.name}-")
    seen = [(ResourceType.TOPIC, f"{scene.name}.{each}", False, AclOperation.DESCRIBE) for each in ("in", "out")]
    lacking = {("topic", "{}.in", "Read"), ("topic", "{}.out", "Write"), ("topic", "{}.labels", "DescribeConfigs")}
    with scene.guarded.allowing("alice", seen):
        status, said = checked(lacking)
    assert status == 1
    for sentence in (f"Read on topic '{scene.name}.in'", f"Write on topic '{scene.name}.out'"):
        assert (
            f"User:alice lacks {sentence}: grant it, as `millpond acls` prints it. Without it: it does not st" in said
        )
    status, said = checked({("topic", "{}.labels", "DescribeConfigs")})
    assert status == 0
    assert f"note: User:alice lacks DescribeConfigs on topic '{scene.name}.labels'" in said


def test_check_knows_the_default_of_replicas_by_its_right(scene: Scene) -> None:
    """Without the right that is printed for it, the default is unknown; it is no error."""
    admin = AdminClient(scene.guarded.settings("bob"), logger=log)
    assert default_replication_factor(admin, 1, 10.0) is None
    rules = scene.rules("--for", "check", user="bob")
    assert [each[3] for each in rules] == [AclOperation.DESCRIBE_CONFIGS]
    with scene.guarded.allowing("bob", rules):
        assert default_replication_factor(admin, 1, 10.0) == 1
