"""Operators of tables, and aggregations, as millpond has them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import millpond as mp
from millpond.serdes.windowed import time_windowed
from tests.differential.ours import functions as f
from tests.differential.ours.operators import (
    LONG,
    OPERATORS,
    STRING,
    Building,
    Handle,
    Operator,
    Step,
    ms,
    named,
    operator,
    stored,
)
from tests.differential.ours.processors import transformer

_MAX_LONG = 2**63 - 1

# Tables


@operator("KTable.filter")
def _table_filter(b: Building, s: Step) -> Handle:
    a = b.of(s)
    return replace(a, it=a.it.filter(f.made(f.PREDICATES, s["predicate"]), **stored(s, a.key, a.value), **named(s)))


@operator("KTable.filterNot")
def _table_filter_not(b: Building, s: Step) -> Handle:
    a = b.of(s)
    return replace(a, it=a.it.filter_not(f.made(f.PREDICATES, s["predicate"]), **stored(s, a.key, a.value), **named(s)))


@operator("KTable.mapValues")
def _table_map_values(b: Building, s: Step) -> Handle:
    a = b.of(s)
    options = {**stored(s, a.key, STRING), **named(s)}
    if "keyed" in s:
        it = a.it.map_values(f.made(f.KEYED, s["keyed"]), with_key=True, **options)
    else:
        it = a.it.map_values(f.made(f.MAPPERS, s["mapper"]), **options)
    return replace(a, it=it, value=STRING)


@operator("KTable.toStream")
def _to_stream(b: Building, s: Step) -> Handle:
    a = b.of(s)
    if "selector" in s:
        return Handle(a.it.to_stream(f.made(f.SELECTORS, s["selector"]), **named(s)), value=a.value)
    return replace(a, it=a.it.to_stream(**named(s)))


@operator("KTable.suppress")
def _suppress(b: Building, s: Step) -> Handle:
    a = b.of(s)
    options: dict[str, Any] = {}
    if "records" in s:
        options["max_records"] = s["records"]
    if "bytes" in s:
        options["max_bytes"] = s["bytes"]
    if "logging" in s:
        options["logging"] = False
    if s["until"] == "close":
        suppressed = mp.until_window_closes(**options)
    else:
        bounded = "records" in s or "bytes" in s
        full = "emit" if bounded and s["full"] == "emit" else "stop"
        suppressed = mp.until_time_limit(ms(s["limit"]), when_full=full, **options)
    return replace(a, it=a.it.suppress(suppressed, **named(s)))


@operator("KTable.groupBy")
def _table_group_by(b: Building, s: Step) -> Handle:
    a = b.of(s)
    selector = f.made(f.SELECTORS, s["selector"])
    mapper = f.made(f.MAPPERS, s["mapper"]) if "mapper" in s else lambda v: v
    value = STRING if "mapper" in s else a.value
    it = a.it.group_by(lambda k, v: (selector(k, v), mapper(v)), key=STRING, value=value, **named(s))
    return Handle(it, value=value)


def _join_tables(method: str) -> Operator:
    def join(b: Building, s: Step) -> Handle:
        a = b.of(s)
        joiner = f.made(f.JOINERS, s["joiner"])
        it = getattr(a.it, method)(b.of(s, 1).it, joiner, **stored(s, a.key, STRING), **named(s))
        return replace(a, it=it, value=STRING)

    return join


def _join_foreign(method: str) -> Operator:
    def join(b: Building, s: Step) -> Handle:
        a = b.of(s)
        on = f.made(f.FOREIGN_KEYED, s["keyed"]) if "keyed" in s else f.made(f.FOREIGN, s["foreign"])
        joiner = f.made(f.JOINERS, s["joiner"])
        options = {**stored(s, a.key, STRING), **named(s)}
        if "partitioned" in s:
            options |= {"partitioner": _by_length, "other_partitioner": lambda *_: None}
        it = getattr(a.it, method)(b.of(s, 1).it, joiner, on=on, **options)
        return replace(a, it=it, value=STRING)

    return join


def _by_length(_topic: str, key: Any, value: Any, partitions: int) -> set[int]:
    return {(len(f.text(key)) + (value is not None)) % partitions}


@operator("KTable.transformValues")
def _transform_values(b: Building, s: Step) -> Handle:
    a = b.of(s)
    stores = s.get("stores", [])
    supplier = transformer(s["transformer"], stores)
    it = a.it.transform_values(supplier, stores=stores, **stored(s, a.key, STRING), **named(s))
    return replace(a, it=it, value=STRING)


OPERATORS["KTable.joinForeign"] = _join_foreign("join")
OPERATORS["KTable.leftJoinForeign"] = _join_foreign("left_join")
OPERATORS["KTable.join"] = _join_tables("join")
OPERATORS["KTable.leftJoin"] = _join_tables("left_join")
OPERATORS["KTable.outerJoin"] = _join_tables("outer_join")


# Aggregations


def _windows(w: dict[str, Any], key: Any) -> tuple[Any, Any]:
    match w["type"]:
        case "time":
            windows = mp.TimeWindows(ms(w["size"]), advance=ms(w["advance"]), grace=ms(w["grace"]))
            return windows, time_windowed(key, w["size"])
        case "sliding":
            return mp.SlidingWindows(ms(w["difference"]), ms(w["grace"])), time_windowed(key, w["difference"])
        case "unlimited":
            start = datetime.fromtimestamp(0, UTC) + ms(w["start"])
            return mp.UnlimitedWindows.of().start_on(start), time_windowed(key, _MAX_LONG)
        case "session":
            return mp.SessionWindows(ms(w["gap"]), ms(w["grace"])), mp.SessionWindowedSerde(key)
        case other:
            raise ValueError(f"unknown windows {other}")


@operator("KGroupedStream.windowedBy")
def _windowed_by(b: Building, s: Step) -> Handle:
    a = b.of(s)
    windows, key = _windows(s["windows"], a.key)
    return Handle(a.it.windowed_by(windows), key, a.value, a.key)


@operator("KGroupedStream.cogroup")
def _cogroup(b: Building, s: Step) -> Handle:
    a = b.of(s)
    return replace(a, it=a.it.cogroup(f.made(f.AGGREGATORS, s["aggregator"])), value=STRING)


@operator("CogroupedKStream.cogroup")
def _cogroup_more(b: Building, s: Step) -> Handle:
    a = b.of(s)
    return replace(a, it=a.it.cogroup(b.of(s, 1).it, f.made(f.AGGREGATORS, s["aggregator"])))


OPERATORS["CogroupedKStream.windowedBy"] = _windowed_by


def _aggregate_cogrouped(b: Building, s: Step) -> Handle:
    a = b.of(s)
    initial = f.initial(s["initial"])
    mergers = [f.made(f.AGGREGATORS, s["merger"])] if "merger" in s else []
    it = a.it.aggregate(lambda: initial, *mergers, **stored(s, a.plain or a.key, STRING), **named(s))
    return replace(a, it=it, value=STRING)


for _owner in ("CogroupedKStream", "TimeWindowedCogroupedKStream", "SessionWindowedCogroupedKStream"):
    OPERATORS[f"{_owner}.aggregate"] = _aggregate_cogrouped


def _emit_strategy(b: Building, s: Step) -> Handle:
    a = b.of(s)
    emit = mp.EmitStrategy
    strategy = emit.on_window_close() if s["emit"] == "close" else emit.on_window_update()
    return replace(a, it=a.it.emit_strategy(strategy))


OPERATORS["TimeWindowedKStream.emitStrategy"] = _emit_strategy
OPERATORS["SessionWindowedKStream.emitStrategy"] = _emit_strategy


def _aggregation(method: str, *, table: bool = False) -> Operator:
    def aggregate(b: Building, s: Step) -> Handle:
        a = b.of(s)
        plain = a.plain or a.key
        match method:
            case "count":
                return replace(a, it=a.it.count(**stored(s, plain, LONG), **named(s)), value=LONG)
            case "reduce":
                fields = ("adder", "subtractor") if table else ("reducer",)
                reducers = [f.made(f.REDUCERS, s[each]) for each in fields]
                options = {"key": plain, "value": a.value} if "name" in s and a.plain is None else {}
                options |= stored(s, plain, a.value)
                return replace(a, it=a.it.reduce(*reducers, **options, **named(s)))
            case _:
                fields = ("adder", "subtractor") if table else ("aggregator", "merger")
                functions = [f.made(f.AGGREGATORS, s[each]) for each in fields if each in s]
                initial = f.initial(s["initial"])
                options = {"key": plain, "value": STRING} if "name" in s and a.plain is None and not table else {}
                options |= stored(s, plain, STRING)
                it = a.it.aggregate(lambda: initial, *functions, **options, **named(s))
                return replace(a, it=it, value=STRING)

    return aggregate


for _owner in ("KGroupedStream", "TimeWindowedKStream", "SessionWindowedKStream", "KGroupedTable"):
    for _method in ("count", "reduce", "aggregate"):
        OPERATORS[f"{_owner}.{_method}"] = _aggregation(_method, table=_owner == "KGroupedTable")
