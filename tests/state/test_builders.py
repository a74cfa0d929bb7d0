"""Store builders: Kafka Streams' changelog settings, and stores of the right kind."""

from __future__ import annotations

import pytest

from millpond import serdes
from millpond.errors import ConfigError
from millpond.state import (
    KeyValueStore,
    KeyValueStoreBuilder,
    MemoryBackend,
    TimeOrderedBuffer,
    TimeOrderedBufferBuilder,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    WindowStore,
    WindowStoreBuilder,
)
from tests.state import helpers

COMMON = {"name": "s", "key": serdes.String, "value": serdes.Long}
WINDOWS = {**COMMON, "retention_ms": 3_600_000, "window_size_ms": 60_000}


@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        (KeyValueStoreBuilder(**COMMON), KeyValueStore),
        (KeyValueStoreBuilder(**COMMON, timestamped=True), TimestampedKeyValueStore),
        (WindowStoreBuilder(**WINDOWS), WindowStore),
        (WindowStoreBuilder(**WINDOWS, timestamped=True), TimestampedWindowStore),
        (TimeOrderedBufferBuilder(**COMMON), TimeOrderedBuffer),
    ],
)
def test_builder_makes_its_kind_of_store(builder, expected):
    """One builder makes any number of independent stores, one per partition."""
    backend = MemoryBackend()
    first, second = builder.build(0, backend, "changelog"), builder.build(1, backend, "changelog")
    assert type(first) is type(second) is expected
    assert (first.name, first.partition, second.partition) == ("s", 0, 1)
    assert first.changelog_topic == "changelog"


def test_a_store_without_logging_has_no_changelog():
    """The store ignores the topic that it is built with."""
    assert KeyValueStoreBuilder(**COMMON, logging=False).build(0, MemoryBackend(), "changelog").changelog_topic is None


def test_a_store_that_repeats_a_topic_logs_nothing():
    """Its source topic is the changelog, which it never writes to; its rows are written to the backend as usual."""
    backend = MemoryBackend()
    store = KeyValueStoreBuilder(**COMMON, source_topic="flights").build(0, backend, "flights")
    assert store.changelog_topic is None
    store.put("k", 1)
    assert helpers.commit(store, backend) == []
    assert list(store.all()) == [("k", 1)]


def test_a_store_without_a_serde_names_the_setting():
    """The runtime fills in the configured defaults; the error names the default that is missing."""
    with pytest.raises(ConfigError, match=r"store 's' has no value serde: .*'default\.value\.serde'"):
        KeyValueStoreBuilder(name="s", key=serdes.String).build(0, MemoryBackend(), None)


def test_a_key_value_changelog_is_compacted():
    """As in Kafka Streams; settings for all internal topics override the defaults, and the store's own both."""
    builder = KeyValueStoreBuilder(**COMMON, log_config={"segment.bytes": "2"})
    assert builder.changelog_config({"segment.bytes": "1", "retention.bytes": "9"}) == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "CreateTime",
        "segment.bytes": "2",
        "retention.bytes": "9",
    }


def test_a_window_changelog_also_forgets_after_retention_and_a_day():
    """Retention plus `windowstore.changelog.additional.retention.ms`, unless the store says otherwise."""
    builder = WindowStoreBuilder(**WINDOWS)
    assert builder.changelog_config() == {
        "cleanup.policy": "compact,delete",
        "message.timestamp.type": "CreateTime",
        "retention.ms": str(3_600_000 + 86_400_000),
    }
    assert builder.changelog_config({"retention.ms": "1"}, additional_retention_ms=5)["retention.ms"] == "3600005"
    assert builder.changelog_config(additional_retention_ms=2**63 - 1)["retention.ms"] == str(2**63 - 1)
    own = WindowStoreBuilder(**WINDOWS, log_config={"retention.ms": "7"})
    assert own.changelog_config()["retention.ms"] == "7"


def test_settings_that_contradict_themselves_are_rejected():
    """A store without a name, a window without length, a retention shorter than the window."""
    with pytest.raises(ConfigError, match="needs a name"):
        KeyValueStoreBuilder(**{**COMMON, "name": ""})
    with pytest.raises(ConfigError, match=r"'s'.*must be positive, not 0 ms"):
        WindowStoreBuilder(**{**WINDOWS, "window_size_ms": 0})
    with pytest.raises(ConfigError, match=r"'s'.*retention of 59999 ms is shorter than its windows of 60000 ms"):
        WindowStoreBuilder(**{**WINDOWS, "retention_ms": 59_999})
