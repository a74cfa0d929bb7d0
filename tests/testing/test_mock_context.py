"""A processor is tested alone: the context keeps what it does, and the test sets what it sees."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.errors import ConfigError, TopologyError
from millpond.testing import CapturedForward, MockProcessorContext

SECOND = timedelta(seconds=1)


class Last(mp.Processor[str, str, str, str]):
    """Keeps the last value of each key, and sends it with its predecessor; on each tick it sends all of them."""

    store: Any

    def init(self, context: mp.ProcessorContext[str, str]) -> None:
        self.store = context.get_state_store("last")
        self.ticks = context.schedule(SECOND, mp.PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: mp.Record[str, str]) -> None:
        before = self.store.get(record.key)
        self.store.put(record.key, record.value)
        self.context.forward(record.with_value(f"{before}->{record.value}"))
        if record.value == "odd":
            self.context.forward(record, "odd")
            self.context.commit()
            self.ticks.cancel()

    def tick(self, now_ms: int) -> None:
        for key, value in self.store.all():
            self.context.forward(mp.Record(key, value, now_ms))


def started() -> tuple[MockProcessorContext[str, str], Last, Any]:
    """A processor with its context and its store."""
    context: MockProcessorContext[str, str] = MockProcessorContext()
    store = context.add_state_store(mp.KeyValueStoreBuilder(name="last", key=mp.String, value=mp.String))
    return context, context.init(Last()), store


def test_forwarded_records_are_kept_with_their_child() -> None:
    """A record for all children reaches each of them; a record for one child only that one."""
    context, last, store = started()
    store.put("a", "0")
    last.process(mp.Record("a", "odd", 5))
    everywhere = CapturedForward(mp.Record("a", "0->odd", 5))
    only_odd = CapturedForward(mp.Record("a", "odd", 5), "odd")
    assert context.forwarded() == context.forwarded("odd") == [everywhere, only_odd]
    assert context.forwarded("even") == [everywhere]
    assert store.get("a") == "odd"
    context.reset_forwards()
    assert context.forwarded() == []


def test_punctuations_are_kept_and_called_by_the_test() -> None:
    """The context knows interval, clock and function, and whether the processor has cancelled it."""
    context, last, store = started()
    (scheduled,) = context.scheduled_punctuators()
    assert (scheduled.interval, scheduled.kind) == (SECOND, mp.PunctuationType.WALL_CLOCK_TIME)
    assert not scheduled.cancelled
    store.put("a", "1")
    scheduled.punctuator(1_000)
    assert [each.record for each in context.forwarded()] == [mp.Record("a", "1", 1_000)]
    last.process(mp.Record("a", "odd", 5))
    assert scheduled.cancelled


def test_a_request_to_commit_is_kept_until_it_is_reset() -> None:
    """committed() tells whether the processor has called commit()."""
    context, last, _ = started()
    last.process(mp.Record("a", "even", 5))
    assert not context.committed()
    last.process(mp.Record("a", "odd", 5))
    assert context.committed()
    context.reset_commit()
    assert not context.committed()


def test_the_test_sets_metadata_times_and_settings() -> None:
    """Without metadata the processor sees None; times that were not set raise, and name the method that sets them."""
    context = MockProcessorContext[Any, Any]({"application.id": "orders", "app.limit": "3"}, task_id=mp.TaskId(1, 2))
    assert (context.application_id, context.task_id, context.config["app.limit"]) == ("orders", (1, 2), "3")
    assert context.record_metadata() is None
    context.set_record_metadata("in", 2, 7)
    metadata = context.record_metadata()
    assert metadata is not None
    assert metadata[:3] == ("in", 2, 7)
    with pytest.raises(TopologyError, match=r"call set_current_system_time_ms\(\) first"):
        context.current_system_time_ms()
    with pytest.raises(TopologyError, match=r"call set_current_stream_time_ms\(\) first"):
        context.current_stream_time_ms()
    context.set_current_system_time_ms(10)
    context.set_current_stream_time_ms(9)
    assert (context.current_system_time_ms(), context.current_stream_time_ms()) == (10, 9)


def test_a_fixed_key_processor_is_tested_in_the_same_way() -> None:
    """It gets FixedKeyRecords, which the test makes."""

    class Upper(mp.FixedKeyProcessor[str, str, str]):
        def process(self, record: mp.FixedKeyRecord[str, str]) -> None:
            self.context.forward(record.with_value(record.value.upper()))

    context = MockProcessorContext[str, str]()
    context.init(Upper()).process(mp.FixedKeyRecord("a", "x", 5))
    assert [each.record for each in context.forwarded()] == [mp.FixedKeyRecord("a", "X", 5)]


def test_all_kinds_of_stores_are_built_in_memory() -> None:
    """Default serdes come from the configuration, as in a worker."""
    context = MockProcessorContext[str, str]({"default.key.serde": "String", "default.value.serde": "String"})
    windows = context.add_state_store(
        mp.WindowStoreBuilder(name="windows", window_size_ms=1_000, retention_ms=3_600_000)
    )
    windows.put("a", "x", 1_000)
    assert windows.fetch("a", 1_000) == "x"
    versions = context.add_state_store(
        mp.VersionedKeyValueStoreBuilder(name="versions", history_retention_ms=3_600_000)
    )
    versions.put("a", "x", 1_000)
    assert versions.get("a").value == "x"
    assert context.get_state_store("versions") is versions


def test_wrong_uses_name_the_cure() -> None:
    """Errors are raised where the processor or the test makes the mistake."""
    context = MockProcessorContext[Any, Any]()
    with pytest.raises(TopologyError, match=r"give its builder to add_state_store\(\) first"):
        context.get_state_store("last")
    with pytest.raises(TopologyError, match="needs a store builder"):
        context.add_state_store("last")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="has no key serde"):
        context.add_state_store(mp.KeyValueStoreBuilder(name="last"))
    with pytest.raises(TopologyError, match="has to forward a record"):
        context.forward(("a", 1))  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="at least a millisecond"):
        context.schedule(timedelta(), mp.PunctuationType.STREAM_TIME, print)
    with pytest.raises(TopologyError, match="needs a PunctuationType"):
        context.schedule(SECOND, "wall", print)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="give a datetime"):
        context.schedule(SECOND, mp.PunctuationType.STREAM_TIME, print, start=0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="aplication"):
        MockProcessorContext({"aplication.id": "x"})
