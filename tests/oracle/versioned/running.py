"""Runs a case as java/VersionedTables.java does, and writes down the same text."""

from __future__ import annotations

from collections.abc import Callable

import millpond as mp
from millpond.state import VersionedKeyValueStore
from tests.oracle.topologies.by_hand import Dice

__all__ = ("CASES", "case", "run")

RECORDS = 90
CASES: dict[str, Callable[[mp.StreamsBuilder], object]] = {}


def case(write: Callable[[mp.StreamsBuilder], object]) -> Callable[[mp.StreamsBuilder], object]:
    """Register a case under its function's name."""
    CASES[write.__name__] = write
    return write


def run(name: str) -> str:
    """Return the topology's description, the generated records, what each of them writes, and the stores' content."""
    builder = mp.StreamsBuilder()
    CASES[name](builder)
    topology = builder.build()
    description = str(topology.describe())
    dice = Dice(len(name) * 1000 + ord(name[0]))
    now = 1000
    lines: list[str] = []
    config = {"application.id": "app", "default.key.serde": mp.String, "default.value.serde": mp.String}
    with mp.testing.TopologyTestDriver(topology, config) as driver:
        for number in range(RECORDS):
            topic = ("left", "in", "right", "left")[dice.roll(4)]
            k, v = dice.roll(5), dice.roll(5)
            key = None if k == 0 else f"k{k}"
            value = None if v == 0 else chr(ord("a") + dice.roll(4)) + str(dice.roll(10))
            now += dice.roll(40)
            timestamp = max(0, now - dice.roll(3) * dice.roll(90))
            headers = [("h", str(number).encode())] if dice.roll(3) == 0 else None
            if f"(topics: [{topic}])" not in description:
                continue
            lines.append(f"{topic} {key or 'null'} {value or 'null'} {timestamp}")
            driver.create_input_topic(topic, key=mp.String, value=mp.String).pipe_input(key, value, timestamp, headers)
            lines += written(driver)
        for store in sorted(driver.get_all_state_stores()):
            lines += [f"store {store}", *content(driver, store, now)]
    return description + "\n".join([*lines, ""])


def written(driver: mp.testing.TopologyTestDriver) -> list[str]:
    """Return the new records of all topics, those of internal topics in hexadecimal."""
    lines = []
    for topic in sorted(driver.produced_topic_names()):
        plain = topic == "out"
        timeless = "uffer" in topic or "SUPPRESS" in topic or "held" in topic
        for each in driver.create_output_topic(topic, key=mp.Bytes, value=mp.Bytes).read_records_to_list():
            texts = [show(each.key, plain=plain), show(each.value, plain=plain)]
            if not timeless:
                texts.append(str(each.timestamp))
            texts += [f"{name}={show(data, plain=False)}" for name, data in each.headers or ()]
            lines.append("  " + " ".join(texts if plain else [topic, *texts]))
    return lines


def content(driver: mp.testing.TopologyTestDriver, name: str, now: int) -> list[str]:
    """Return what a versioned store has now and had earlier; nothing for other stores."""
    if not isinstance(driver.get_state_store(name), VersionedKeyValueStore):
        return []
    store = driver.get_versioned_key_value_store(name)
    assert store is not None
    lines = []
    for key in ("k1", "k2", "k3", "k4"):
        found = [store.get(key), *(store.get(key, now - back) for back in range(240, -1, -40))]
        texts = ["null" if each is None else f"{each.value}@{each.timestamp}" for each in found]
        lines.append(f"  {key} " + " ".join(texts))
    return lines


def show(data: bytes | None, *, plain: bool) -> str:
    if data is None:
        return "null"
    return data.decode() if plain else data.hex() or "empty"
