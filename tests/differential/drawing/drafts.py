"""Cases that are being drawn: what their steps made, the table of operators, and the options that several have."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

LONG_RETENTION_MS = 100_000_000

Case = dict[str, Any]
Step = dict[str, Any]


@dataclass(frozen=True)
class Out:
    """What a drawn step makes."""

    id: str
    kind: str
    """`stream`, `table`, `global`, `grouped`, `grouped-table`, `windowed`, `sessions`, `cogrouped`, and so on."""
    label: str
    key: str = "string"
    """`string`, or a windowed key's kind: `time`, `sliding`, `unlimited`, `session`, with the size."""
    value: str = "string"
    """`string` or `long`."""
    final: bool = False
    """Whether `suppress(untilWindowCloses)` can follow."""
    emits_final: bool = False
    """Whether windows are sent when they close."""
    history: int = 0
    """For versioned tables, how long they keep old values, in ms."""
    index: int = 0
    volume: float = 1
    """How many records it has about, in those of a topic of the input."""


@dataclass
class Draft:
    """A case that is being drawn."""

    rng: random.Random
    cached: bool
    disk: bool
    steps: list[Step] = field(default_factory=list)
    made: list[Out] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    wanted: str = ""
    """The kind that the next step is to make, where its operator makes several; empty for any."""
    free_tables: list[str] = field(default_factory=lambda: ["rows1", "rows2", "rows3"])
    free_globals: list[str] = field(default_factory=lambda: ["glob1", "glob2"])

    def chance(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def one(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def new_id(self) -> str:
        return f"s{len(self.steps)}"

    def ms(self) -> int:
        return self.rng.choice((0, 0, 10, 20, 50, 100))


Drawn = tuple[dict[str, Any], dict[str, Any]]
"""The parameters of a step, and the fields of its `Out`."""
Draw = Callable[[Draft, list[Out]], Drawn | None]


@dataclass(frozen=True)
class Rule:
    """How an operator is drawn."""

    op: str
    takes: tuple[str, ...]
    gives: str | None
    draw: Draw


def predicate(d: Draft) -> str:
    return d.one("low", "low", "not-null", "starts:a", "starts:b", "key-odd", "key-odd", "all", "none")


def mapper(d: Draft) -> str:
    return d.one("upper", "append:x", "append:y", "null-if:a", "letter", "append:z", "fixed:f7")


def keyed(d: Draft) -> str:
    return d.one("glue", "null-if-odd")


def selector(d: Draft) -> str:
    return d.one("key", "letter", "digit", "null-if-low", "part", "part", "fixed:k1")


def joiner(d: Draft) -> str:
    return d.one("glue", "glue", "glue", "left", "right", "null-if-low")


def reducer(d: Draft, value: str, *, subtract: bool = False) -> str:
    if value == "long":
        return "difference" if subtract else "sum"
    if subtract:
        return d.one("minus", "minus", "null-if-low")
    return d.one("plus", "plus", "last", "null-if-low")


def store_of(d: Draft, *, windows: bool = False, always: bool = False, long: bool = False) -> dict[str, Any]:
    """Return the option `store`, or nothing; `long` gives it a retention that no input outlasts."""
    memory = windows and not d.disk
    if not memory and not long and not always and d.chance(60):
        return {}
    store: dict[str, Any] = {}
    if d.chance(50):
        store["name"] = f"store-{d.new_id()}"
    if d.chance(30):
        store["caching"] = d.cached or d.chance(50)
    if not windows and not d.cached and d.chance(8):
        # A versioned store has no cache, and needs a name.
        return {"store": {"name": f"store-{d.new_id()}", "versioned": d.one(50, 200, 1000)}}
    if d.chance(10):
        store["logging"] = False
    if memory or d.chance(20):
        store["in_memory"] = True
    if long:
        store["retention"] = LONG_RETENTION_MS
    elif windows and d.chance(10):
        store["retention"] = d.one(500, 1000)
    return {"store": store}


def is_string(out: Out) -> bool:
    return out.key == "string"


RULES: dict[str, Rule] = {}


def rule(op: str, takes: str, gives: str | None) -> Callable[[Draw], Draw]:
    """Add an operator: the kinds that it takes, separated by spaces, and the kind that it makes, or None for a sink."""

    def add(draw: Draw) -> Draw:
        RULES[op] = Rule(op, tuple(takes.split()), gives, draw)
        return draw

    return add


def mapped(d: Draft, a: list[Out]) -> Drawn | None:
    if d.chance(30):
        return {"keyed": keyed(d)}, {"value": "string"}
    return {"mapper": mapper(d)}, {"value": "string"}
