"""Checks of the arguments of the DSL's operators: functions, other streams and tables, stores, topics."""

from __future__ import annotations

import dataclasses
import dis
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from millpond.checks import check_function, hides_frames, kind_of, named
from millpond.errors import TopologyError
from millpond.serdes import Boolean, Double, Float, Int, Long, Serde, Short, String
from millpond.topology import StoreBuilder, StreamPartitioner, TopicNameExtractor
from millpond.topology.naming import validate_topic

__all__ = (
    "check_builder",
    "check_initializer",
    "check_partitioner",
    "check_same_builder",
    "check_source_topics",
    "check_stores",
    "check_target",
    "check_value_function",
)

__tracebackhide__ = hides_frames

log: logging.Logger = logging.getLogger(__name__)

#: Parts of a function's code around what it does.
_NO_STEPS = ("RESUME", "NOP", "CACHE", "COPY_FREE_VARS", "RETURN_VALUE")

_WILD = re.compile(r"[*+?|()\[\]^$]")
_COUNTS = ("one parameter", "two parameters", "three parameters")

_UNLIKE: tuple[object, ...] = (Boolean, Double, Float, Int, Long, Short, String)
"""Serdes whose keys are never the same bytes as those of another one of them."""


def check_value_function(
    what: str, function: Callable[..., object], *values: str, with_key: bool, iterated: bool = False
) -> None:
    """Check that a function can be called with values, or with key and values if `with_key`.

    Raises:
        TopologyError: the function cannot be called so; see `check_function`.
    """
    wanted = _COUNTS[len(values) - 1 + with_key]
    other = "leave out with_key=True" if with_key else "add with_key=True to get the key first"
    check_function(
        what,
        function,
        *(("key", *values) if with_key else values),
        cure=f"give it {wanted}, or {other}",
        iterated=iterated,
    )


def check_initializer(what: str, initializer: Callable[[], object]) -> None:
    """Check that an initializer can be called without arguments. Often the first aggregate is given instead.

    A warning tells of one that only returns the same list, or another object that can change, for each key.

    Raises:
        TopologyError: the initializer cannot be called so; see `check_function`.
    """
    check_function(f"{what}'s initializer", initializer, instead="write lambda: … around what a key begins with")
    shared = _shared_object(initializer)
    if shared is not None:
        log.warning(
            "%s is given an initializer, %s, that returns the same %s for each key: an aggregator that changes it "
            "mixes the aggregates of all keys. Return a new one in each call, such as lambda: %s(…).",
            what, named(initializer), type(shared).__name__, type(shared).__name__,
        )  # fmt: skip


def _shared_object(function: Callable[[], object]) -> object | None:
    """Return the object that a function only returns, from a variable outside of it; None if it cannot be changed.

    The function is not called: it may have effects.
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    steps = [step for step in dis.get_instructions(code) if step.opname not in _NO_STEPS]
    if len(steps) != 1:
        return None
    value: object = None
    if steps[0].opname == "LOAD_GLOBAL":
        value = getattr(function, "__globals__", {}).get(steps[0].argval)
    elif steps[0].opname == "LOAD_DEREF":
        cells = dict(zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False))
        try:
            value = cells[steps[0].argval].cell_contents
        except (KeyError, ValueError):  # not bound yet
            return None
    return value if _can_change(value) else None


def _can_change(value: object) -> bool:
    if isinstance(value, msgspec.Struct):
        return not value.__struct_config__.frozen
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return not type(value).__dataclass_params__.frozen  # type: ignore[attr-defined]
    return isinstance(value, list | dict | set | bytearray | deque)


def check_partitioner(what: str, partitioner: StreamPartitioner | None) -> None:
    """Check that a partitioner can be called with topic, key, value and number of partitions.

    Raises:
        TopologyError: the partitioner cannot be called so; see `check_function`.
    """
    if partitioner is not None:
        check_function(f"{what}'s partitioner", partitioner, "topic", "key", "value", "partitions")


def check_target(topic: str | TopicNameExtractor) -> None:
    """Check the topic of `to()`.

    Raises:
        TopologyError: the topic is neither a name nor a function that returns one.
    """
    if isinstance(topic, str):
        validate_topic(topic)
    elif callable(topic):
        check_function("to()", topic, "key", "value", "context")
    else:
        raise TopologyError(
            f"to() needs a topic's name, or a function of (key, value, context) that returns one, not {kind_of(topic)}."
        )


def check_source_topics(what: str, topics: tuple[object, ...]) -> None:
    """Check that topics are names or compiled patterns.

    Raises:
        TopologyError: an argument is neither a name nor a compiled pattern.
    """
    for topic in topics:
        if isinstance(topic, str):
            if _WILD.search(topic):
                raise TopologyError(f"{what} takes patterns only when they are compiled; write re.compile({topic!r}).")
            validate_topic(topic)
        elif isinstance(topic, (list, tuple, set)):
            raise TopologyError(
                f"{what} takes topics one after another, not in {kind_of(topic)}; write {what[:-1]}*topics)."
            )
        elif not isinstance(topic, re.Pattern):
            raise TopologyError(
                f"{what} was given {kind_of(topic)} among its topics; serdes and options have names, such as key= and "
                "value=."
            )


def check_stores(what: str, stores: Iterable[str]) -> None:
    """Check that stores are given by their names.

    Raises:
        TopologyError: `stores` is a single name instead of a list, or contains a builder.
    """
    if isinstance(stores, str):
        raise TopologyError(f"{what} takes the names of stores in a list; write stores=[{stores!r}].")
    for store in stores:
        if not isinstance(store, str):
            raise TopologyError(
                f"{what} takes names of stores in stores=, not {kind_of(store)}; call add_state_store() with it, and "
                "give its name."
            )


def check_join_keys(what: str, one: Serde[Any] | None, other: Serde[Any] | None) -> None:
    """Check that the keys of two joined inputs are written as the same bytes, as far as their serdes tell.

    Serdes that may write the same bytes, such as those of users, pass.

    Raises:
        TopologyError: the serdes are different ones of millpond's own, whose bytes never match.
    """
    if one is not other and one in _UNLIKE and other in _UNLIKE:
        raise TopologyError(
            f"{what} finds no partner, because the keys of one side are written as {one} and those of the other as "
            f"{other}: give both the same type, with select_key() or map() and key= on one side."
        )


def check_builder(what: str, builder: StoreBuilder) -> None:
    """Check that an object is a store builder.

    Raises:
        TopologyError: the object is something else, such as the name of a store.
    """
    if isinstance(builder, type) or not (hasattr(builder, "name") and hasattr(builder, "logging")):
        raise TopologyError(
            f"{what} needs a store's builder, such as mp.KeyValueStoreBuilder(name=…, key=…, value=…), not "
            f"{kind_of(builder)}."
        )


def check_same_builder(what: str, one: Any, other: Any) -> None:
    """Check that two parts of a topology come from the same StreamsBuilder.

    Raises:
        TopologyError: they come from different ones.
    """
    if one._graph is not other._graph:  # noqa: SLF001 - what a user sees of streams and tables has no graph
        raise TopologyError(f"{what} come from different StreamsBuilders; build both with one.")
