"""The settings that error messages suggest are accepted themselves."""

from __future__ import annotations

import re

import pytest

from millpond.errors import ConfigError
from millpond.runtime.config import client_settings as clients
from millpond.runtime.config import sources
from millpond.runtime.config.client_properties import PROPERTIES
from millpond.runtime.config.model import Config
from millpond.runtime.config.settings import settings
from millpond.runtime.kafka import clients as kafka_clients

PREFIXES = ("", "consumer.", "producer.", "admin.", "main.consumer.")
NAMES = sorted(
    {
        *PROPERTIES,
        *clients._REJECTED,
        *clients._PROTECTED,
        *clients._TRANSLATED,
        *clients._REDIRECTED,
        *sources.REJECTED,
        *sources.OLD_NAMES,
        *(one.key for one in settings()),
        *(f"topic.{name}" for name in (*clients._TOPIC_CONFIGS, *clients._PROTECTED_TOPIC_CONFIGS)),
    }
)


def error_for(key: str, value: object = "x") -> str | None:
    """The error for a setting; None if it is accepted."""
    try:
        Config.of({key: value}, required=())
    except ConfigError as error:
        return str(error)
    return None


def is_known(key: str) -> bool:
    """Whether there is such a setting, with any value."""
    answer = error_for(key)
    return answer is None or "has the value" in answer or "needs a unit" in answer or "cannot be read" in answer


def misspelled(key: str, number: int) -> str:
    """The key without its last letter, without one in the middle, with one too many, or with underscores."""
    middle = len(key) // 2
    return (key[:-1], key[:middle] + key[middle + 1 :], f"{key}s", key.replace(".", "_"))[number % 4]


@pytest.mark.share(2)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_advised_setting_can_be_set(prefix: str) -> None:
    """All names of all clients and of Kafka Streams, with every prefix, and some of them misspelled."""
    advised: dict[str, str] = {}
    for number, name in enumerate(NAMES):
        for key in (prefix + name, *([misspelled(prefix + name, number)] if number % 3 == 0 else ())):
            answer = error_for(key) or ""
            advised |= dict.fromkeys(re.findall(r"(?:did you mean|write) '([a-z][a-z0-9._]+)'", answer), answer)
    assert advised
    assert {key: answer for key, answer in advised.items() if not is_known(key)} == {}


@pytest.mark.parametrize(
    "name", sorted({*clients._REJECTED, *sources.REJECTED, *clients._PROTECTED} - {"bootstrap.servers"})
)
def test_every_reason_names_settings_that_exist(name: str) -> None:
    """The settings to use instead of a rejected one exist."""
    answer = error_for(name)
    assert answer is not None
    quoted = [key for key in re.findall(r"'([a-z]+\.[a-z.]+)'", answer) if key != name]
    assert [key for key in quoted if not is_known(key)] == []


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        (
            "main.consumer.fetch.min.bytes",
            "does not exist, since a worker has one consumer; write 'consumer.fetch.min.bytes'",
        ),
        ("main.consumer.group.id", "one consumer, and 'consumer.group.id' cannot be set: it follows from"),
        ("restore.consumer.auto.offset.reset", "write 'consumer.auto.offset.reset'"),
        ("grup.id", "is unknown, and 'group.id' cannot be set: it follows from"),
        ("consumer.isolation.levl", "is unknown, and 'consumer.isolation.level' cannot be set"),
        (
            "num.stream.thread",
            "is unknown, and 'num.stream.threads' is a setting of Kafka Streams that millpond does not have: a worker",
        ),
        (
            "consumer.acceptable.recovery.lag",
            "a setting of the worker, not of the consumer; write 'acceptable.recovery.lag'",
        ),
        ("topic.cleanup.polcy", "is unknown, and 'topic.cleanup.policy' cannot be set"),
        ("metadata.max.idle.ms", "'metadata.max.age.ms'"),
        ("consumer.session.timeout.ms", "set 'coordinator.session.timeout.ms' instead"),
    ],
)
def test_advice_fits_the_mistake(key: str, answer: str) -> None:
    """A setting that cannot be set is never suggested; the error has the reason."""
    assert answer in (error_for(key) or "")


def test_reason_for_ends_of_partitions_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's consumer has this property set, so users must not change it."""
    built: list[dict[str, object]] = []
    monkeypatch.setattr(kafka_clients, "Consumer", lambda settings, logger: built.append(settings))
    config = Config.of(application_id="a", bootstrap_servers="127.0.0.1:1")
    kafka_clients.make_consumer(config, 1, None, lambda _error: None)
    assert built[0]["enable.partition.eof"] is True
    assert "needs the event that a partition has no more records" in (error_for("enable.partition.eof") or "")


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("host:8080", "http://host:8080"),
        ("10.0.0.7:8080", "http://10.0.0.7:8080"),
        ("[fd00::7]:8080", "http://[fd00::7]:8080"),
        ("http://host:8080/", "http://host:8080"),
        ("https://host", "https://host"),
    ],
)
def test_application_server_takes_kafka_streams_form(given: str, taken: str) -> None:
    """`host:port`, or a URL where it is https or has a path."""
    assert Config.of({"application.server": given}, required=()).application_server == taken


@pytest.mark.parametrize("given", ["host", "host:", ":8080", "host:80:80", "ftp://host:80", "my host:80"])
def test_other_application_servers_are_rejected(given: str) -> None:
    """The message has both forms."""
    assert "expected host:port, or a URL such as http://" in (error_for("application.server", given) or "")


async def _later(_context: object, _error: Exception) -> None:
    pass


@pytest.mark.parametrize(
    ("key", "value", "answer"),
    [
        ("default.key.serde", "millpond.serdes:Json", "makes serdes, so call it: Json(Type)"),
        ("default.value.serde", str, "use mp.String"),
        ("default.value.serde", "msgspec:json", "needs a serde, not the module"),
        ("processing.exception.handler", lambda error: None, "with (context, error), but it takes (error)"),
        ("processing.exception.handler", _later, "an async def"),
        ("production.exception.handler", object(), "needs a function of (context, error), not an object"),
    ],
)
def test_serdes_and_handlers_are_checked(key: str, value: object, answer: str) -> None:
    """At the start, not at the first record; and no message contains an object's address."""
    message = error_for(key, value) or ""
    assert answer in message
    assert "0x" not in message


def test_config_made_without_conversion_is_rejected() -> None:
    """Config() does not convert values; Config.of() does."""
    with pytest.raises(ConfigError, match=r"'commit.interval.ms' was given to Config\(\) as the text '100ms'"):
        Config(application_id="x", commit_interval_ms="100ms")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="in a dictionary, or by name, not the text 'x'"):
        Config.of("x")  # type: ignore[arg-type]
