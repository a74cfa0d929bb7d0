"""The parts of a night share its time."""

from __future__ import annotations

import pytest

from tests.nightly.parts import PARTS, Part
from tests.nightly.sharing import left_out, shares


def _part(name: str, weight: float = 0.0, takes_s: float = 0.0) -> Part:
    return Part(name, weight, lambda seed, left: [], takes_s=takes_s)


_SOME = (_part("cluster", takes_s=1000.0), _part("mutants", takes_s=500.0), _part("a", 0.1), _part("b", 0.3))


def test_parts_with_random_choices_share_what_the_others_leave():
    """By their weights; a part that runs once has its own time."""
    assert shares(_SOME, 2000.0, 2) == pytest.approx({"cluster": 1000.0, "mutants": 500.0, "a": 625.0, "b": 1875.0})


def test_a_short_night_leaves_out_what_does_not_fit():
    """With the length of a night that has room for it."""
    assert left_out(_SOME, 600.0, 2) == {"cluster": 1000.0}
    assert shares(_SOME, 600.0, 2) == pytest.approx({"mutants": 500.0, "a": 175.0, "b": 525.0})
    assert left_out(_SOME, 1000.0, 2) == {"mutants": pytest.approx(1250.0)}


def test_without_a_limit_everything_runs_in_full():
    """No part has a limit of time."""
    assert left_out(_SOME, None, 2) == {}
    assert set(shares(_SOME, None, 2).values()) == {None}


@pytest.mark.parametrize("minutes", [5, 60, 480])
def test_every_part_of_a_night_gets_time(minutes):
    """Whatever the length, no part gets none, unless it is told."""
    given = shares(PARTS, minutes * 60.0, 2)
    assert all(seconds is not None and seconds > 0 for seconds in given.values())
    assert set(given) | set(left_out(PARTS, minutes * 60.0, 2)) == {part.name for part in PARTS}
