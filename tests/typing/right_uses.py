"""Correct uses of the DSL: type checkers accept this file and infer exactly these types."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, TypeGuard, assert_type

import millpond as mp


class Flight(mp.Struct):
    carrier: str
    origin: str
    dep_delay: float | None
    departed: datetime


class Airline(mp.Struct):
    name: str


class Delay(mp.Struct):
    flights: int = 0
    minutes: float = 0.0


def departure(flight: Flight) -> datetime:
    return flight.departed.astimezone(UTC)


def name_carrier(flight: Flight, airline: Airline) -> tuple[str, Flight]:
    return airline.name, flight


def add_flight(_origin: str, flight: Flight, delay: Delay) -> Delay:
    return Delay(delay.flights + 1, delay.minutes + (flight.dep_delay or 0.0))


def add_word(_origin: str, word: str, delay: Delay) -> Delay:
    return Delay(delay.flights, delay.minutes + len(word))


def add_or_delete(_origin: str, flight: Flight, delay: Delay) -> Delay | None:
    return None if flight.dep_delay is None else Delay(delay.flights + 1, delay.minutes + flight.dep_delay)


def delete_by_word(_origin: str, word: str, delay: Delay) -> Delay | None:
    return delay if word else None


def merge_delays(_origin: str, one: Delay, two: Delay) -> Delay:
    return Delay(one.flights + two.flights, one.minutes + two.minutes)


def no_names() -> set[str]:
    return set()


def add_name(_length: int, name: str, names: set[str]) -> set[str]:
    return names | {name}


def remove_name_or_delete(_length: int, name: str, names: set[str]) -> set[str] | None:
    return names - {name} or None


def remove_name(_length: int, name: str, names: set[str]) -> set[str]:
    return names - {name}


def is_delayed(_key: str, delay: float | None) -> TypeGuard[float]:
    return delay is not None


def is_text(_key: str, value: str | int) -> TypeGuard[str]:
    return isinstance(value, str)


def odd_or_text(number: int) -> int | str:
    return number if number % 2 else str(number)


def length_or_none(name: str) -> int | None:
    return len(name) or None


def delay_or_none(flight: Flight) -> float | None:
    return flight.dep_delay


builder = mp.StreamsBuilder()
flights = builder.stream("flights", key=mp.String, value=mp.Json(Flight), timestamp=departure)
assert_type(flights, mp.KStream[str, Flight])
assert_type(builder.stream(re.compile("flights-.*"), key=mp.Long, value=mp.Bytes), mp.KStream[int, bytes])

# A stream that uses the configured default serdes says its types by annotation.
defaults: mp.KStream[str, str] = builder.stream("words")
default_table: mp.KTable[str, int] = builder.table("totals")

airlines = builder.global_table("airlines", key=mp.String, value=mp.Json(Airline))
assert_type(airlines, mp.GlobalKTable[str, Airline])
planes = builder.table("planes", key=mp.String, value=mp.Json(Airline), store="planes")
assert_type(planes, mp.KTable[str, Airline])

# Stateless operators
assert_type(flights.filter(lambda key, flight: flight.carrier == key), mp.KStream[str, Flight])
assert_type(flights.map_values(lambda flight: flight.dep_delay).filter(is_delayed), mp.KStream[str, float])
assert_type(flights.filter_not(lambda _, flight: flight.dep_delay), mp.KStream[str, Flight])
assert_type(flights.map_values(lambda flight: flight.dep_delay), mp.KStream[str, float | None])
assert_type(flights.map_values(lambda key, flight: key + flight.carrier, with_key=True), mp.KStream[str, str])
assert_type(flights.map(lambda _, flight: (len(flight.carrier), flight.origin)), mp.KStream[int, str])
assert_type(flights.select_key(lambda _, flight: len(flight.carrier), key=mp.Int), mp.KStream[int, Flight])
assert_type(flights.flat_map_values(lambda flight: [flight.carrier, flight.origin]), mp.KStream[str, str])
assert_type(flights.flat_map_values(lambda key, flight: {len(key)}, with_key=True), mp.KStream[str, int])
assert_type(flights.flat_map(lambda key, flight: [(len(key), key), (0, flight.origin)]), mp.KStream[int, str])


async def ask(flight: Flight) -> float:
    return flight.dep_delay or 0.0


async def both(record: mp.Record[str, Flight]) -> list[mp.Record[int, str]]:
    return [mp.Record(1, record.key, 0)]


assert_type(flights.map_batches(lambda batch: [flight.origin for flight in batch]), mp.KStream[str, str])
assert_type(
    flights.map_batches(lambda batch: [record.timestamp for record in batch], batch="records"), mp.KStream[str, int]
)
assert_type(flights.map_batches(lambda table: table, batch="arrow", value=mp.Double), mp.KStream[str, float])
assert_type(flights.map_values_async(ask, max_concurrency=8), mp.KStream[str, float])
assert_type(flights.process_async(both, timeout=timedelta(seconds=1)), mp.KStream[int, str])
assert_type(flights.peek(lambda key, _: len(key)), mp.KStream[str, Flight])
assert_type(flights.merge(flights), mp.KStream[str, Flight])
assert_type(flights.repartition(partitions=3), mp.KStream[str, Flight])
branches = flights.split().branch(lambda _, flight: flight.dep_delay is None, name="on-time").default_branch()
assert_type(branches, dict[str, mp.KStream[str, Flight]])
flights.foreach(lambda _key, flight: len(flight.carrier))
flights.print(lambda key, flight: f"{key} {flight.carrier}")
flights.to("copy", partitioner=lambda topic, key, value, partitions: {0} if key else None)
flights.to(lambda key, flight, context: f"{context.topic}-{flight.carrier}")

# Joins
joined = flights.join(airlines, on=lambda _, flight: flight.carrier, with_=name_carrier)
assert_type(joined, mp.KStream[str, tuple[str, Flight]])
assert_type(flights.join(planes, lambda flight, plane: flight.origin + plane.name), mp.KStream[str, str])
assert_type(flights.join(planes, lambda key, flight, plane: len(key), with_key=True), mp.KStream[str, int])
assert_type(
    flights.left_join(planes, lambda flight, plane: plane.name if plane else flight.carrier), mp.KStream[str, str]
)
assert_type(
    flights.left_join(airlines, lambda flight, airline: airline is None, on=lambda _, flight: flight.carrier),
    mp.KStream[str, bool],
)
near = mp.JoinWindows.of_time_difference_with_no_grace(timedelta(hours=1))
delayed = flights.map_values(lambda flight: len(flight.origin), value=mp.Int)
assert_type(flights.join(delayed, lambda flight, by: flight.origin * by, near), mp.KStream[str, str])
assert_type(flights.left_join(delayed, lambda flight, by: by or len(flight.origin), near), mp.KStream[str, int])
assert_type(
    flights.left_join(delayed, lambda key, flight, by: (key, by), near, with_key=True, other_value=mp.Int),
    mp.KStream[str, tuple[str, int | None]],
)
assert_type(
    flights.outer_join(delayed, lambda flight, by: None if flight is None else by, near, store="both"),
    mp.KStream[str, int | None],
)
assert_type(
    flights.outer_join(delayed, lambda key, flight, by: key, near, with_key=True, name="both"), mp.KStream[str, str]
)

versioned = builder.table("planes", key=mp.String, value=mp.String, store="p", history_retention=timedelta(hours=1))
assert_type(
    flights.join(versioned, lambda flight, plane: flight.origin + plane, grace=timedelta(minutes=5)),
    mp.KStream[str, str],
)
assert_type(
    flights.left_join(versioned, lambda key, _, plane: (key, plane), with_key=True, grace=timedelta(minutes=5)),
    mp.KStream[str, tuple[str, str | None]],
)

# Aggregations
grouped = flights.group_by(lambda _, flight: flight.origin, key=mp.String)
assert_type(grouped, mp.KGroupedStream[str, Flight])
assert_type(flights.group_by_key(), mp.KGroupedStream[str, Flight])
assert_type(grouped.count(), mp.KTable[str, int])
assert_type(grouped.count(store="counts", caching=False, logging={"segment.bytes": "1048576"}), mp.KTable[str, int])
assert_type(grouped.reduce(lambda one, _: one), mp.KTable[str, Flight])
assert_type(grouped.aggregate(Delay, add_flight, value=mp.Json(Delay)), mp.KTable[str, Delay])
assert_type(grouped.aggregate(lambda: 0, lambda _, flight, total: total + len(flight.origin)), mp.KTable[str, int])

hourly = grouped.windowed_by(mp.TimeWindows(timedelta(hours=1), grace=timedelta(minutes=10)))
assert_type(hourly, mp.TimeWindowedKStream[str, Flight])
assert_type(hourly.count(retention=timedelta(days=1)), mp.KTable[mp.Windowed[str], int])
delays = hourly.aggregate(Delay, add_flight, store="delays", value=mp.Json(Delay))
assert_type(delays, mp.KTable[mp.Windowed[str], Delay])
final = delays.suppress(mp.until_window_closes())
assert_type(final, mp.KTable[mp.Windowed[str], Delay])
assert_type(final.to_stream(), mp.KStream[mp.Windowed[str], Delay])
assert_type(final.to_stream().select_key(lambda windowed, _: windowed.key), mp.KStream[str, Delay])
assert_type(final.to_stream(lambda windowed, _: windowed.key, name="keyed"), mp.KStream[str, Delay])

close = mp.EmitStrategy.on_window_close()
assert_type(close, mp.EmitStrategy)
assert_type(hourly.emit_strategy(close), mp.TimeWindowedKStream[str, Flight])
assert_type(hourly.emit_strategy(close).count(), mp.KTable[mp.Windowed[str], int])
sessions = grouped.windowed_by(mp.SessionWindows(timedelta(hours=1))).emit_strategy(close)
assert_type(sessions, mp.SessionWindowedKStream[str, Flight])

words = builder.stream("words", key=mp.String, value=mp.String)
cogrouped = grouped.cogroup(add_flight).cogroup(words.group_by_key(), add_word)
assert_type(cogrouped, mp.CogroupedKStream[str, Delay])
assert_type(cogrouped.aggregate(Delay, name="all", store="all", value=mp.Json(Delay)), mp.KTable[str, Delay])
cogrouped_hours = cogrouped.windowed_by(mp.TimeWindows(timedelta(hours=1)))
assert_type(cogrouped_hours, mp.TimeWindowedCogroupedKStream[str, Delay])
assert_type(cogrouped_hours.aggregate(Delay, value=mp.Json(Delay)), mp.KTable[mp.Windowed[str], Delay])
cogrouped_sessions = cogrouped.windowed_by(mp.SessionWindows(timedelta(hours=1)))
assert_type(cogrouped_sessions, mp.SessionWindowedCogroupedKStream[str, Delay])
assert_type(
    cogrouped_sessions.aggregate(Delay, merge_delays, retention=timedelta(1)), mp.KTable[mp.Windowed[str], Delay]
)

# Tables
assert_type(flights.to_table(store="latest"), mp.KTable[str, Flight])
assert_type(
    flights.to_table(store="history", history_retention=timedelta(days=1), segment_interval=timedelta(hours=1)),
    mp.KTable[str, Flight],
)
assert_type(planes.filter(lambda _, plane: plane.name != ""), mp.KTable[str, Airline])
assert_type(planes.map_values(lambda plane: len(plane.name)), mp.KTable[str, int])
assert_type(planes.map_values(lambda plane: len(plane.name), value=mp.Int, store="lengths"), mp.KTable[str, int])
assert_type(planes.map_values(lambda key, plane: key + plane.name, with_key=True), mp.KTable[str, str])
assert_type(planes.suppress(mp.until_time_limit(timedelta(seconds=5), max_records=10)), mp.KTable[str, Airline])
assert_type(planes.join(default_table, lambda plane, total: plane.name * total), mp.KTable[str, str])
assert_type(
    planes.join(default_table, lambda key, _, total: len(key) + total, with_key=True, store="sums", value=mp.Int),
    mp.KTable[str, int],
)
assert_type(planes.left_join(default_table, lambda plane, total: total or len(plane.name)), mp.KTable[str, int])
assert_type(
    planes.left_join(default_table, lambda key, _, total: key if total is None else key * total, with_key=True),
    mp.KTable[str, str],
)
assert_type(
    planes.outer_join(default_table, lambda plane, total: 0 if plane is None else total or 0, name="both"),
    mp.KTable[str, int],
)
assert_type(
    planes.outer_join(default_table, lambda key, plane, _: key if plane is None else plane.name, with_key=True),
    mp.KTable[str, str],
)
assert_type(
    planes.join(default_table, lambda plane, total: plane.name * total, on=lambda plane: plane.name),
    mp.KTable[str, str],
)
assert_type(
    planes.join(default_table, lambda plane, total: total, on=lambda key, plane: key or None, store="totals-of-planes"),
    mp.KTable[str, int],
)
assert_type(
    planes.left_join(
        default_table,
        lambda plane, total: 0 if total is None else len(plane.name),
        on=lambda plane: plane.name,
        partitioner=lambda topic, key, value, partitions: {0},
        other_partitioner=lambda topic, key, value, partitions: None,
        name="totals-by-name",
        value=mp.Int,
    ),
    mp.KTable[str, int],
)
assert_type(planes.left_join(default_table, lambda plane, total: total, on=lambda key, _: key), mp.KTable[str, int])

# None deletes the row: the result has none, whatever partners it is joined with, and a left join's partner may be None.
rows = planes.map_values(lambda plane: len(plane.name) or None, value=mp.Int, store="rows")
assert_type(rows, mp.KTable[str, int])
assert_type(planes.map_values(lambda plane: plane.name).map_values(length_or_none), mp.KTable[str, int])
assert_type(planes.map_values(lambda key, plane: plane if key else None, with_key=True), mp.KTable[str, Airline])
assert_type(rows.join(default_table, lambda row, total: row + total), mp.KTable[str, int])
assert_type(rows.join(default_table, lambda row, total: row if total else None), mp.KTable[str, int])
assert_type(rows.left_join(default_table, lambda row, total: (row, total)), mp.KTable[str, tuple[int, int | None]])
assert_type(
    rows.outer_join(default_table, lambda row, total: (row, total), name="rows-or-totals"),
    mp.KTable[str, tuple[int | None, int | None]],
)
assert_type(flights.left_join(rows, lambda _, row: row), mp.KStream[str, int | None])
# A union of other types than None: mypy takes it from an annotation, or from the serde.
number_or_text: mp.KTable[str, int | str] = rows.map_values(odd_or_text)
number_or_text_serde: mp.Serde[int | str] = mp.Json(int | str)
assert_type(rows.map_values(odd_or_text, value=number_or_text_serde), mp.KTable[str, int | str])
assert_type(number_or_text.filter(is_text), mp.KTable[str, str])
assert_type(number_or_text.filter(is_text, value=mp.String, store="texts"), mp.KTable[str, str])
assert_type(number_or_text.filter_not(is_text), mp.KTable[str, int | str])


class NameOf(mp.ValueTransformerWithKey[str, Airline, str]):
    def init(self, context: mp.ValueTransformerContext) -> None:
        self.seen = context.get_state_store("seen", mp.KeyValueStore[str, int])

    def transform(self, key: str, value: Airline | None) -> str | None:
        return None if value is None else f"{value.name} {self.seen.get(key)}"


assert_type(planes.transform_values(NameOf, stores=["seen"]), mp.KTable[str, str])
assert_type(planes.transform_values(lambda: NameOf(), store="names", value=mp.String), mp.KTable[str, str])
regrouped = planes.group_by(lambda key, plane: (len(plane.name), key), key=mp.Int, value=mp.String)
assert_type(regrouped, mp.KGroupedTable[int, str])
assert_type(regrouped.count(), mp.KTable[int, int])
assert_type(regrouped.reduce(lambda one, two: one + two, lambda one, two: one.removesuffix(two)), mp.KTable[int, str])
assert_type(
    regrouped.aggregate(no_names, add_name, remove_name),
    mp.KTable[int, set[str]],
)

# None deletes the row: a function may return it, and never gets it as the aggregate.
assert_type(grouped.aggregate(Delay, add_or_delete, value=mp.Json(Delay)), mp.KTable[str, Delay])
assert_type(
    grouped.aggregate(lambda: 0, lambda _, flight, total: total + len(flight.origin) or None, value=mp.Long),
    mp.KTable[str, int],
)
assert_type(grouped.reduce(lambda one, two: None if one == two else two), mp.KTable[str, Flight])
assert_type(hourly.aggregate(Delay, add_or_delete), mp.KTable[mp.Windowed[str], Delay])
assert_type(hourly.reduce(lambda one, two: None if one == two else two), mp.KTable[mp.Windowed[str], Flight])
assert_type(sessions.aggregate(Delay, add_or_delete, merge_delays), mp.KTable[mp.Windowed[str], Delay])
assert_type(sessions.reduce(lambda one, two: None if one == two else two), mp.KTable[mp.Windowed[str], Flight])
mixed = grouped.cogroup(add_or_delete).cogroup(words.group_by_key(), delete_by_word)
assert_type(mixed, mp.CogroupedKStream[str, Delay])
assert_type(mixed.aggregate(Delay, value=mp.Json(Delay)), mp.KTable[str, Delay])
assert_type(regrouped.aggregate(no_names, add_name, remove_name_or_delete), mp.KTable[int, set[str]])
assert_type(
    regrouped.reduce(lambda one, two: one + two, lambda one, two: one.removesuffix(two) or None), mp.KTable[int, str]
)

# None is a tombstone, and no serde gets it: that of V writes a stream of `V | None`, and the table of one has no None.
maybe_delays = flights.map_values(delay_or_none)
assert_type(maybe_delays, mp.KStream[str, float | None])
maybe_delays.to("delays", value=mp.Double)
maybe_delays.to(lambda key, delay, context: f"delays-{key}", key=mp.String, value=mp.Double, name="delays")
maybe_delays.to("delays")
assert_type(maybe_delays.to_table(value=mp.Double), mp.KTable[str, float])
assert_type(maybe_delays.to_table(key=mp.String, value=mp.Double, store="delays"), mp.KTable[str, float])
assert_type(maybe_delays.to_table(), mp.KTable[str, float | None])
assert_type(maybe_delays.repartition(value=mp.Double, partitions=3), mp.KStream[str, float | None])
assert_type(maybe_delays.group_by_key(value=mp.Double), mp.KGroupedStream[str, float])
assert_type(maybe_delays.group_by(lambda key, _: len(key), key=mp.Int, value=mp.Double), mp.KGroupedStream[int, float])
assert_type(maybe_delays.group_by(lambda key, _: len(key), key=mp.Int), mp.KGroupedStream[int, float | None])
assert_type(maybe_delays.group_by_key(value=mp.Double).reduce(max), mp.KTable[str, float])
some_table: mp.KTable[str, float] = flights.map_values(lambda flight: flight.dep_delay).to_table(value=mp.Double)


# Streams of which types are not known
def write_anything(stream: mp.KStream[str, Any]) -> None:
    stream.to("anything", value=mp.Double)
    assert_type(stream.to_table(), mp.KTable[str, Any])
    assert_type(stream.repartition(), mp.KStream[str, Any])
    assert_type(stream.group_by_key(), mp.KGroupedStream[str, Any])
    assert_type(stream.group_by(lambda key, _: key), mp.KGroupedStream[str, Any])


# Processor API
class Lengths(mp.Processor[str, Flight, str, int]):
    def process(self, record: mp.Record[str, Flight]) -> None:
        self.context.forward(record.with_value(len(record.value.carrier)))


class Stored(mp.Processor[str, Flight, str, int]):
    def init(self, context: mp.ProcessorContext[str, int]) -> None:
        assert_type(context.get_state_store("counts", mp.KeyValueStore[str, int]), mp.KeyValueStore[str, int])
        assert_type(context.get_state_store("hours", mp.WindowStore[str, int]).fetch("a", 0), int | None)
        context.metrics.counter("flights", tags={"kind": "late"}).inc()
        assert_type(context.key_serde, mp.Serde[Any] | None)

    def process(self, record: mp.Record[str, Flight]) -> None:
        pass


class Origins(mp.FixedKeyProcessor[str, Flight, str]):
    def process(self, record: mp.FixedKeyRecord[str, Flight]) -> None:
        self.context.forward(record.with_value(record.value.origin))


class Counted(mp.Processor[str, Flight, str, int]):
    stores = (mp.KeyValueStoreBuilder(name="counts", key=mp.String, value=mp.Long),)

    def process(self, record: mp.Record[str, Flight]) -> None:
        pass


# A processor that takes more than a stream has is right for it: here tombstones, or keys of any type.
class Changes(mp.Processor[str, Flight | None, str, int | None]):
    def process(self, record: mp.Record[str, Flight | None]) -> None:
        if record.value is None:
            self.context.forward(record.with_value(None))
            return
        length = record.with_value(len(record.value.carrier))
        assert_type(length, mp.Record[str, int])
        self.context.forward(length)


class ChangedOrigins(mp.FixedKeyProcessor[object, Flight | None, str | None]):
    def process(self, record: mp.FixedKeyRecord[object, Flight | None]) -> None:
        origin = record.with_value("" if record.value is None else record.value.origin)
        self.context.forward(origin)


class Airlines(mp.Processor[str, Airline | None, None, None]):
    def process(self, record: mp.Record[str, Airline | None]) -> None:
        pass


async def origin_or_none(record: mp.Record[str, Flight | None]) -> mp.Record[str, str]:
    return record.with_value("" if record.value is None else record.value.origin)


assert_type(flights.process(Changes), mp.KStream[str, int | None])
assert_type(flights.process(Changes, value=mp.Int), mp.KStream[str, int | None])
assert_type(flights.process(lambda: Changes(), value=mp.Int).to_table(value=mp.Int), mp.KTable[str, int])
assert_type(flights.process_values(ChangedOrigins), mp.KStream[str, str | None])
assert_type(flights.process_values(lambda: ChangedOrigins(), value=mp.String), mp.KStream[str, str | None])
assert_type(flights.process_async(origin_or_none), mp.KStream[str, str])
airline_store = mp.KeyValueStoreBuilder(name="a", key=mp.String, value=mp.Json(Airline), logging=False)
builder.add_global_store(airline_store, "airlines", Airlines, key=mp.String, value=mp.Json(Airline))

context = mp.testing.MockProcessorContext[str, int]()
context.add_state_store(Counted.stores[0])
assert_type(context.init(Counted()), Counted)
assert_type(flights.process(Lengths, stores=["counts"]), mp.KStream[str, int])
assert_type(flights.process_values(Origins), mp.KStream[str, str])
assert_type(mp.Record("key", 1, 0).time, datetime)
assert_type(mp.Record("key", 1, 0).with_key(2).with_value(b""), mp.Record[int, bytes])
topology: mp.Topology = builder.build()
topology.add_processor("lengths", Lengths, "KSTREAM-SOURCE-0000000000")
topology.add_processor("changes", Changes, "KSTREAM-SOURCE-0000000000")
anything: Any = topology.describe()


# Small applications
app = mp.App("small")


@app.stream("flights", key=mp.String, value=mp.Json(Flight))
def carriers(stream: mp.KStream[str, Flight]) -> None:
    stream.map_values(lambda flight: flight.carrier).to("carriers", value=mp.String)


@app.map_values("flights", to="delays", key=mp.String, value=mp.Json(Flight), result=mp.Double)
async def delay(flight: Flight) -> float:
    return flight.dep_delay or 0.0


# Reads of stores in the process of a worker
def read(worker: mp.Worker) -> None:
    assert_type(worker.store("counts", mp.KeyValueStore[str, int]), mp.ReadOnlyKeyValueStore[str, int])
    hours = worker.store("hours", mp.TimestampedWindowStore[str, int], partition=1, stale=True)
    assert_type(hours, mp.ReadOnlyWindowStore[str, mp.ValueAndTimestamp[int]])
    assert_type(hours.fetch("a", 0), mp.ValueAndTimestamp[int] | None)
