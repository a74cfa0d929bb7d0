"""Moments are converted by `millpond.times`: floats of `datetime.timestamp()` lose a millisecond of some moments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.catalog import as_of
from millpond.cli.cluster import overview
from millpond.cli.logs import containers
from millpond.cli.reset import command as reset
from millpond.queries.parameters import time_ms
from millpond.serdes.windowed import Window
from millpond.times import EPOCH, epoch_ms, iso, moment, parse_epoch_ms
from tests.packaging.structure import ROOT

FOLDERS = ("worker", "operator", "spark", "bench", "examples", "monitoring", "release")
#: A moment of 2107, whose float in seconds, times 1000, is a millisecond early.
LOST_MS = 4_337_231_127_643
moments = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30))]))


@given(moments)
def test_a_moment_is_its_own_millisecond(when: datetime) -> None:
    ms = epoch_ms(when)
    assert EPOCH + ms * timedelta(milliseconds=1) <= when < EPOCH + (ms + 1) * timedelta(milliseconds=1)
    assert epoch_ms(moment(ms)) == ms
    assert parse_epoch_ms(when.isoformat()) == ms
    assert epoch_ms(when.replace(tzinfo=None)) == epoch_ms(when.replace(tzinfo=UTC))


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_time_in_milliseconds_has_a_text(ms: int) -> None:
    text = iso(ms)
    assert text.endswith("Z")
    year = int(text[: text.index("-", 1)])
    assert abs(year - (1970 + ms / 31_556_952_000)) < 2
    assert moment(ms).tzinfo is UTC
    assert Window(ms, ms).end_time == moment(ms)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
        (2**63 - 1, "+292278994-08-17T07:12:55.807Z"),
        (-62_135_596_800_001, "0000-12-31T23:59:59.999Z"),
    ],
)
def test_years_beyond_those_of_python_are_signed(ms: int, text: str) -> None:
    """As Java's `Instant` writes them, so the last moment of a `long` is the same in both."""
    assert iso(ms) == text


def test_commands_and_queries_read_a_time_to_its_millisecond() -> None:
    """`--as-of`, `--to-datetime` and times in queries: each of them lost a millisecond of this moment."""
    text = iso(LOST_MS)
    assert (as_of.parse_time(text), time_ms({"from": text}, "from", 0)) == (LOST_MS, LOST_MS)
    assert reset._timestamp_ms(text) == containers._ms(text) == overview._ms(text) == LOST_MS


def _inexact(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        called = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
        if called in ("fromtimestamp", "utcfromtimestamp"):
            yield node
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
            calls = [side.func for side in (node.left, node.right) if isinstance(side, ast.Call)]
            if any(isinstance(each, ast.Attribute) and each.attr == "timestamp" for each in calls):
                yield node


def test_no_code_counts_moments_in_floats() -> None:
    """Each place is named: use `epoch_ms`, `moment`, `iso` or `parse_epoch_ms`."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in FOLDERS
        for path in sorted(Path(ROOT, folder).rglob("*.py"))
        for node in _inexact(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []
    assert [node.lineno for node in _inexact(ast.parse("int(when.timestamp() * 1000)\n"))] == [1]
