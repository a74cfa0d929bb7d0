"""An initializer that returns one object for all keys is told when the topology is built, and it is not called."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import pytest

import millpond as mp
from millpond.dsl.functions import check_initializer


class Totals(mp.Struct):
    """A struct that can change."""

    count: int = 0


class Fixed(mp.Struct, frozen=True):
    """A struct that cannot."""

    count: int = 0


@dataclasses.dataclass
class Sums:
    """A dataclass that can change."""

    count: int = 0


SHARED: dict[str, int] = {}
TOTALS, FIXED, SUMS, PAIR = Totals(), Fixed(), Sums(), (1, 2)


def _local() -> Callable[[], Any]:
    pages: list[str] = []

    def initializer() -> list[str]:
        return pages

    return initializer


def _told(initializer: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> bool:
    with caplog.at_level(logging.WARNING, "millpond.dsl.functions"):
        check_initializer("aggregate()", initializer)
    return bool(caplog.records)


@pytest.mark.parametrize("initializer", [lambda: SHARED, lambda: TOTALS, lambda: SUMS, _local()])
def test_an_object_that_all_keys_begin_with_is_told(
    initializer: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert _told(initializer, caplog)


@pytest.mark.parametrize(
    "initializer",
    [lambda: FIXED, lambda: PAIR, lambda: 0, lambda: None, lambda: {**SHARED}, list, dict, Totals, lambda: Totals()],
)
def test_a_new_object_for_each_key_is_right(initializer: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    """So is one that cannot change."""
    assert not _told(initializer, caplog)


def test_an_initializer_is_not_called(caplog: pytest.LogCaptureFixture) -> None:
    """It may have effects."""

    def initializer() -> dict[str, int]:
        raise AssertionError

    assert not _told(initializer, caplog)
