"""Kafka client properties: which client gets them, which are rejected, and that millpond knows all of librdkafka's."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from millpond.errors import ConfigError
from millpond.runtime.config.client_properties import ALIASES, PROPERTIES
from millpond.runtime.config.client_settings import route
from millpond.runtime.config.model import Config

GIVEN = {"application.id": "app", "bootstrap.servers": "127.0.0.1:1"}


def make(more: dict[str, object]) -> Config:
    return Config.of({**GIVEN, **more})


def refusal(key: str, value: object = "x") -> str:
    with pytest.raises(ConfigError) as refused:
        make({key: value})
    return str(refused.value)


def test_prefixed_properties_go_to_their_client_alone() -> None:
    """`consumer.` is for the consumer, and so on."""
    config = make({"consumer.client.id": "c", "producer.client.id": "p", "admin.client.id": "a"})
    assert (config.consumer["client.id"], config.producer["client.id"], config.admin["client.id"]) == ("c", "p", "a")


def test_unprefixed_properties_go_to_every_client_that_knows_them() -> None:
    """Security is configured once; a property of the producer goes to the producer."""
    config = make({"security.protocol": "SASL_SSL", "linger.ms": 5, "fetch.min.bytes": 2})
    assert all(each["security.protocol"] == "SASL_SSL" for each in (config.consumer, config.producer, config.admin))
    assert "fetch.min.bytes" not in config.producer
    assert len(config.admin) == 1


def test_a_prefixed_property_wins_wherever_it_comes_from() -> None:
    """Specific beats later: a flag for all clients does not override the consumer's own property."""
    config = Config.load(None, {"MILLPOND_CONSUMER_CLIENT_ID": "c"}, {**GIVEN, "client.id": "all"})
    assert (config.consumer["client.id"], config.producer["client.id"]) == ("c", "all")


def test_synonyms_count_as_one_property() -> None:
    """Librdkafka would take the last of `linger.ms` and `queue.buffering.max.ms`; here the configured one wins."""
    config = make({"producer.linger.ms": 5})
    built = config.producer_settings(defaults={"linger.ms": 1, "queue.buffering.max.ms": 2})
    assert [value for key, value in built.items() if key in {"linger.ms", "queue.buffering.max.ms"}] == [5]


def test_defaults_give_way_and_fixed_properties_do_not() -> None:
    """The configuration overrides the runtime's defaults; the runtime's fixed properties override the configuration."""
    config = make({"consumer.fetch.wait.max.ms": 5, "consumer.client.id": "mine"})
    built = config.consumer_settings(defaults={"fetch.wait.max.ms": 10, "fetch.min.bytes": 1}, fixed={"client.id": "x"})
    assert built == {
        "bootstrap.servers": "127.0.0.1:1", "allow.auto.create.topics": False, "fetch.wait.max.ms": 5,
        "fetch.min.bytes": 1, "client.id": "x",
    }  # fmt: skip


@pytest.mark.parametrize(
    "key",
    [
        "consumer.group.id", "group.id", "consumer.isolation.level", "isolation.level", "consumer.enable.auto.commit",
        "enable.auto.commit", "auto.commit.enable", "producer.transactional.id", "producer.enable.idempotence",
        "producer.acks", "acks", "producer.request.required.acks", "producer.partitioner", "consumer.bootstrap.servers",
        "metadata.broker.list", "consumer.partition.assignment.strategy", "consumer.group.instance.id",
    ],
)  # fmt: skip
def test_properties_the_guarantees_need_cannot_be_set(key: str) -> None:
    """Each is rejected under every name, with a reason."""
    assert re.search(rf"'{re.escape(key)}' .* cannot be set: \w+", refusal(key))


@pytest.mark.parametrize(
    ("java", "here"),
    [
        ("consumer.fetch.max.wait.ms", "fetch.wait.max.ms"),
        ("producer.max.request.size", "message.max.bytes"),
        ("send.buffer.bytes", "socket.send.buffer.bytes"),
    ],
)
def test_javas_names_are_translated(java: str, here: str) -> None:
    """For the same property under another name."""
    config = make({java: 5000})
    assert {**config.consumer, **config.producer}[here] == 5000


@pytest.mark.parametrize(
    ("java", "here"),
    [
        ("ssl.truststore.location", "ssl.ca.location"),
        ("sasl.jaas.config", "sasl.username"),
        ("producer.buffer.memory", "queue.buffering.max.kbytes"),
        ("consumer.max.poll.records", "buffered.records.per.partition"),
        ("consumer.key.deserializer", "default.key.serde"),
        ("main.consumer.fetch.min.bytes", "consumer.fetch.min.bytes"),
    ],
)
def test_java_only_properties_are_rejected_with_a_hint(java: str, here: str) -> None:
    """The error has the name, and what to write instead."""
    assert here in refusal(java)


def test_property_of_the_other_client_is_reported() -> None:
    """`consumer.linger.ms` exists, but not for consumers."""
    assert "property of the producer" in refusal("consumer.linger.ms", 5)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("consumer.fetch.min.bytes", 0, None),
        ("consumer.fetch.min.bytes", -1, "from 0 to"),
        ("consumer.fetch.min.bytes", "many", "expected a number"),
        ("consumer.fetch.min.bytes", True, "expected a number"),
        ("socket.keepalive.enable", "true", None),
        ("socket.keepalive.enable", "yes", "true or false"),
        ("security.protocol", "SSL", None),
        ("security.protocol", "sasl_sl", "did you mean 'sasl_ssl'?"),
        ("debug", "broker,security", None),
        ("debug", "broker,secutiry", "did you mean 'security'?"),
    ],
)
def test_values_are_checked_before_any_client_is_built(key: str, value: object, told: str | None) -> None:
    """By librdkafka's limits: a wrong value fails at the start, with the setting's name."""
    if told is None:
        make({key: value})
    else:
        assert told in refusal(key, value)


def test_topic_configuration_is_for_internal_topics() -> None:
    """`topic.` sets the configuration of topics that millpond creates, except what follows from their use."""
    config = make({"topic.min.insync.replicas": 2, "topic.preallocate": True, "topic.confluent.placement": "x"})
    assert config.topic == {"min.insync.replicas": "2", "preallocate": "true", "confluent.placement": "x"}
    assert "cannot be set" in refusal("topic.cleanup.policy")


def test_librdkafka_properties_that_begin_with_topic_are_the_clients() -> None:
    """One prefix, two meanings: a property of librdkafka with that name goes to the clients."""
    config = make({"topic.metadata.refresh.interval.ms": 5000})
    assert config.topic == {}
    assert config.consumer["topic.metadata.refresh.interval.ms"] == 5000


def _printed_by_librdkafka(path: Path) -> dict[str, tuple[str, str]]:
    """Librdkafka's own table: (scope, type) by property."""
    root = Path(confluent_kafka.__file__).parent
    found = sorted([*root.parent.glob("confluent_kafka.libs/librdkafka*"), *root.glob(".dylibs/librdkafka*")])
    if not found:
        pytest.skip("this build of confluent-kafka brings no librdkafka of its own to ask")
    library, libc = ctypes.CDLL(str(found[0])), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    libc.fclose.argtypes = [ctypes.c_void_p]
    library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    file = libc.fopen(str(path).encode(), b"w")
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows: dict[str, tuple[str, str]] = {}
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if kind := re.search(r"\*Type: ([^*]+)\*", line):
            rows.setdefault(cells[0], (cells[1], kind[1]))
    return rows


def test_the_known_properties_are_those_of_the_installed_librdkafka(tmp_path: Path) -> None:
    """None is missing and none is invented, so a newer client with new properties is noticed."""
    printed = _printed_by_librdkafka(tmp_path / "properties")
    settable = {name: scope for name, (scope, kind) in printed.items() if kind != "see dedicated API"}
    del settable["builtin.features"]
    assert {name: known.scope for name, known in PROPERTIES.items()} == settable


@pytest.mark.parametrize("client", ["consumer", "producer", "admin"])
def test_accepted_properties_are_valid_for_the_client(client: str) -> None:
    """A real client is made with properties of every type."""
    built = {"consumer": Consumer, "producer": Producer, "admin": AdminClient}
    extra: dict[str, Any] = {"group.id": "g"} if client == "consumer" else {}
    values = {
        "socket.timeout.ms": 5000, "security.protocol": "plaintext", "socket.keepalive.enable": True, "debug": "admin",
        "log_level": 0, "client.rack": "r1",
    }  # fmt: skip
    config = make(values)
    settings = getattr(config, f"{client}_settings")(fixed=extra)
    settings.pop("debug")  # it would print
    built[client](dict(settings))


def test_every_alias_leads_to_a_property() -> None:
    """Each synonym stands for a property, and none for another synonym."""
    for alias, target in ALIASES.items():
        assert alias in PROPERTIES
        assert target in PROPERTIES
        assert target not in ALIASES


def test_unknown_keys_belong_to_no_client() -> None:
    """A key that is not a client property has no route, so that the caller can suggest a setting of millpond."""
    assert route("colour") is None
