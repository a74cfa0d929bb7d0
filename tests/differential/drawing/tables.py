"""How operators of tables and aggregations are drawn."""

from __future__ import annotations

from typing import Any

from tests.differential.drawing.drafts import (
    Draft,
    Drawn,
    Out,
    Step,
    is_string,
    joiner,
    mapped,
    mapper,
    predicate,
    reducer,
    rule,
    selector,
    store_of,
)

# Tables

for _op in ("KTable.filter", "KTable.filterNot"):
    rule(_op, "table", "table")(lambda d, a: ({"predicate": predicate(d), **store_of(d)}, {}))


@rule("KTable.mapValues", "table", "table")
def _table_map_values(d: Draft, a: list[Out]) -> Drawn | None:
    drawn = mapped(d, a)
    return None if drawn is None else ({**drawn[0], **store_of(d)}, drawn[1])


@rule("KTable.transformValues", "table", "table")
def _transform_values(d: Draft, a: list[Out]) -> Drawn | None:
    name = d.one("glue", "null-if:a", "use") if d.stores else d.one("glue", "null-if:a")
    if name != "use":
        return {"transformer": name, **store_of(d)}, {"value": "string"}
    # Without a named store, a join that reads the table has a transformer that cannot use stores in Kafka Streams.
    store = store_of(d, always=True)
    store["store"].setdefault("name", f"store-{d.new_id()}")
    return {"transformer": name, "stores": [d.one(*d.stores)], **store}, {"value": "string"}


@rule("KTable.toStream", "table", "stream")
def _to_stream(d: Draft, a: list[Out]) -> Drawn | None:
    if d.chance(15):
        return {"selector": selector(d)}, {"key": "string", "final": False}
    return {}, {"final": False}


@rule("KTable.suppress", "table", "table")
def _suppress(d: Draft, a: list[Out]) -> Drawn | None:
    # Both sides reject it.
    if a[0].history:
        return None
    if a[0].final and d.chance(60):
        return {"until": "close"}, {"final": False}
    limits: dict[str, Any] = {}
    if d.chance(40):
        limits["records"] = d.one(1, 2, 4)
    if d.chance(20):
        limits["bytes"] = d.one(100, 300)
    if limits:
        limits["full"] = "emit" if d.chance(85) else "stop"
    logging = {"logging": False} if limits and d.chance(10) else {}
    return {"until": "limit", "limit": d.ms(), **limits, **logging}, {"final": False}


@rule("KTable.groupBy", "table", "grouped-table")
def _table_group_by(d: Draft, a: list[Out]) -> Drawn | None:
    if a[0].value == "long" and d.chance(50):
        return {"selector": selector(d)}, {"key": "string", "final": False}
    return {"selector": selector(d), "mapper": mapper(d)}, {"key": "string", "value": "string", "final": False}


def _join_tables(d: Draft, a: list[Out]) -> Drawn | None:
    if a[0].key != a[1].key:
        return None
    return {"joiner": joiner(d), **store_of(d)}, {"value": "string", "final": a[0].final and a[1].final}


for _op in ("KTable.join", "KTable.leftJoin", "KTable.outerJoin"):
    rule(_op, "table table", "table")(_join_tables)


def _join_foreign(d: Draft, a: list[Out]) -> Drawn | None:
    if not (is_string(a[0]) and is_string(a[1])):
        return None
    on = (
        {"keyed": d.one("digit", "key-or-digit")}
        if d.chance(30)
        else {"foreign": d.one("letter", "digit", "digit", "null-if-low")}
    )
    return {"joiner": joiner(d), **on, **store_of(d)}, {"value": "string", "final": False}


for _op in ("KTable.joinForeign", "KTable.leftJoinForeign"):
    rule(_op, "table table", "table")(_join_foreign)


# Aggregations


def _initial(d: Draft) -> str:
    return d.one("0", "0", "null")


def _aggregator(d: Draft) -> str:
    return d.one("plus", "plus", "with-key", "null-if-low")


def _windows(d: Draft, kinds: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    if d.wanted:
        kinds = tuple(kind for kind in kinds if (kind == "session") == d.wanted.startswith("sessions"))
    kind = d.one(*kinds)
    grace = d.ms()
    if kind == "time":
        size = d.one(10, 30, 50, 100)
        advance = d.one(size, size, max(1, size // 2), max(1, size // 3))
        return {"type": "time", "size": size, "advance": advance, "grace": grace}, f"time{size}"
    if kind == "sliding":
        difference = d.one(10, 30, 50, 100)
        return {"type": "sliding", "difference": difference, "grace": grace}, f"sliding{difference}"
    if kind == "unlimited":
        return {"type": "unlimited", "start": d.one(0, 1000, 1050)}, "unlimited"
    return {"type": "session", "gap": d.one(10, 20, 50), "grace": grace}, "session"


@rule("KGroupedStream.windowedBy", "grouped", "windowed")
def _windowed_by(d: Draft, a: list[Out]) -> Drawn | None:
    if not is_string(a[0]):
        return None
    windows, key = _windows(d, ("time", "time", "sliding", "unlimited", "session", "session"))
    kind = "sessions" if key == "session" else "windowed"
    return {"windows": windows}, {"key": key, "final": True, "kind": kind}


@rule("KGroupedStream.cogroup", "grouped", "cogrouped")
def _cogroup(d: Draft, a: list[Out]) -> Drawn | None:
    return {"aggregator": _aggregator(d)}, {"value": "string"}


@rule("CogroupedKStream.cogroup", "cogrouped grouped", "cogrouped")
def _cogroup_more(d: Draft, a: list[Out]) -> Drawn | None:
    # See COGROUPED_TWICE in rules.py.
    if a[0].key != a[1].key or any(step["of"][-1] == a[1].id for step in _of_one_object(d, a[0].id)):
        return None
    return {"aggregator": _aggregator(d)}, {}


_CHANGING = ("CogroupedKStream.cogroup", "TimeWindowedKStream.emitStrategy", "SessionWindowedKStream.emitStrategy")
"""Operators that change their object and return it."""


def _of_one_object(d: Draft, made: str) -> list[Step]:
    """Return the steps that made and changed the object that a step returns."""
    by_id = {step["id"]: step for step in d.steps}

    def first(step: Step) -> Step:
        return first(by_id[step["of"][0]]) if step["op"] in _CHANGING else step

    return [step for step in d.steps if step.get("of") and first(step) is first(by_id[made])]


@rule("CogroupedKStream.windowedBy", "cogrouped", "windowed-cogrouped")
def _windowed_by_cogrouped(d: Draft, a: list[Out]) -> Drawn | None:
    if not is_string(a[0]):
        return None
    windows, key = _windows(d, ("time", "time", "sliding", "unlimited", "session", "session"))
    kind = "sessions-cogrouped" if key == "session" else "windowed-cogrouped"
    return {"windows": windows}, {"key": key, "final": True, "kind": kind}


def _emit(d: Draft, a: list[Out]) -> Drawn | None:
    # Windows without an end never close.
    if a[0].key == "unlimited":
        return {"emit": "update"}, {}
    return {"emit": d.one("close", "close", "update")}, {"emits_final": True, "final": False}


rule("TimeWindowedKStream.emitStrategy", "windowed", "windowed")(_emit)
rule("SessionWindowedKStream.emitStrategy", "sessions", "sessions")(_emit)


def _aggregation(op: str, kind: str, *, windows: bool, cogroup: bool = False) -> None:
    def long(d: Draft, a: list[Out]) -> bool:
        # See LOST_WINDOWS in rules.py.
        return windows and any(step.get("emit") == "close" for step in _of_one_object(d, a[0].id))

    def count(d: Draft, a: list[Out]) -> Drawn | None:
        return store_of(d, windows=windows, long=long(d, a)), {"value": "long"}

    def reduce(d: Draft, a: list[Out]) -> Drawn | None:
        return {"reducer": reducer(d, a[0].value), **store_of(d, windows=windows, long=long(d, a))}, {}

    def aggregate(d: Draft, a: list[Out]) -> Drawn | None:
        merger = {"merger": d.one("plus", "with-key")} if kind.startswith("sessions") else {}
        aggregator = {} if cogroup else {"aggregator": _aggregator(d)}
        # Without serdes, the original takes the default serde of keys after a cogroup; see docs/differences.md.
        always = cogroup if windows else a[0].key != "string"
        store = store_of(d, windows=windows, always=always, long=long(d, a))
        return {"initial": _initial(d), **aggregator, **merger, **store}, {"value": "string"}

    for method, draw in (("count", count), ("reduce", reduce), ("aggregate", aggregate)):
        if method == "aggregate" or not cogroup:
            rule(f"{op}.{method}", kind, "table")(draw)


_aggregation("KGroupedStream", "grouped", windows=False)
_aggregation("TimeWindowedKStream", "windowed", windows=True)
_aggregation("SessionWindowedKStream", "sessions", windows=True)
_aggregation("CogroupedKStream", "cogrouped", windows=False, cogroup=True)
_aggregation("TimeWindowedCogroupedKStream", "windowed-cogrouped", windows=True, cogroup=True)
_aggregation("SessionWindowedCogroupedKStream", "sessions-cogrouped", windows=True, cogroup=True)


@rule("KGroupedTable.count", "grouped-table", "table")
def _table_count(d: Draft, a: list[Out]) -> Drawn | None:
    return store_of(d), {"value": "long"}


@rule("KGroupedTable.reduce", "grouped-table", "table")
def _table_reduce(d: Draft, a: list[Out]) -> Drawn | None:
    value = a[0].value
    return {"adder": reducer(d, value), "subtractor": reducer(d, value, subtract=True), **store_of(d)}, {}


@rule("KGroupedTable.aggregate", "grouped-table", "table")
def _table_aggregate(d: Draft, a: list[Out]) -> Drawn | None:
    functions = {"adder": _aggregator(d), "subtractor": d.one("minus", "minus", "null-if-low")}
    return {"initial": _initial(d), **functions, **store_of(d)}, {"value": "string"}
