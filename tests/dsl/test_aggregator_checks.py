"""Aggregators that return nothing are found, and others are taken as they are."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import millpond as mp
from millpond.dsl.aggregators import check_aggregator
from millpond.errors import TopologyError


def appends(_key: Any, value: Any, aggregate: Any) -> None:
    aggregate.append(value)


def assigns(_key: Any, value: Any, aggregate: Any) -> None:
    if value:
        aggregate["last"] = value


def deletes_on_purpose(_key: Any, _value: Any, _aggregate: Any) -> None:
    return None


def returns_once(_key: Any, value: Any, aggregate: Any) -> Any:
    if value:
        aggregate.append(value)
        return aggregate
    return None


def raises(_key: Any, _value: Any, _aggregate: Any) -> Any:
    raise ValueError


class Callable_:
    def __call__(self, _key: Any, _value: Any, aggregate: Any) -> Any:
        return aggregate


@pytest.mark.parametrize("function", [appends, assigns])
def test_a_function_that_never_returns_the_aggregate_is_refused(function: Any) -> None:
    """The error names the function with its place."""
    with pytest.raises(TopologyError, match=rf"'{function.__name__}' \(test_aggregator_checks\.py, line \d+\)"):
        check_aggregator("aggregate()", function)


@pytest.mark.parametrize(
    "function",
    [
        deletes_on_purpose, returns_once, raises, Callable_(), partial(returns_once), max,
        lambda _key, value, aggregate: aggregate + value,
    ],
)  # fmt: skip
def test_other_functions_are_taken_as_they_are(function: Any) -> None:
    """They cost nothing per record."""
    assert check_aggregator("aggregate()", function) is function


_RETURNS = (
    "return aggregate - value if aggregate > value else None",
    "return None if aggregate <= value else max(aggregate, value)",
    "return (aggregate if value else None) if key else None",
    "return aggregate - value or None",
    "aggregate.append(value)\nreturn aggregate and None",
    "with aggregate:\n    return aggregate.append(value) if value else None",
    "try:\n    return aggregate.pop()\nfinally:\n    aggregate.clear()",
    "for each in value:\n    if each:\n        return aggregate.get(each)\nreturn None",
    "match value:\n    case 1:\n        return key.upper()\n    case _:\n        aggregate.clear()",
)
_RETURNS_NOTHING = (
    "aggregate.append(value)",
    "if value:\n    aggregate.append(value)\n    return\naggregate[key] = value",
    "for each in value:\n    aggregate.append(each)",
    "while value:\n    aggregate.append(value)\n    value -= 1",
    "with aggregate:\n    aggregate.append(value)",
    "try:\n    aggregate.append(value)\nexcept ValueError:\n    aggregate.clear()",
    "try:\n    aggregate.append(value)\nfinally:\n    aggregate.clear()",
    "match value:\n    case 1:\n        aggregate.append(value)\n    case _:\n        aggregate.clear()",
)


@pytest.mark.parametrize("body", [*_RETURNS, *_RETURNS_NOTHING])
def test_no_function_that_may_return_an_aggregate_is_refused(body: str) -> None:
    """However its paths end: Python 3.11 joins them in other ways than later versions."""
    made: dict[str, Any] = {}
    exec("def function(key, value, aggregate):\n    " + body.replace("\n", "\n    "), made)
    if body in _RETURNS:
        assert check_aggregator("aggregate()", made["function"]) is made["function"]
    else:
        with pytest.raises(TopologyError, match="never returns the new aggregate"):
            check_aggregator("aggregate()", made["function"])


@pytest.mark.parametrize(
    ("aggregate", "refused"), [({}, True), ([], False), (frozenset(), False)], ids=["dict", "list", "frozenset"]
)
def test_a_lambda_may_return_none_unless_it_changes_its_aggregate_in_place(aggregate: Any, refused: bool) -> None:
    """`update()` of a dict returns None, and deletes the row; a method of a user's class may return what it wants."""
    checked = check_aggregator("aggregate()", lambda _key, value, kept: kept.update(value) if value else kept)
    assert checked("k", None, aggregate) is aggregate
    if refused:
        with pytest.raises(TopologyError, match="which changes the dict and returns None"):
            checked("k", {1: 1}, aggregate)


def test_joins_of_keys_that_may_have_the_same_bytes_are_accepted() -> None:
    """A serde of the user, bytes, or a default may fit; a given serde of the repartitioned side counts."""
    strings = mp.Serde("Name", str.encode, bytes.decode, immutable=True)
    for key in (strings, mp.Bytes, mp.String, None):
        builder = mp.StreamsBuilder()
        table = builder.table("users", key=key, value=mp.String)
        builder.stream("views", key=mp.String, value=mp.String).join(table, lambda one, _other: one)


@pytest.mark.parametrize("kind", ["stream-table", "stream-stream", "table-table"])
def test_joins_of_keys_of_other_bytes_are_refused(kind: str) -> None:
    """An int has 4 or 8 bytes: no record would ever find its partner."""
    builder = mp.StreamsBuilder()
    left: Any = (builder.table if kind == "table-table" else builder.stream)("a", key=mp.Int, value=mp.String)
    right: Any = (builder.stream if kind == "stream-stream" else builder.table)("b", key=mp.Long, value=mp.String)
    windows = (mp.JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=1)),) if kind[-6:] == "stream" else ()
    with pytest.raises(TopologyError, match="written as Int and those of the other as Long"):
        left.join(right, lambda one, _other: one, *windows)
