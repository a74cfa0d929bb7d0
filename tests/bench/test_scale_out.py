"""The analysis of the bench of an added worker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.failover.analysis import Gap, Move
from bench.failover.fleet import Held
from bench.failover.records import Result
from bench.scale_out.figures import caught_up, longest_gap_ms, longest_pause_ms, shared, size_of


@pytest.mark.parametrize(
    ("text", "size"), [("17", 17), ("64M", 64_000_000), ("2g", 2_000_000_000), ("1.5K", 1_500), ("3GB", 3_000_000_000)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    """Sizes are in powers of ten."""
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "2T", "M"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """The error shows the right form."""
    with pytest.raises(ValueError, match="64M or 2G"):
        size_of(text)


def test_a_copy_counts_once_its_lag_is_small() -> None:
    """A copy with unknown lag does not count, and neither does an unknown worker."""
    held = Held(active=frozenset({1}), standby={2: 10, 3: 1_000_000, 4: None, 5: -1})
    assert caught_up({"new": held}, "new") == 2
    assert caught_up({"new": held}, "old") == 0


@given(st.sets(st.integers(0, 7)), st.booleans())
def test_all_is_shared_when_each_task_has_one_owner_and_none_moves(given: set[int], ready: bool) -> None:
    """Two workers have four of eight tasks each."""
    rest = frozenset(range(8)) - given
    holdings = {"old": Held(active=rest), "new": Held(active=frozenset(given), ready=ready)}
    assert shared(holdings, 8) == (ready and len(given) == 4)
    twice = {"old": Held(active=rest | given), "new": Held(active=frozenset(given))}
    assert not given or not shared(twice, 8)


def result(owner: str, processed_us: int) -> Result:
    return Result(0, 0, 1, 0, processed_us, owner, 0)


def test_pauses_are_those_of_tasks_that_moved_to_the_worker() -> None:
    """Tasks that moved back later do not count."""
    moves = [
        Move(result("old", 1_000), result("new", 4_000)),
        Move(result("old", 1_000), result("new", 3_000)),
        Move(result("new", 5_000), result("old", 95_000)),
    ]
    assert longest_pause_ms(moves, "new") == 3.0
    assert longest_pause_ms(moves, "nobody") == 0.0
    gaps = [Gap(0, 1_000, 900_000), Gap(1, 2_000, 50_000), Gap(2, 3_000, 70_000)]
    assert longest_gap_ms(gaps, 1_500) == 70.0
