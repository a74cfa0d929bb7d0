"""Run cases with millpond's TopologyTestDriver; the answers have the form of java/Original.java's."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import millpond as mp
from millpond.runtime.topics.plan import make_plan
from millpond.state import (
    KeyValueStore,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    VersionedKeyValueStore,
    WindowStore,
)
from millpond.testing import TopologyTestDriver
from tests.differential.ours.functions import text
from tests.differential.ours.noticing import noticing
from tests.differential.ours.pressure import PressedDriver
from tests.differential.ours.topologies import Built, build

Case = dict[str, Any]
Answer = dict[str, Any]

_CONFIG = {
    "application.id": "app",
    "default.key.serde": mp.String,
    "default.value.serde": mp.String,
    # Records of each node are counted.
    "metrics.recording.level": "DEBUG",
}
_JOINS = re.compile(
    "JOINTHIS|JOINOTHER|OUTERTHIS|OUTEROTHER|OUTERSHARED|-this-join|-other-join|-shared-join|-outer|(?i:subscription)"
)
"""Stores that belong to joins: their content is in their changelogs."""
_KEYS = {"a", "b", "c", "k1", "k2", "k3", "k4", "k5", "null", "tick"}


def answer(case: Case) -> Answer:
    """Return what millpond does with a case, in the form of README.md."""
    return answer_and_reached(case)[0]


def answer_and_reached(case: Case) -> tuple[Answer, set[str]]:
    """Return the answer to a case, and the ids of the steps that at least one record reached."""
    found: Answer = {}
    reached: set[str] = set()
    at = -1
    try:
        built = build(case)
        topology = built.topology
        if built.unmerged:
            found["unmerged"] = built.unmerged
        found["describe"] = str(topology.describe())
        found["internal"] = _internal(topology)
        config = {**_CONFIG, **case.get("config", {})}
        with (
            noticing(case) as noticed,
            _driver(case)(topology, config, initial_wall_clock=case.get("now", 0)) as driver,
        ):
            outputs: list[Any] = []
            found["outputs"] = outputs
            for each in case["input"]:
                at += 1
                if isinstance(each, dict):
                    driver.advance_wall_clock_time(timedelta(milliseconds=each["advance"]))
                else:
                    _pipe(driver, each)
                outputs.append(_outputs(driver))
                if noticed.found:
                    found.setdefault("meant_from", at)
            at += 1
            found["stores"] = _stores(driver, case)
            found["effects"] = built.effects
            found["dropped"] = driver.metrics()["dropped"]
            records = {each.node: each.processed for each in driver._task.node_figures}
            reached = _reached(case, built, records)
    except Exception as error:
        found["error"] = {"at": at, "text": f"{type(error).__name__}: {error}"}
    return found, reached


def _driver(case: Case) -> type[TopologyTestDriver]:
    return PressedDriver if case.get("pressure") else TopologyTestDriver


def _reached(case: Case, built: Built, records: dict[str, int]) -> set[str]:
    """Return the steps that a record reached. A step without nodes of its own is reached if one that reads it is."""
    reached: set[str] = set()
    for step in reversed(case["steps"]):
        own = [records[name] for name in built.nodes[step["id"]] if name in records]
        if any(own) or step["op"] == "StreamsBuilder.addStateStore":
            reached.add(step["id"])
        elif not own:
            reached.update(
                step["id"] for below in case["steps"] if step["id"] in below.get("of", ()) and below["id"] in reached
            )
    return reached


def _pipe(driver: TopologyTestDriver, record: list[Any]) -> None:
    topic, key, value, timestamp, *rest = record
    headers = [(name, None if data is None else data.encode()) for name, data in rest[0]] if rest else None
    driver.create_input_topic(topic, key=mp.String, value=mp.String).pipe_input(
        key, value, timestamp=timestamp, headers=headers
    )


def _raw(data: bytes | None) -> str | None:
    """Return bytes as text: each byte is the character of its number."""
    return None if data is None else data.decode("latin-1")


def _outputs(driver: TopologyTestDriver) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    # As create_output_topic() does it, which costs more than all the rest when each topic is asked after each record.
    for topic, records in driver._outputs.items():
        if not records:
            continue
        rows = found[topic] = []
        for record in records:
            row: list[Any] = [_raw(record.key), _raw(record.value), record.timestamp]
            if record.headers:
                row.append([[name, _raw(data)] for name, data in record.headers])
            rows.append(row)
        records.clear()
    return found


def _internal(topology: mp.Topology) -> dict[str, dict[str, str]]:
    existing = {topic: 1 for part in topology.subtopologies() for topic in part.source_topics}
    existing |= {topic: 1 for part in topology.subtopologies() for topic in _sinks(part)}
    existing |= {topic: 1 for each in topology.global_stores for topic in each.source.topics}
    for name in topology.repartition_topics:
        existing.pop(name, None)
    plan = make_plan(topology, existing, "app")
    return {spec.name: dict(spec.config) for spec in plan.internal}


def _sinks(part: Any) -> set[str]:
    return {sink.topic for sink in part.sinks if isinstance(sink.topic, str)}


def _stores(driver: TopologyTestDriver, case: Case) -> dict[str, list[str]]:
    keys = sorted(_KEYS | {each[1] for each in case["input"] if isinstance(each, list) and each[1] is not None})
    found = {}
    for name, store in driver.get_all_state_stores().items():
        if _JOINS.search(name):
            continue
        if isinstance(store, KeyValueStore | TimestampedKeyValueStore | WindowStore | TimestampedWindowStore):
            rows = [_row(key, value) for key, value in store.all()]
        elif store.key_serde is not mp.String:
            continue  # these kinds cannot list their keys, which are not those of the input here
        elif isinstance(store, SessionStore):
            rows = [_row(at, value) for key in keys for at, value in store.fetch(key)]
        elif isinstance(store, VersionedKeyValueStore):
            rows = [
                f"{key} = {text(held.value)} @{held.timestamp}" for key in keys if (held := store.get(key)) is not None
            ]
        else:
            continue
        found[name] = sorted(set(rows))
    return found


def _row(key: Any, value: Any) -> str:
    shown = f"{text(value.value)} @{value.timestamp}" if isinstance(value, mp.ValueAndTimestamp) else text(value)
    return f"{text(key)} = {shown}"
