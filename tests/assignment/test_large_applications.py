"""Ten thousand tasks on five hundred workers."""

from __future__ import annotations

import itertools
import time

import pytest

from bench.assignment import Size, cases, measure
from millpond_operator.assignment import refine, target
from tests.assignment.simulator import check_placement, check_target

LIMIT = 1.0  # seconds of CPU; on an idle machine it takes about a tenth of that


@pytest.mark.slow
def test_a_large_application_is_assigned_within_a_second():
    """First, and after a worker was lost or added: target, refine and grant together."""
    for case in itertools.takewhile(lambda case: case.name != "50 workers added", cases(Size())):
        figures = measure(case, repeats=1, clock=time.process_time)
        print(f"{case.name}: {1000 * figures.total:.0f} ms")
        assert figures.total <= LIMIT, case.name


def test_a_large_assignment_is_as_good_as_a_small_one():
    """Balanced, spread and stable after every change."""
    for case in cases(Size(tasks=1_000, workers=61, subtopologies=7, standbys=2)):
        goal = target(case.situation, case.options, case.goal)
        check_target(goal, case.situation, case.options)
        assert target(case.situation, case.options, goal) == goal, case.name
        placement = refine(goal, case.situation, case.options, case.placement)
        check_placement(placement, case.situation, case.options)
        assert refine(goal, case.situation, case.options, placement) == placement, case.name
        for task, standbys in goal.standby.items():
            zones = {case.situation.workers[id_].tags["zone"] for id_ in (goal.active[task], *standbys)}
            everywhere = {worker.tags["zone"] for worker in case.situation.workers.values() if worker.placeable}
            assert len(zones) == min(3, len(everywhere)), case.name
