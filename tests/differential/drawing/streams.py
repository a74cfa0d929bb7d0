"""How sources, operators of streams and their joins are drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.differential.drawing.drafts import (
    Draft,
    Drawn,
    Out,
    is_string,
    joiner,
    mapped,
    mapper,
    predicate,
    rule,
    selector,
    store_of,
)

# Sources


@rule("StreamsBuilder.stream", "", "stream")
def _stream(d: Draft, _: list[Out]) -> Drawn | None:
    if d.chance(10):
        return {"topics": ["in4", "in5"]}, {}
    return {"topics": [d.one("in1", "in1", "in2", "in3")]}, {}


@rule("StreamsBuilder.table", "", "table")
def _table(d: Draft, _: list[Out]) -> Drawn | None:
    if not d.free_tables:
        return None
    topic = d.free_tables.pop(0)
    return {"topic": topic, **store_of(d)}, {}


@rule("StreamsBuilder.globalTable", "", "global")
def _global_table(d: Draft, _: list[Out]) -> Drawn | None:
    if not d.free_globals:
        return None
    return {"topic": d.free_globals.pop(0)}, {}


@rule("Topology.addReadOnlyStateStore", "stream", None)
def _read_only_store(d: Draft, _: list[Out]) -> Drawn | None:
    return {"topic": f"shared{len(d.steps)}", "kind": d.one("key-value", "timestamped", "lru")}, {}


# Streams

for _op in ("KStream.filter", "KStream.filterNot"):
    rule(_op, "stream", "stream")(lambda d, a: ({"predicate": predicate(d)}, {}))
for _op in ("KStream.peek",):
    rule(_op, "stream", "stream")(lambda d, a: ({}, {}))
rule("KStream.foreach", "stream", None)(lambda d, a: ({}, {}))


@rule("KStream.selectKey", "stream", "stream")
def _select_key(d: Draft, a: list[Out]) -> Drawn | None:
    return {"selector": selector(d)}, {"key": "string"}


@rule("KStream.map", "stream", "stream")
def _map(d: Draft, a: list[Out]) -> Drawn | None:
    return {"selector": selector(d), "mapper": mapper(d)}, {"key": "string", "value": "string"}


rule("KStream.mapValues", "stream", "stream")(mapped)


@rule("KStream.flatMap", "stream", "stream")
def _flat_map(d: Draft, a: list[Out]) -> Drawn | None:
    return {"flat": d.one("none-if-low", "twice", "swapped")}, {"key": "string", "value": "string"}


@rule("KStream.flatMapValues", "stream", "stream")
def _flat_map_values(d: Draft, a: list[Out]) -> Drawn | None:
    keyed = {"keyed": True} if d.chance(30) else {}
    return {"flat": d.one("none-if-low", "twice", "swapped"), **keyed}, {"value": "string"}


@rule("KStream.split", "stream", "split")
def _split(d: Draft, a: list[Out]) -> Drawn | None:
    branches = [predicate(d) for _ in range(d.one(1, 2, 3))]
    default = d.chance(60)
    return {"branches": branches, "default": default}, {"index": len(branches) + default}


@rule("KStream.branch", "split", "stream")
def _branch(d: Draft, a: list[Out]) -> Drawn | None:
    return {"index": d.rng.randrange(a[0].index)}, {"index": 0}


@rule("KStream.merge", "stream stream", "stream")
def _merge(d: Draft, a: list[Out]) -> Drawn | None:
    return ({}, {}) if (a[0].key, a[0].value) == (a[1].key, a[1].value) else None


@rule("KStream.repartition", "stream", "stream")
def _repartition(d: Draft, a: list[Out]) -> Drawn | None:
    return {}, {}


@rule("KStream.to", "stream", None)
def _to(d: Draft, a: list[Out]) -> Drawn | None:
    by = {"by": predicate(d)} if d.chance(10) else {}
    return {"topic": f"out-{d.new_id()}", **by}, {}


@rule("KStream.toTable", "stream", "table")
def _to_table(d: Draft, a: list[Out]) -> Drawn | None:
    return store_of(d, always=not is_string(a[0]) or a[0].value != "string"), {}


rule("KStream.groupByKey", "stream", "grouped")(lambda d, a: ({}, {}))


@rule("KStream.groupBy", "stream", "grouped")
def _group_by(d: Draft, a: list[Out]) -> Drawn | None:
    return {"selector": selector(d)}, {"key": "string"}


def _processed(d: Draft, a: list[Out], names: tuple[str, ...]) -> dict[str, Any]:
    name = d.one(*names)
    if name in ("use", "read") and not d.stores:
        name = "forward"
    stores = d.rng.sample(d.stores, d.one(*range(1, len(d.stores) + 1))) if d.stores and d.chance(60) else []
    if name in ("use", "read") and not stores:
        stores = [d.stores[0]]
    if name == "header":
        name = f"header:{d.one('h1', 'h2')}"
    return {"processor": name, **({"stores": stores} if stores else {})}


@rule("KStream.process", "stream", "stream")
def _process(d: Draft, a: list[Out]) -> Drawn | None:
    names = ("forward", "rekey", "thrice", "origin", "times", "use", "read", "read", "stream-clock", "wall-clock")
    return _processed(d, a, names), {"key": "string", "value": "string"}


@rule("KStream.processValues", "stream", "stream")
def _process_values(d: Draft, a: list[Out]) -> Drawn | None:
    return _processed(d, a, ("forward", "header", "coarse", "thrice", "origin", "use", "use")), {"value": "string"}


def _joined(d: Draft) -> dict[str, Any]:
    return {"joiner": joiner(d), **({"keyed": True} if d.chance(20) else {})}


def _join_table(d: Draft, a: list[Out]) -> Drawn | None:
    if a[0].key != a[1].key:
        return None
    return {**_joined(d), **_grace(d, a)}, {"value": "string", "final": False}


def _left_join_table(d: Draft, a: list[Out]) -> Drawn | None:
    drawn = _join_table(d, a)
    if drawn is not None and "grace" in drawn[0]:
        # Without a key the original fails (rules.py), which would hide the rest of the case.
        d.steps.append({"id": d.new_id(), "op": "KStream.filter", "of": [a[0].id], "predicate": "has-key"})
        a[0] = replace(a[0], id=d.steps[-1]["id"], label="KStream.filter")
    return drawn


def _grace(d: Draft, a: list[Out]) -> dict[str, Any]:
    if not a[1].history or d.chance(30):
        return {}
    return {"grace": min(a[1].history, d.ms())}


rule("KStream.joinTable", "stream table", "stream")(_join_table)
rule("KStream.leftJoinTable", "stream table", "stream")(_left_join_table)


def _join_global(d: Draft, a: list[Out]) -> Drawn | None:
    # Mostly the keys of rows: the others are found by no record.
    by = d.one("key", "digit", "fixed:k1", "fixed:k2", selector(d))
    return {"selector": by, **_joined(d)}, {"value": "string"}


rule("KStream.joinGlobal", "stream global", "stream")(_join_global)
rule("KStream.leftJoinGlobal", "stream global", "stream")(_join_global)


def _join_stream(d: Draft, a: list[Out]) -> Drawn | None:
    if a[0].key != a[1].key:
        return None
    before, after = d.ms(), d.ms()
    if d.chance(10):
        before = -min(d.ms(), after)
    elif d.chance(10):
        after = -min(d.ms(), before)
    store: dict[str, Any] = {}
    if d.chance(30):
        store["name"] = f"store-{d.new_id()}"
    if d.chance(10):
        store["logging"] = False
    if not d.disk:
        store["in_memory"] = True
    for side in ("this_store", "other_store"):
        if d.chance(8):
            store[side] = f"store-{d.new_id()}-outer"
    windows = {"before": before, "after": after, "grace": d.ms()}
    return {"windows": windows, **({"store": store} if store else {}), **_joined(d)}, {"value": "string"}


for _op in ("KStream.join", "KStream.leftJoin", "KStream.outerJoin"):
    rule(_op, "stream stream", "stream")(_join_stream)
