"""Topologies built node by node, some of them drawn by lot."""

from __future__ import annotations

import re
from functools import partial

from millpond.topology import Topology
from tests.oracle.topologies.cases import CASES, Nothing, key_value, plain


@plain
def papi() -> Topology:
    t = Topology()
    t.add_source("source", "in", "more")
    t.add_processor("work", Nothing, "source")
    t.add_state_store(key_value("memory"), "work")
    return t.add_sink("sink", "out", "work", "source")


@plain
def papi_diamond() -> Topology:
    t = Topology()
    t.add_source("top", "in")
    t.add_processor("left", Nothing, "top")
    t.add_processor("right", Nothing, "top")
    t.add_processor("deep", Nothing, "right")
    t.add_processor("bottom", Nothing, "left", "deep")
    t.add_sink("z-sink", "out", "bottom")
    return t.add_sink("a-sink", "out2", "left")


@plain
def papi_many_stores() -> Topology:
    t = Topology()
    t.add_source("source", "in")
    t.add_processor("work", Nothing, "source")
    for number in range(14):
        t.add_state_store(key_value(f"store-{number * 37}"), "work")
    t.add_processor("twelve", Nothing, "source")
    return t.connect("twelve", *(f"store-{number * 37}" for number in range(12)))


@plain
def papi_global_between() -> Topology:
    t = Topology()
    t.add_source("one", "in")
    t.add_global_store(
        key_value("all", logging=False),
        "everything",
        Nothing,
        source_name="global-source",
        processor_name="global-processor",
    )
    t.add_source("two", re.compile("other.*"))
    return t.add_processor("work", Nothing, "two")


@plain
def papi_read_only_store() -> Topology:
    t = Topology()
    t.add_source("one", "in")
    t.add_processor("first", Nothing, "one")
    t.add_read_only_state_store(
        key_value("rates"), "rates", Nothing, source_name="rates-source", processor_name="rates-processor"
    )
    t.add_source("two", "more")
    t.add_processor("work", Nothing, "two")
    return t.connect("work", "rates")


class Dice:
    """The same arithmetic as in Topologies.java, so that both sides draw the same graphs."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def roll(self, sides: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % sides


def random_topology(seed: int) -> Topology:
    dice = Dice(seed)
    topology = Topology()
    parents: list[str] = []
    processors: list[str] = []
    for i in range(1 + dice.roll(3)):
        name = f"source-{dice.roll(100)}-{i}"
        topology.add_source(name, *(f"topic-{i}-{dice.roll(1000)}-{t}" for t in range(1 + dice.roll(3))))
        parents.append(name)
    for i in range(2 + dice.roll(9)):
        name = f"node-{dice.roll(1000)}-{i}"
        above = dict.fromkeys(parents[dice.roll(len(parents))] for _ in range(1 + dice.roll(3)))
        topology.add_processor(name, Nothing, *above)
        parents.append(name)
        processors.append(name)
    for i in range(dice.roll(4)):
        name = f"store-{dice.roll(100)}-{i}"
        topology.add_state_store(key_value(name), processors[dice.roll(len(processors))])
        if dice.roll(2) == 1:
            topology.connect(processors[dice.roll(len(processors))], name)
    for i in range(dice.roll(4)):
        topology.add_sink(f"sink-{dice.roll(100)}-{i}", f"out-{i}", parents[dice.roll(len(parents))])
    return topology


CASES.update({f"random_{seed:02}": partial(random_topology, seed) for seed in range(1, 41)})
