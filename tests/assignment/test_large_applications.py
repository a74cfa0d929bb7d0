"""Ten thousand tasks on five hundred workers."""

from __future__ import annotations

import itertools
import time

import pytest

from bench.assignment import Size, cases, measure
from millpond_operator.assignment import refine, target
from tests.assignment.simulator import check_placement, check_target
from tests.support.measuring.figures import Figures

#: Seconds of CPU that are wished for; an idle machine takes about a tenth of that.
WISHED_S = 1.0
#: Seconds of CPU that no machine needs. An assignment whose cost grows with the square of the tasks needs more.
LIMIT_S = 30.0


@pytest.mark.slow
def test_a_large_application_is_assigned_in_seconds(figures: Figures):
    """First, and after a worker was lost or added: target, refine and grant together."""
    for case in itertools.takewhile(lambda case: case.name != "50 workers added", cases(Size())):
        took_s = measure(case, repeats=1, clock=time.process_time).total
        figures.note(f"10,000 tasks assigned, {case.name}", took_s, "s of CPU", WISHED_S)
        assert took_s < LIMIT_S, case.name


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
