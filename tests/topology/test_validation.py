"""Invalid topologies are rejected with a message of cause and cure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from millpond.errors import TopologyError
from millpond.serdes import String
from millpond.state import KeyValueStoreBuilder
from millpond.topology import Processor, Topology


class Nothing(Processor[Any, Any, Any, Any]):
    def process(self, record: Any) -> None:
        pass


def store(name: str, *, logging: bool = True) -> KeyValueStoreBuilder[str, str]:
    return KeyValueStoreBuilder(name=name, key=String, value=String, logging=logging)


def add_global(t: Topology, name: str = "all", topic: str = "everything", **options: Any) -> Topology:
    options = {"source_name": "gs", "processor_name": "gp"} | options
    return t.add_global_store(store(name, logging=options.pop("logging", False)), topic, Nothing, **options)


WRONG: dict[str, tuple[Callable[[Topology], object], str]] = {
    "a node's name is taken": (lambda t: t.add_source("source", "other"), "already called 'source'"),
    "a processor's name is taken": (lambda t: t.add_processor("work", Nothing, "source"), "already called 'work'"),
    "a sink's name is taken": (lambda t: t.add_sink("work", "out", "source"), "already called 'work'"),
    "a name has a blank": (lambda t: t.add_source("a b", "other"), "'a b' may only have ASCII letters"),
    "a name is empty": (lambda t: t.add_source("", "other"), "is empty"),
    "a name is two dots": (lambda t: t.add_source("..", "other"), "cannot be called '..'"),
    "a name is too long": (lambda t: t.add_source("x" * 250, "other"), "250 characters; 249 are allowed"),
    "a topic has a slash": (lambda t: t.add_source("s2", "a/b"), "topic name 'a/b'"),
    "a source has no topic": (lambda t: t.add_source("s2"), "has no topic"),
    "a topic is read twice": (lambda t: t.add_source("s2", "in"), "already read by source 'source'"),
    "a topic matches a pattern": (lambda t: t.add_source("s2", "p-1"), "matches pattern 'p-.*' of source 'patterned'"),
    "a pattern matches a topic": (lambda t: t.add_source("s2", re.compile("i.")), "matches topic 'in'"),
    "a pattern comes with a topic": (lambda t: t.add_source("s2", "x", re.compile("y")), "by name or by one pattern"),
    "a reset is misspelled": (lambda t: t.add_source("s2", "x", reset="newest"), "use one of earliest, latest"),
    "a timestamp is a class": (lambda t: t.add_source("s2", "x", timestamp=int), "is a class"),
    "a timestamp is a number": (
        lambda t: t.add_source("s2", "x", timestamp=3),
        "needs a TimestampExtractor or a function of the value, not the number 3",
    ),
    "a parent is unknown": (lambda t: t.add_processor("p2", Nothing, "sorce"), "unknown parent 'sorce'"),
    "a parent is the node": (lambda t: t.add_processor("p2", Nothing, "p2"), "its own parent"),
    "a parent is a sink": (lambda t: t.add_processor("p2", Nothing, "sink"), "cannot follow sink 'sink'"),
    "there is no parent": (lambda t: t.add_processor("p2", Nothing), "has no parent"),
    "a sink has no parent": (lambda t: t.add_sink("k2", "out"), "has no parent"),
    "a sink's topic is a number": (lambda t: t.add_sink("k2", 3, "work"), "needs a topic's name, or a function"),
    "a processor is no supplier": (lambda t: t.add_processor("p2", Nothing(), "work"), "every task needs its own"),
    "a supplier cannot be called": (lambda t: t.add_processor("p2", 7, "work"), "cannot be called"),
    "a store's name is taken": (lambda t: t.add_state_store(store("memory")), "already called 'memory'"),
    "a store's name is taken by a global one": (lambda t: add_global(t).add_state_store(store("all")), "'all'"),
    "a store is unknown": (lambda t: t.connect("work", "memmory"), "uses store 'memmory', which does not exist"),
    "a store's processor is unknown": (lambda t: t.connect("wrok", "memory"), "'wrok', which does not exist"),
    "a store is connected to a source": (lambda t: t.connect("source", "memory"), "which is not a processor"),
    "a global store is connected": (lambda t: add_global(t).connect("work", "all"), "is global"),
    "a global store is logged": (lambda t: add_global(t, logging=True), "build it with logging=False"),
    "a global store's name is taken": (lambda t: add_global(t, "memory"), "already called 'memory'"),
    "a global store's topic is read": (lambda t: add_global(t, topic="in"), "already read by source 'source'"),
    "a global store's nodes are one": (lambda t: add_global(t, source_name="x", processor_name="x"), "different names"),
    "a repartition topic has no partition": (lambda t: t.add_repartition_topic("r", 0), "at least one partition"),
}


@pytest.fixture
def topology() -> Topology:
    t = Topology().add_source("source", "in").add_source("patterned", re.compile("p-.*"))
    t.add_processor("work", Nothing, "source").add_state_store(store("memory"), "work")
    return t.add_sink("sink", "out", "work")


@pytest.mark.parametrize("what", WRONG)
def test_invalid_topology_is_rejected(what: str, topology: Topology) -> None:
    """Each mistake has its own message: one sentence, ending in a full stop."""
    mistake, message = WRONG[what]
    with pytest.raises(TopologyError, match=re.escape(message)) as caught:
        mistake(topology)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("what", WRONG)
def test_a_rejected_step_does_not_change_the_topology(what: str, topology: Topology) -> None:
    """After a rejected call the description of the topology is the same, apart from earlier parts of that call."""
    before = str(topology.describe())
    mistake, _ = WRONG[what]
    with pytest.raises(TopologyError):
        mistake(topology)
    assert "global" in what or str(topology.describe()) == before


def test_supplier_without_a_processor_is_rejected_at_task_start() -> None:
    """A supplier's result is checked when a task first needs it."""
    from tests.dsl.support import Node

    topology = Topology().add_source("source", "in").add_processor("work", lambda: object(), "source")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="made a object"):
        topology.subtopologies()[0].processors[0].body.bind(Node("work"))
