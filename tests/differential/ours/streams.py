"""Sources, operators of streams, and their joins, as millpond has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import millpond as mp
from tests.differential.ours import functions as f
from tests.differential.ours.operators import (
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
from tests.differential.ours.processors import any_key, filler, fixed_key, looker

# Sources


def _source(step: Step) -> dict[str, Any]:
    return {"timestamp": _Halved()} if "halved" in step else {}


class _Halved:
    def extract(self, record: Any, partition_time: int) -> int:
        return record.timestamp // 2


@operator("StreamsBuilder.stream")
def _stream(b: Building, s: Step) -> Handle:
    topics = [re.compile(s["pattern"])] if "pattern" in s else s["topics"]
    return Handle(b.builder.stream(*topics, key=STRING, value=STRING, **_source(s), **named(s)))


@operator("StreamsBuilder.table")
def _table(b: Building, s: Step) -> Handle:
    options = {"key": STRING, "value": STRING, **stored(s, STRING, STRING)}
    return Handle(b.builder.table(s["topic"], **options, **_source(s), **named(s)))


@operator("StreamsBuilder.globalTable")
def _global_table(b: Building, s: Step) -> Handle:
    options = {"key": STRING, "value": STRING, **stored(s, STRING, STRING)}
    return Handle(b.builder.global_table(s["topic"], **options, **_source(s), **named(s)))


@operator("StreamsBuilder.addStateStore")
def _add_state_store(b: Building, s: Step) -> None:
    common: dict[str, Any] = {"name": s["name"], "key": STRING, "value": STRING, "persistent": "in_memory" not in s}
    if "caching" in s:
        common["caching"] = True
    match s["kind"]:
        case "key-value":
            b.builder.add_state_store(mp.KeyValueStoreBuilder(**common))
        case "timestamped":
            b.builder.add_state_store(mp.KeyValueStoreBuilder(**common, timestamped=True))
        case "lru":
            b.builder.add_state_store(mp.KeyValueStoreBuilder(**common, max_entries=s["lru"]))
        case "versioned":
            b.builder.add_state_store(mp.VersionedKeyValueStoreBuilder(**common, history_retention_ms=s["retention"]))
        case "window":
            b.builder.add_state_store(mp.WindowStoreBuilder(**common, retention_ms=s["retention"], window_size_ms=10))
        case "session":
            b.builder.add_state_store(mp.SessionStoreBuilder(**common, retention_ms=s["retention"]))
        case other:
            raise ValueError(f"unknown kind of store {other}")


@operator("Topology.addReadOnlyStateStore")
def _add_read_only_state_store(b: Building, s: Step) -> None:
    """A store that a topic fills, and a processor that looks up the key of each record of a stream in it."""
    name, own = f"shared-{s['id']}", {"timestamped": {"timestamped": True}, "lru": {"max_entries": 2}}
    store = mp.KeyValueStoreBuilder(name=name, key=STRING, value=STRING, persistent=False, **own.get(s["kind"], {}))
    above, look = f"above-{s['id']}", f"look-{s['id']}"
    b.of(s).it.peek(lambda _key, _value: None, name=above)

    def add(topology: mp.Topology) -> None:
        topology.add_read_only_state_store(
            store, s["topic"], filler(name), source_name=f"source-{s['id']}", processor_name=f"fill-{s['id']}",
            key=STRING, value=STRING,
        )  # fmt: skip
        topology.add_processor(look, looker(name), above, stores=[name])
        topology.add_sink(f"sink-{s['id']}", "out", look, key=STRING, value=STRING)

    b.added.append(add)


# Streams


@operator("KStream.filter")
def _filter(b: Building, s: Step) -> Handle:
    a = b.of(s)
    return replace(a, it=a.it.filter(f.made(f.PREDICATES, s["predicate"]), **named(s)))


@operator("KStream.filterNot")
def _filter_not(b: Building, s: Step) -> Handle:
    a = b.of(s)
    return replace(a, it=a.it.filter_not(f.made(f.PREDICATES, s["predicate"]), **named(s)))


@operator("KStream.selectKey")
def _select_key(b: Building, s: Step) -> Handle:
    a = b.of(s)
    return Handle(a.it.select_key(f.made(f.SELECTORS, s["selector"]), key=STRING, **named(s)), value=a.value)


@operator("KStream.map")
def _map(b: Building, s: Step) -> Handle:
    selector, mapper = f.made(f.SELECTORS, s["selector"]), f.made(f.MAPPERS, s["mapper"])
    return Handle(
        b.of(s).it.map(lambda k, v: (selector(k, v), mapper(v)), key=STRING, value=STRING, **named(s)),
    )


@operator("KStream.mapValues")
def _map_values(b: Building, s: Step) -> Handle:
    a = b.of(s)
    if "keyed" in s:
        it = a.it.map_values(f.made(f.KEYED, s["keyed"]), with_key=True, value=STRING, **named(s))
    else:
        it = a.it.map_values(f.made(f.MAPPERS, s["mapper"]), value=STRING, **named(s))
    return replace(a, it=it, value=STRING)


@operator("KStream.flatMap")
def _flat_map(b: Building, s: Step) -> Handle:
    return Handle(b.of(s).it.flat_map(f.made(f.FLAT, s["flat"]), key=STRING, value=STRING, **named(s)))


@operator("KStream.flatMapValues")
def _flat_map_values(b: Building, s: Step) -> Handle:
    a, flat = b.of(s), f.made(f.FLAT, s["flat"])
    if "keyed" in s:
        it = a.it.flat_map_values(lambda k, v: f.values(flat(k, v)), with_key=True, value=STRING, **named(s))
    else:
        it = a.it.flat_map_values(lambda v: f.values(flat(None, v)), value=STRING, **named(s))
    return replace(a, it=it, value=STRING)


def _effect(b: Building, s: Step) -> Callable[[Any, Any], None]:
    return lambda k, v: b.effects.append([s["id"], f.text(k), f.text(v)])


@operator("KStream.peek")
def _peek(b: Building, s: Step) -> Handle:
    a = b.of(s)
    return replace(a, it=a.it.peek(_effect(b, s), **named(s)))


@operator("KStream.foreach")
def _foreach(b: Building, s: Step) -> None:
    b.of(s).it.foreach(_effect(b, s), **named(s))


@operator("KStream.split")
def _split(b: Building, s: Step) -> Handle:
    a = b.of(s)
    branches = a.it.split(**named(s))
    for predicate in s["branches"]:
        branches = branches.branch(f.made(f.PREDICATES, predicate))
    made = branches.default_branch() if s["default"] else branches.no_default_branch()
    return replace(a, it=[made[name] for name in sorted(made)])


@operator("KStream.branch")
def _branch(b: Building, s: Step) -> Handle:
    a = b.of(s)
    return replace(a, it=a.it[s["index"]])


@operator("KStream.merge")
def _merge(b: Building, s: Step) -> Handle:
    a = b.of(s)
    return replace(a, it=a.it.merge(b.of(s, 1).it, **named(s)))


@operator("KStream.repartition")
def _repartition(b: Building, s: Step) -> Handle:
    a = b.of(s)
    partitions = {"partitions": s["partitions"]} if "partitions" in s else {}
    return replace(a, it=a.it.repartition(key=a.key, value=a.value, **partitions, **named(s)))


@operator("KStream.to")
def _to(b: Building, s: Step) -> None:
    a, topic = b.of(s), s["topic"]
    if "by" in s:
        chosen = f.made(f.PREDICATES, s["by"])
        a.it.to(lambda k, v, _: f"{topic}-{'yes' if chosen(k, v) else 'no'}", key=a.key, value=a.value, **named(s))
    else:
        a.it.to(topic, key=a.key, value=a.value, **named(s))


@operator("KStream.toTable")
def _to_table(b: Building, s: Step) -> Handle:
    a = b.of(s)
    return replace(a, it=a.it.to_table(**stored(s, a.key, a.value), **named(s)))


@operator("KStream.groupByKey")
def _group_by_key(b: Building, s: Step) -> Handle:
    a = b.of(s)
    return Handle(a.it.group_by_key(key=a.key, value=a.value, **named(s)), a.key, a.value)


@operator("KStream.groupBy")
def _group_by(b: Building, s: Step) -> Handle:
    a = b.of(s)
    it = a.it.group_by(f.made(f.SELECTORS, s["selector"]), key=STRING, value=a.value, **named(s))
    return Handle(it, value=a.value)


@operator("KStream.process")
def _process(b: Building, s: Step) -> Handle:
    stores = s.get("stores", [])
    supplier = any_key(s["processor"], stores)
    return Handle(b.of(s).it.process(supplier, stores=stores, key=STRING, value=STRING, **named(s)))


@operator("KStream.processValues")
def _process_values(b: Building, s: Step) -> Handle:
    a, stores = b.of(s), s.get("stores", [])
    supplier = fixed_key(s["processor"], stores)
    return replace(a, it=a.it.process_values(supplier, stores=stores, value=STRING, **named(s)), value=STRING)


# Joins of streams


def _joiner(s: Step) -> tuple[Callable[..., Any], dict[str, Any]]:
    joiner = f.made(f.JOINERS, s["joiner"])
    if "keyed" in s:
        return lambda k, x, y: f.cap(f"{f.text(k)}={f.text(joiner(x, y))}"), {"with_key": True}
    return joiner, {}


def _join_table(method: str) -> Operator:
    def join(b: Building, s: Step) -> Handle:
        a = b.of(s)
        joiner, options = _joiner(s)
        if "grace" in s:
            options["grace"] = ms(s["grace"])
        it = getattr(a.it, method)(b.of(s, 1).it, joiner, key=a.key, value=STRING, **options, **named(s))
        return replace(a, it=it, value=STRING)

    return join


def _join_global(method: str) -> Operator:
    def join(b: Building, s: Step) -> Handle:
        a = b.of(s)
        joiner, options = _joiner(s)
        on = f.made(f.SELECTORS, s["selector"])
        it = getattr(a.it, method)(b.of(s, 1).it, joiner, on=on, value=STRING, **options, **named(s))
        return replace(a, it=it, value=STRING)

    return join


def _join_stream(method: str) -> Operator:
    def join(b: Building, s: Step) -> Handle:
        a, other, w = b.of(s), b.of(s, 1), s["windows"]
        joiner, options = _joiner(s)
        windows = mp.JoinWindows(ms(w["before"]), ms(w["after"]), grace=ms(w["grace"]))
        store = s.get("store", {})
        if "name" in store:
            options["store"] = store["name"]
        if "logging" in store:
            options["logging"] = store["logging"]
        if "in_memory" in store:
            options["persistent"] = False
        for side in ("this_store", "other_store"):
            if side in store:
                options[side] = mp.WindowStoreBuilder(
                    name=store[side],
                    retention_ms=windows.size_ms + windows.grace_ms,
                    window_size_ms=windows.size_ms,
                    retain_duplicates=True,
                    persistent="in_memory" not in store,
                )
        it = getattr(a.it, method)(
            other.it,
            joiner,
            windows,
            key=a.key,
            this_value=a.value,
            other_value=other.value,
            value=STRING,
            **options,
            **named(s),
        )
        return replace(a, it=it, value=STRING)

    return join


OPERATORS["KStream.joinTable"] = _join_table("join")
OPERATORS["KStream.leftJoinTable"] = _join_table("left_join")
OPERATORS["KStream.joinGlobal"] = _join_global("join")
OPERATORS["KStream.leftJoinGlobal"] = _join_global("left_join")
OPERATORS["KStream.join"] = _join_stream("join")
OPERATORS["KStream.leftJoin"] = _join_stream("left_join")
OPERATORS["KStream.outerJoin"] = _join_stream("outer_join")
