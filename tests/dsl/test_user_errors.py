"""An exception of user code: its record is reported and dropped at that operator, and changes no state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millpond.dsl import TimeWindows
from millpond.dsl.operators.branching import Branch
from millpond.dsl.operators.effects import Peek, Print
from millpond.dsl.operators.filtering import FilterStream
from millpond.dsl.operators.flattening import FlatMapRecords, FlatMapValues
from millpond.dsl.operators.lookup import StoreLookup
from millpond.dsl.operators.mapping import MapRecords, MapValues, SelectKey
from millpond.dsl.operators.stream_aggregation import AggregateStream, CountStream, ReduceStream
from millpond.dsl.operators.stream_join import JoinGlobalTable, JoinTable
from millpond.dsl.operators.table_aggregation import AggregateTable, ReduceTable
from millpond.dsl.operators.table_filter import FilterTable
from millpond.dsl.operators.table_grouping import RegroupTable
from millpond.dsl.operators.table_mapping import MapTableValues
from millpond.dsl.operators.table_source import MaterializedSource
from millpond.dsl.operators.window_aggregation import AggregateWindows, CountWindows, ReduceWindows
from millpond.errors import ProcessingFailed
from millpond.serdes import String
from millpond.state import KeyValueStoreBuilder, WindowStoreBuilder
from tests.dsl.support import Node, build

SECOND = timedelta(seconds=1)
TUMBLING, HOPPING = TimeWindows(2 * SECOND), TimeWindows(2 * SECOND, advance=SECOND)


def bad(*_arguments: Any) -> Any:
    raise ZeroDivisionError


def bad_items(*_arguments: Any) -> Any:
    yield "first", "item"
    raise ZeroDivisionError


RECORD = ("k", "v", 5)
CHANGE = ("k", "new", "old", 5)
REGROUPED = ("k", ("new", "old"), 5)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "filter": (FilterStream(bad), RECORD),
    "filter_not": (FilterStream(bad, negate=True), RECORD),
    "map_values": (MapValues(bad), RECORD),
    "map_values with key": (MapValues(bad, with_key=True), RECORD),
    "map": (MapRecords(bad), RECORD),
    "map to no pair": (MapRecords(lambda k, v: 3), RECORD),  # type: ignore[arg-type,return-value]
    "select_key": (SelectKey(bad), RECORD),
    "flat_map": (FlatMapRecords(bad), RECORD),
    "flat_map midway": (FlatMapRecords(bad_items), RECORD),
    "flat_map_values midway": (FlatMapValues(bad_items), RECORD),
    "peek": (Peek(bad), RECORD),
    "print": (Print("label", bad, None), RECORD),
    "branch": (Branch(((bad, "x"),), "y"), RECORD),
    "reduce": (ReduceStream("store", bad, False), RECORD),
    "aggregate": (AggregateStream("store", list, bad, False), RECORD),
    "aggregate's initializer": (AggregateStream("empty", bad, bad, False), RECORD),
    "count of a key of another type": (CountStream("store"), (3, "v", 5)),
    "window reduce": (ReduceWindows("windows", TUMBLING, bad, False), RECORD),
    "window aggregate": (AggregateWindows("windows", TUMBLING, list, bad, False), RECORD),
    "hopping aggregate": (AggregateWindows("windows", HOPPING, list, bad, False), RECORD),
    "window count of a key of another type": (CountWindows("windows", TUMBLING), (3, "v", 5)),
    "hopping count of a key of another type": (CountWindows("windows", HOPPING), (3, "v", 5)),
    "table filter": (FilterTable(bad, False, None, True), CHANGE),
    "stored table filter": (FilterTable(bad, False, "store", True), CHANGE),
    "table map_values": (MapTableValues(bad, False, None, True), CHANGE),
    "stored table map_values": (MapTableValues(bad, False, "store", True), CHANGE),
    "table group_by": (RegroupTable(bad), CHANGE),
    "table aggregate's subtractor": (AggregateTable("store", str, lambda _, v, a: a, bad, True), REGROUPED),
    "table aggregate's adder": (AggregateTable("store", str, bad, lambda _, v, a: a, True), REGROUPED),
    "table reduce": (ReduceTable("store", bad, bad, True), REGROUPED),
    "join": (JoinTable(StoreLookup("store"), bad, with_key=False, left=False), RECORD),
    "left join": (JoinTable(StoreLookup("store"), bad, with_key=True, left=True), RECORD),
    "global join's selector": (JoinGlobalTable(StoreLookup("store"), bad, bad, with_key=False, left=True), RECORD),
    "source table with a key of another type": (MaterializedSource("store", True), (3, "v", 5)),
}


def node() -> Node:
    def key_value() -> Any:
        return build(KeyValueStoreBuilder(name="store", key=String, value=String, timestamped=True))

    windows = build(
        WindowStoreBuilder(
            name="windows", key=String, value=String, timestamped=True, window_size_ms=2000, retention_ms=2000
        )
    )
    stores = {"store": key_value(), "empty": key_value(), "windows": windows}
    stores["store"].stage(b"k", "k", "there", 1, None)
    windows.stage(b"k", 0, "k", "there", 1, None)
    return Node(**stores)


@pytest.mark.parametrize("what", CASES)
def test_an_error_is_reported_and_nothing_is_forwarded_or_stored(what: str) -> None:
    """The processing handler gets the error, the state does not change, and the next record is processed."""
    body, record = CASES[what]
    bound = node()
    process: Callable[..., None] = body.bind(bound)
    for _ in range(2):
        process(*record)
    assert bound.errors
    assert bound.forwarded == []
    assert not any(bound.children.values())
    assert bound.store("store").entry(b"k") == ("there", 1)
    assert bound.store("empty").entry(b"k")[0] is None
    assert bound.store("windows").entry(b"k", 0) == ("there", 1)


@pytest.mark.parametrize("what", [name for name, (_, record) in CASES.items() if "another type" not in name])
def test_the_handlers_verdict_to_fail_passes_through(what: str) -> None:
    """The handler's ProcessingFailed passes through the operator and is not handled again."""
    body, record = CASES[what]
    bound = node()

    def fail(error: Exception, *_record: Any) -> None:
        raise ProcessingFailed("stop") from error

    bound.failed = fail  # type: ignore[assignment]
    with pytest.raises(ProcessingFailed):
        body.bind(bound)(*record)
