"""Runs of one topology whose values are of two types, on the same rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import millpond as mp
from millpond.runtime.restoring.global_updater import GLOBAL_PARTITION
from millpond.state import Rows
from tests.dsl.table_joins.test_foreign_keys_of_changed_types import Kept

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
M = 60_000


class Old(mp.Struct):
    """The type of the first run."""

    n: int


class New(mp.Struct):
    """The type of the second run: its further field is required."""

    n: int
    unit: str


class WithDefault(mp.Struct):
    """The type with the default that the message advises."""

    n: int
    unit: str = "m"


class FrozenOld(mp.Struct, frozen=True):
    """See `Old`: stores keep such values as objects."""

    n: int


class FrozenNew(mp.Struct, frozen=True):
    """See `New`."""

    n: int
    unit: str


class FrozenWithDefault(mp.Struct, frozen=True):
    """See `WithDefault`."""

    n: int
    unit: str = "m"


TYPES = {"mutable": (Old, New, WithDefault), "frozen": (FrozenOld, FrozenNew, FrozenWithDefault)}


class Types(NamedTuple):
    """What a topology makes its values of."""

    kind: Any

    @property
    def serde(self) -> mp.Serde[Any]:
        return mp.Json(self.kind)

    def make(self, number: int) -> Any:
        return self.kind(number, "m") if "unit" in self.kind.__struct_fields__ else self.kind(number)

    def add(self, *numbers: Any) -> Any:
        return self.make(sum(each if isinstance(each, int) else each.n for each in numbers if each is not None))


Record = tuple[str, str, int, int]
"""Topic, key, number and timestamp in ms."""


class Case(NamedTuple):
    """An operator with a store."""

    store: str
    build: Callable[[mp.StreamsBuilder, Types], Any]
    first: list[Record]
    second: list[Record]
    optimization: str = "none"
    of_topic: bool = False
    """Whether the rows are those of an input topic, which an empty store would be filled with."""


class Run(mp.testing.TopologyTestDriver):
    """A run of a case on the rows of the run before."""

    def __init__(self, case: Case, kind: type, rows: Kept, handler: str = "fail", dead: str | None = "dead") -> None:
        builder, self._rows, self._case, self._kind = mp.StreamsBuilder(), rows, case, kind
        case.build(builder, Types(kind))
        config = {"application.id": "app", "processing.exception.handler": handler}
        if dead is not None:
            config["errors.dead.letter.queue.topic.name"] = dead
        topology = builder.build(optimization=case.optimization)
        stores = [each.store.name for each in topology.global_stores]
        kept = [(name, GLOBAL_PARTITION, Rows(rows.range(name, b"", b"\xff"))) for name in stores]
        super().__init__(topology, config)
        rows.write(kept, {})  # a worker finds them on its disk

    def _open_backend(self) -> Any:
        return self._rows

    def put(self, records: list[Record]) -> list[tuple[str, str | None]]:
        types, as_objects = Types(self._kind), self._case.of_topic
        for topic, key, number, timestamp in records:
            self.advance_wall_clock_time(timedelta(seconds=2))
            if as_objects and topic == "rows":
                self.create_input_topic(topic, key=mp.String, value=types.serde).pipe_input(
                    key, types.make(number), timestamp
                )
            else:
                self.create_input_topic(topic, key=mp.String, value=mp.Long).pipe_input(key, number, timestamp)
        self.advance_wall_clock_time(timedelta(seconds=2))
        return self.results()

    def results(self, topic: str = "out") -> list[tuple[str, str | None]]:
        if topic not in self.produced_topic_names():
            return []
        return self.create_output_topic(topic, key=mp.String, value=mp.String).read_key_values_to_list()


def shown(value: Any) -> str:
    return "-" if value is None else str(value.n)


def first_run(case: Case, kind: type) -> Kept:
    rows = Kept()
    with Run(case, kind, rows) as run:
        run.put(case.first)
    return rows


ONE: list[Record] = [("in", "a", 1, 0)]
AGAIN: list[Record] = [("in", "a", 2, 1)]
LATE: list[Record] = [("in", "b", 3, 5 * M)]
LATER: list[Record] = [("in", "a", 2, 1), ("in", "b", 3, 5 * M)]
