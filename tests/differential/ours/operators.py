"""The table of millpond's operators, and what their functions share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import millpond as mp

Step = dict[str, Any]

STRING, LONG = mp.String, mp.Long


@dataclass(frozen=True)
class Handle:
    """What a step made, with the serdes of its keys and values."""

    it: Any
    key: Any = STRING
    value: Any = STRING
    plain: Any = None
    """The serde of a windowed key without its window."""


@dataclass
class Building:
    """A topology that is being built."""

    builder: mp.StreamsBuilder = field(default_factory=mp.StreamsBuilder)
    handles: dict[str, Handle] = field(default_factory=dict)
    effects: list[list[str]] = field(default_factory=list)
    """What `peek` and `foreach` were called with: id of the step, key, value."""
    added: list[Callable[[mp.Topology], object]] = field(default_factory=list)
    """What is added when the DSL's part is built."""

    def of(self, step: Step, index: int = 0) -> Handle:
        """Return an input of a step."""
        return self.handles[step["of"][index]]


Operator = Callable[[Building, Step], Handle | None]
OPERATORS: dict[str, Operator] = {}


def operator(name: str) -> Callable[[Operator], Operator]:
    """Add an operator to the table, under the name that it has in cases."""

    def add(function: Operator) -> Operator:
        OPERATORS[name] = function
        return function

    return add


def ms(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def named(step: Step) -> dict[str, Any]:
    """Return the option `name=` of a step that has one."""
    return {"name": step["name"]} if "name" in step else {}


def stored(step: Step, key: Any, value: Any) -> dict[str, Any]:
    """Return the options of a step's store; none without one."""
    if "store" not in step:
        return {}
    store = step["store"]
    options: dict[str, Any] = {"key": key, "value": value}
    if "name" in store:
        options["store"] = store["name"]
    for flag in ("caching", "logging"):
        if flag in store:
            options[flag] = store[flag]
    if "in_memory" in store:
        options["persistent"] = False
    if "versioned" in store:
        options["history_retention"] = ms(store["versioned"])
    if "lru" in store:
        options["max_entries"] = store["lru"]
    if "retention" in store:
        options["retention"] = ms(store["retention"])
    return options
