"""Windows of event time and their arguments."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.dsl import TimeWindows
from millpond.errors import TopologyError

MS = timedelta(milliseconds=1)


@given(st.integers(1, 500), st.integers(1, 500), st.integers(0, 10_000))
def test_timestamp_is_in_every_window_that_covers_it(size: int, advance: int, moment: int) -> None:
    """Windows start at multiples of the advance, never before 0, and contain their start but not their end."""
    advance = min(advance, size)
    windows = TimeWindows(size * MS, advance=advance * MS)
    expected = [start for start in range(0, moment + 1, advance) if start <= moment < start + size]
    assert list(windows.starts(moment)) == expected
    assert windows.tumbling == (advance == size)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": timedelta(0)}, "positive size"),
        ({"size": 3600}, "use a datetime.timedelta"),
        ({"size": -MS}, "is negative"),
        ({"size": timedelta(microseconds=1500)}, "not a whole number of milliseconds"),
        ({"size": 10 * MS, "advance": 11 * MS}, "at most the size"),
        ({"size": 10 * MS, "advance": timedelta(0)}, "has to be positive"),
        ({"size": 10 * MS, "grace": -MS}, "grace=.* is negative"),
    ],
)
def test_invalid_windows_are_rejected(arguments: dict[str, timedelta], message: str) -> None:
    """The message has the cause and the cure."""
    with pytest.raises(TopologyError, match=message):
        TimeWindows(**arguments)
