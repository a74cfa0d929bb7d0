"""What a processor sees of its task: metadata, settings, serdes, its directory, stores of a known class."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import ConfigError, TopologyError
from millpond.state import MemoryBackend
from millpond.testing import TopologyTestDriver
from millpond.topology.read_only import _WRITING, ReadOnlyStore

SECOND = timedelta(seconds=1)
SETTINGS = {
    "application.id": "shop",
    "default.key.serde": "String",
    "default.value.serde": "String",
    "app.rates.eur": "1.1",
    "app.rates.gbp": "1.3",
}


class Scripted(mp.Processor[Any, Any, Any, Any]):
    """Runs one function in init(), and another for each record."""

    def __init__(self, script: Callable[[Any, Any], None], begin: Callable[[Any], None]) -> None:
        self.script, self.begin = script, begin

    def init(self, context: Any) -> None:
        self.begin(context)

    def process(self, record: mp.Record[Any, Any]) -> None:
        self.script(self.context, record)


def driver_of(
    script: Callable[[Any, Any], None] = lambda _context, _record: None,
    begin: Callable[[Any], None] = lambda _context: None,
    *builders: Any,
    settings: dict[str, object] | None = None,
) -> TopologyTestDriver:
    topology = mp.Topology().add_source("in", "in", key=mp.String, value=mp.String)
    topology.add_processor("work", lambda: Scripted(script, begin), "in")
    for builder in builders:
        topology.add_state_store(builder, "work")
    topology.add_sink("out", "out", "work", key=mp.String, value=mp.String)
    return TopologyTestDriver(topology, SETTINGS | (settings or {}), initial_wall_clock=9)


def test_a_record_has_metadata_of_its_source_and_a_punctuation_has_none() -> None:
    """Topic, partition and offset are those of the record; init() and punctuations have none, in both clocks."""
    seen: list[Any] = []

    def begin(context: Any) -> None:
        seen.append(context.record_metadata())
        for kind in mp.PunctuationType:
            context.schedule(SECOND, kind, lambda _now: seen.append(context.record_metadata()))

    with driver_of(lambda context, record: seen.append(context.record_metadata()), begin) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        topic.pipe_input("a", "0", timestamp=5)
        topic.pipe_input("a", "1", timestamp=7, headers=[("h", b"x")])
        driver.advance_wall_clock_time(SECOND)
    begun, first, stream_time, second, wall_clock = seen
    assert (begun, stream_time, wall_clock) == (None, None, None)
    assert first[:4] == ("in", 0, 0, 5)
    assert second == mp.RecordContext("in", 0, 1, 7, [("h", b"x")])


def test_settings_serdes_and_times_are_those_of_the_application() -> None:
    """app_configs() has all settings; a prefix is cut off; default serdes and times are there from init() on."""
    seen: dict[str, Any] = {}

    def begin(context: Any) -> None:
        seen["begin"] = context.current_system_time_ms(), context.current_stream_time_ms()
        seen["rates"] = context.app_configs_with_prefix("app.rates.")
        seen["configs"] = context.app_configs()
        seen["serdes"] = context.key_serde, context.value_serde
        seen["ids"] = context.application_id, str(context.task_id)

    def script(context: Any, _record: Any) -> None:
        seen["record"] = context.current_system_time_ms(), context.current_stream_time_ms()

    with driver_of(script, begin) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("a", "0", timestamp=5)
    assert seen["begin"] == (9, -1)
    assert seen["record"] == (9, 5)
    assert seen["rates"] == {"eur": "1.1", "gbp": "1.3"}
    assert seen["configs"]["application.id"] == "shop"
    assert seen["configs"]["app.rates.eur"] == "1.1"
    assert seen["serdes"] == (mp.String, mp.String)
    assert seen["ids"] == ("shop", "0_0")


def test_each_task_has_a_directory_of_its_own() -> None:
    """It exists when it is asked for, and the driver deletes it."""
    paths: list[Path] = []
    with driver_of(begin=lambda context: paths.append(context.state_dir)):
        (path,) = paths
        (path / "index").write_text("rows")
    assert path.name == "0_0"
    assert not path.exists()


def test_a_mocked_context_has_the_directory_that_the_test_gives(tmp_path: Path) -> None:
    """Without one, the processor's use of it is an error."""
    context: mp.testing.MockProcessorContext[Any, Any] = mp.testing.MockProcessorContext(state_dir=tmp_path / "task")
    assert context.state_dir.is_dir()
    with pytest.raises(TopologyError, match="there is no directory for state here"):
        _ = mp.testing.MockProcessorContext().state_dir


COUNTS = mp.KeyValueStoreBuilder(name="counts", key=mp.String, value=mp.String)


def test_a_store_may_be_asked_for_by_its_class() -> None:
    """The class may have type arguments. A store of another class, or something else than a class, is an error."""
    with driver_of(lambda *_: None, lambda context: context.get_state_store("counts", mp.KeyValueStore), COUNTS):
        pass
    with driver_of(
        lambda *_: None, lambda context: context.get_state_store("counts", mp.KeyValueStore[str, str]), COUNTS
    ):
        pass
    with pytest.raises(TopologyError, match="gets store 'counts' as a WindowStore, but it is a KeyValueStore"):
        driver_of(lambda *_: None, lambda context: context.get_state_store("counts", mp.WindowStore), COUNTS)
    with pytest.raises(TopologyError, match="as its kind; give a class"):
        driver_of(lambda *_: None, lambda context: context.get_state_store("counts", "KeyValueStore"), COUNTS)


READING = {
    "all", "approximate_num_entries", "backward_all", "backward_fetch", "backward_fetch_all", "backward_fetch_range",
    "backward_find_sessions", "backward_find_sessions_range", "cache_bytes", "dirty_bytes", "entry", "entry_as_of",
    "fetch", "fetch_all", "fetch_range", "fetch_session", "find", "find_sessions", "find_sessions_ending", "forwarded",
    "find_sessions_range", "get", "is_open", "metadata", "observed_stream_time", "of_user", "peek", "prefix_scan",
    "range", "restored_incomplete", "reverse_all", "reverse_range", "staged_bytes", "stored", "timestamped", "versions",
    "visible_from",
}  # fmt: skip
"""The public methods of stores that change nothing."""


@pytest.mark.parametrize(
    "kind",
    [
        mp.KeyValueStore, mp.TimestampedKeyValueStore, mp.WindowStore, mp.TimestampedWindowStore, mp.SessionStore,
        mp.VersionedKeyValueStore,
    ],
)  # fmt: skip
def test_every_method_of_a_store_is_known_to_read_or_to_write(kind: type) -> None:
    """A new method of a store has to be named as one of both, or a global store could be changed by it."""
    methods = {name for name in dir(kind) if not name.startswith("_")}
    assert methods - READING - _WRITING == set()


def test_a_global_store_rejects_every_write_of_another_processor() -> None:
    """Reads pass; put, delete and close do not."""
    store = COUNTS.build(0, MemoryBackend())
    view = ReadOnlyStore(store)
    assert view.get("a") is None
    for name in ("put", "put_all", "put_if_absent", "delete", "flush", "close"):
        with pytest.raises(TopologyError, match=rf"{name}\(\) cannot be called on store 'counts' here"):
            getattr(view, name)()


def test_an_unknown_recording_level_is_rejected() -> None:
    """The levels are those of Kafka Streams, in any case."""
    with pytest.raises(ConfigError, match="expected 'INFO', 'DEBUG' or 'TRACE'"):
        driver_of(settings={"metrics.recording.level": "VERBOSE"})
    with driver_of(settings={"metrics.recording.level": "debug"}):
        pass
