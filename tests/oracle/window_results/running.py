"""Runs a case as java/WindowResults.java does, and writes down the same text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import millpond as mp
from tests.oracle.topologies.by_hand import Dice

__all__ = ("CASES", "MS", "String", "case", "out", "out_windowed", "run", "s")

RECORDS = 90
MS = timedelta(milliseconds=1)
CASES: dict[str, Callable[[mp.StreamsBuilder, bool], object]] = {}
String = mp.String


def case(write: Callable[[mp.StreamsBuilder, bool], object]) -> Callable[[mp.StreamsBuilder, bool], object]:
    """Register a case under its function's name; cogroups are run without and with caching."""
    CASES[write.__name__] = write
    return write


def run(name: str) -> str:
    """Return the topology's description, the generated records, and all that each of them writes."""
    builder = mp.StreamsBuilder()
    CASES[name.removesuffix("-cached")](builder, name.endswith("-cached"))
    topology = builder.build()
    description = str(topology.describe())
    dice = Dice(len(name) * 1000 + ord(name[0]))
    now = 1000
    lines: list[str] = []
    config = {"application.id": "app", "default.key.serde": String, "default.value.serde": String}
    with mp.testing.TopologyTestDriver(topology, config) as driver:
        for _ in range(RECORDS):
            topic = ("left", "left", "right", "third")[dice.roll(4)]
            k, v = dice.roll(6), dice.roll(7)
            key = None if k == 0 else f"k{k}"
            value = None if v == 0 else chr(ord("a") + dice.roll(4)) + str(dice.roll(10))
            now += dice.roll(40)
            timestamp = max(0, now - dice.roll(120))
            if f"(topics: [{topic}])" not in description:
                continue
            driver.create_input_topic(topic, key=String, value=String).pipe_input(key, value, timestamp)
            lines.append(f"{topic} {key or 'null'} {value or 'null'} {timestamp}")
            lines += _written(driver)
        lines += [f"store {name}" for name in sorted(driver.get_all_state_stores())]
    return description + "\n".join([*lines, ""])


def _written(driver: mp.testing.TopologyTestDriver) -> list[str]:
    """Return the new records of the output topic, and those of the internal topics in hexadecimal."""
    lines = []
    for topic in sorted(driver.produced_topic_names()):
        if "SUPPRESS" in topic:
            continue
        plain = topic == "out"
        for each in driver.create_output_topic(topic, key=mp.Bytes, value=mp.Bytes).read_records_to_list():
            texts = (_show(each.key, plain=plain), _show(each.value, plain=plain), str(each.timestamp))
            lines.append("  " + " ".join(texts if plain else (topic, *texts)))
    return lines


def _show(data: bytes | None, *, plain: bool) -> str:
    if data is None:
        return "null"
    return data.decode() if plain else data.hex() or "empty"


def s(b: mp.StreamsBuilder, topic: str) -> mp.KStream[str, str]:
    return b.stream(topic, key=String, value=String)


def out(stream: mp.KStream[str, Any]) -> None:
    stream.map_values(lambda v: None if v is None else str(v)).to("out", key=String, value=String)


def out_windowed(t: mp.KTable[mp.Windowed[str], Any]) -> None:
    out(t.to_stream().select_key(lambda k, _: f"{k.key}@{k.start_ms}-{k.end_ms}"))
