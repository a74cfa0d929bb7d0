"""Pauses, computed from the times of output."""

from __future__ import annotations

from math import inf

import pytest

from e2e.measuring.pauses import Arrivals, Event, table


def _steady(*moments: float) -> Arrivals:
    arrivals = Arrivals()
    for moment in moments:
        arrivals.add("0_0", moment)
    return arrivals


def test_output_of_one_commit_is_one_arrival() -> None:
    """Output within milliseconds is one arrival, without a gap."""
    arrivals = _steady(1.0, 1.005, 1.01, 1.11, 1.115, 1.215)
    assert arrivals.usual("0_0", 0.0, 2.0) == pytest.approx(0.1, abs=0.01)


def test_a_gap_that_overlaps_an_event_counts_in_full() -> None:
    """A gap that touches the event counts in its full length."""
    arrivals = _steady(1.0, 2.0, 5.0, 6.0, 7.0)
    assert arrivals.longest("0_0", 3.0, 5.5) == pytest.approx(3.0)
    assert arrivals.longest("0_0", 5.5, 6.9) == pytest.approx(1.0)


def test_unfinished_gap_counts_up_to_now() -> None:
    """The gap of a task without further output counts up to now."""
    assert _steady(1.0, 2.0).longest("0_0", 1.5, 9.0) == pytest.approx(7.0)


def test_tasks_are_steady_that_follow_their_input() -> None:
    """A gap of the input is allowed to its tasks; an input with long gaps, or without any output, lets nothing rest."""
    arrivals = Arrivals()
    comes: dict[str, list[float]] = {
        "path": [0.0, 6.5, 7.4, 8.3, 9.2, 10.0],
        "0_0": [0.0, 6.5, 8.3, 9.9],
        "0_1": [0.0, 6.5, 8.6, 9.9],
        "0_2": [7.5, 8.3, 9.9],
    }
    for task, moments in comes.items():
        for moment in moments:
            arrivals.add(task, moment)
    restless = arrivals.restless("path", ["0_0", "0_1", "0_2", "0_3"], 3.0, 10.0)
    assert restless == {"0_1": pytest.approx(2.1), "0_2": inf, "0_3": inf}
    assert arrivals.restless("path", ["0_0"], 3.0, 60.0) == {"path": pytest.approx(50.0)}
    assert arrivals.restless("other", ["0_0"], 3.0, 10.0) == {"other": inf}


def test_the_table_has_a_line_for_each_event() -> None:
    """Events, tasks, and the figures over all tasks."""
    told = table([Event("scale 2 to 4", 8.25, {"0_0": 0.5, "1_0": 1.25}, 0.04)]).splitlines()
    assert told[1].split() == ["took", "0_0", "1_0", "p50", "p99", "max", "path"]
    assert told[2].split()[-7:] == ["8.2", "0.50", "1.25", "0.50", "1.25", "1.25", "0.04"]
