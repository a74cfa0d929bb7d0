"""`millpond acls`: what it prints for which application and settings."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml
from confluent_kafka.admin import AclOperation, ResourceType

from millpond.cli.acls.page import markdown
from millpond.cli.acls.table import RIGHTS, Part
from tests.cli.conftest import COUNT, WORKER_ROOT, Application, Millpond
from tests.support.secured.denying_broker import Rule, rules_of

APP = """
    import re
    from datetime import timedelta

    import millpond as mp

    def tables():
        builder = mp.StreamsBuilder()
        builder.table("rows", key=mp.String, value=mp.Long, store="rows").to_stream().to("changes")
        return builder.build(optimization="reuse.ktable.source.topics")

    def unknown():
        builder = mp.StreamsBuilder()
        stream = builder.stream(re.compile("orders-.*"), key=mp.String, value=mp.String)
        stream.to(lambda key, value, context: value, key=mp.String, value=mp.String)
        return builder.build()

    def lines():
        builder = mp.StreamsBuilder()
        builder.stream(re.compile("orders\\n|payments", re.VERBOSE), key=mp.String, value=mp.String).to("out")
        return builder.build()

    def windows():
        builder = mp.StreamsBuilder()
        (
            builder.stream("in", key=mp.String, value=mp.Long)
            .group_by_key()
            .windowed_by(mp.TimeWindows(timedelta(seconds=1)))
            .count(store="counts")
        )
        return builder.build()
"""
ALICE = ("--principal", "User:alice")
ID = ("--set", "application.id=app")
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
COUNT_RULES: set[Rule] = {
    (TOPIC, "words", False, AclOperation.READ),
    (TOPIC, "counts", False, AclOperation.WRITE),
    *(
        (TOPIC, "app-", True, each)
        for each in (
            AclOperation.CREATE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.DESCRIBE_CONFIGS,
        )
    ),
    (GROUP, "app", False, AclOperation.READ),
    (GROUP, "app/workers", False, AclOperation.READ),
}


@pytest.fixture
def count(application: Application) -> str:
    """An application that counts words."""
    return f"{application(COUNT)}:count"


def printed(millpond: Millpond, *arguments: str) -> set[Rule]:
    """Return the rules that the command prints for User:alice, each once."""
    ended = millpond("acls", *arguments, *ALICE, *ID)
    assert ended.status == 0, ended.err
    rules = rules_of(ended.out, "User:alice")
    assert len(set(rules)) == len(rules)
    return set(rules)


def test_rules_follow_from_topology_and_settings(millpond: Millpond, count: str) -> None:
    """Transactions and dead letters have rules of their own."""
    assert printed(millpond, count) == COUNT_RULES
    settings = ("--set", "processing.guarantee=exactly_once", "--set", "errors.dead.letter.queue.topic.name=dead")
    assert printed(millpond, count, *settings) - COUNT_RULES == {
        (ResourceType.TRANSACTIONAL_ID, "app-", True, AclOperation.WRITE),
        (TOPIC, "dead", False, AclOperation.WRITE),
    }


def test_inputs_that_serve_as_changelogs_are_read_only(millpond: Millpond, application: Application) -> None:
    """Without internal topics nothing is granted on their prefix."""
    assert printed(millpond, f"{application(APP)}:tables") == {
        (TOPIC, "rows", False, AclOperation.READ),
        (TOPIC, "rows", False, AclOperation.DESCRIBE_CONFIGS),
        (TOPIC, "changes", False, AclOperation.WRITE),
        (GROUP, "app", False, AclOperation.READ),
        (GROUP, "app/workers", False, AclOperation.READ),
    }


def test_topics_that_code_chooses_are_said_to_be_unknown_until_they_are_named(
    millpond: Millpond, application: Application
) -> None:
    """Patterns and functions; a name may be the beginning of names."""
    target = f"{application(APP)}:unknown"
    said = millpond("acls", target, *ALICE, *ID).out
    assert "# Not known: source 'KSTREAM-SOURCE-0000000000' reads the topics that match 'orders-.*'" in said
    assert "a function chooses the topics of sink" in said
    named = (target, "--reads", "orders-*", "--writes", "done")
    assert {(TOPIC, "orders-", True, AclOperation.READ), (TOPIC, "done", False, AclOperation.WRITE)} <= printed(
        millpond, *named
    )
    assert "Not known" not in millpond("acls", *named, *ALICE, *ID).out
    every = printed(millpond, target, "--reads", "*", "--writes", "*")
    assert {(TOPIC, "*", False, AclOperation.READ), (TOPIC, "*", False, AclOperation.WRITE)} <= every


def test_pattern_of_several_lines_stays_in_one_comment(millpond: Millpond, application: Application) -> None:
    """The script has no line that nobody meant."""
    said = millpond("acls", f"{application(APP)}:lines", *ALICE, *ID).out
    assert "match 'orders |payments'" in said
    assert {line.split()[0] for line in said.splitlines()} == {"#", "kafka-acls.sh"}


def test_handler_that_may_choose_topics_is_named(millpond: Millpond, application: Application) -> None:
    """Its dead letters may go anywhere."""
    name = application(COUNT + "\n    def aside(context, error):\n        pass\n")
    said = millpond("acls", f"{name}:count", *ALICE, *ID, "--set", f"processing.exception.handler={name}:aside").out
    assert "the handler of 'processing.exception.handler' may choose topics for dead letters" in said


def test_right_for_a_case_that_code_does_not_show_is_a_comment(millpond: Millpond, application: Application) -> None:
    """Changelogs of windows that Kafka Streams has created are altered once."""
    target = f"{application(APP)}:windows"
    assert all(each[3] is not AclOperation.ALTER_CONFIGS for each in printed(millpond, target))
    said = millpond("acls", target, *ALICE, *ID).out
    assert "# Only in this case:\n# kafka-acls.sh " in said
    assert "--operation AlterConfigs --topic app- --resource-pattern-type prefixed" in said


def test_application_without_output_needs_a_producer_id(millpond: Millpond, application: Application) -> None:
    """Only at least once, since a transactional id includes it."""
    text = "import millpond as mp\n\ndef build():\n    builder = mp.StreamsBuilder()\n"
    text += "    builder.stream('in', key=mp.String, value=mp.String).foreach(print)\n    return builder.build()\n"
    target = f"{application(text)}:build"
    cluster = {each for each in printed(millpond, target) if each[0] is ResourceType.BROKER}
    assert cluster == {(ResourceType.BROKER, "kafka-cluster", False, AclOperation.IDEMPOTENT_WRITE)}
    rules = printed(millpond, target, "--set", "processing.guarantee=exactly_once")
    assert not [each for each in rules if each[0] is ResourceType.BROKER]


def test_strimzi_and_json_have_the_same_rules(millpond: Millpond, count: str) -> None:
    """A KafkaUser names its cluster, and logs in with a password or a certificate."""
    options = ("--output", "strimzi", "--cluster", "main", "--namespace", "kafka", *ID)
    user = yaml.safe_load(millpond("acls", count, *ALICE, *options).out)
    assert user["metadata"] == {"name": "alice", "namespace": "kafka", "labels": {"strimzi.io/cluster": "main"}}
    assert user["spec"]["authentication"] == {"type": "scram-sha-512"}
    kinds = {"topic": TOPIC, "group": GROUP}
    operations = {each.name.replace("_", "").lower(): each for each in AclOperation}
    assert {
        (
            kinds[each["resource"]["type"]], each["resource"]["name"], each["resource"]["patternType"] == "prefix",
            operations[one.lower()],
        )
        for each in user["spec"]["authorization"]["acls"]
        for one in each["operations"]
    } == COUNT_RULES  # fmt: skip
    plain = json.loads(millpond("acls", count, *ALICE, *ID, "--output", "json").out)
    assert {
        (kinds[each["resource"]], each["name"], each["pattern"] == "prefixed", operations[one.lower()])
        for each in plain["grants"]
        for one in each["operations"]
    } == COUNT_RULES
    user = yaml.safe_load(millpond("acls", count, "--principal", "User:CN=alice", *options).out)
    assert user["spec"]["authentication"] == {"type": "tls"}
    assert user["metadata"]["name"] == "alice"


def test_script_is_one_for_a_shell(millpond: Millpond, count: str, tmp_path: object, processes: None) -> None:
    """Names with blanks and quotes reach the program as they are."""
    principal = "User:CN=o'hara, OU=x y"
    said = millpond("acls", count, "--principal", principal, *ID).out
    echo = "kafka-acls.sh() { for each; do printf '%s\\n' \"$each\"; done; }\n"
    ran = subprocess.run(
        ["bash", "-euc", echo + said], capture_output=True, text=True, check=True, env={"BOOTSTRAP_SERVERS": "kafka:1"}
    )
    words = ran.stdout.splitlines()
    assert (
        words.count(principal)
        == words.count("--add")
        == len(said.splitlines()) - said.count("\n#") - said.startswith("#")
    )
    assert words.count("kafka:1") == words.count("--add")


def test_user_of_the_settings_is_the_default(millpond: Millpond, count: str) -> None:
    """As clients log in with it."""
    login = ("--set", "security.protocol=sasl_ssl", "--set", "sasl.mechanism=SCRAM-SHA-512")
    said = millpond("acls", count, *ID, *login, "--set", "sasl.username=bob", "--set", "sasl.password=x").out
    assert rules_of(said, "User:bob")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((*ALICE,), "setting 'application.id' is missing"),
        (ID, "the user is not known, since 'sasl.username' is not set: add --principal, as in --principal User:alice."),
        ((*ID, "--principal", "alice"), "expected TYPE:NAME, as in --principal User:alice."),
        ((*ID, *ALICE, "--output", "strimzi"), "a KafkaUser names its Kafka cluster: add --cluster NAME."),
        ((*ID, *ALICE, "--cluster", "main"), "--cluster and --namespace are for --output strimzi"),
        ((*ID, "--principal", "Group:x", "--output", "strimzi", "--cluster", "a"), "is not that of a KafkaUser"),
        ((*ID, *ALICE, "--for", "operator"), "'operator' is not one of"),
    ],
)
def test_mistakes_are_one_sentence(millpond: Millpond, count: str, arguments: tuple[str, ...], told: str) -> None:
    """With the cure."""
    ended = millpond("acls", count, *arguments)
    assert ended.status == 2
    assert told in ended.err
    assert ended.out == ""


@pytest.mark.parametrize("part", Part)
def test_each_part_has_rules_of_its_own(millpond: Millpond, count: str, part: Part) -> None:
    """A reader of topics may not write."""
    rules = printed(millpond, count, "--for", part.value)
    assert rules
    wanted = {each.operation.value.lower() for each in RIGHTS if each.part is part}
    assert {each[3].name.replace("_", "").lower() for each in rules} <= wanted
    both = printed(millpond, count, "--for", part.value, "--for", "worker")
    assert both >= COUNT_RULES


def test_page_is_the_table() -> None:
    """docs/rights.md is the output of `millpond acls --markdown`."""
    page = WORKER_ROOT.parent / "docs" / "rights.md"
    assert page.read_text(encoding="utf-8") == markdown(), "run: millpond acls --markdown > docs/rights.md"


def test_every_part_of_the_table_is_described() -> None:
    """Each right once."""
    assert len({(each.part, each.scope, each.operation) for each in RIGHTS}) == len(RIGHTS)
    assert {each.part for each in RIGHTS} == set(Part)
