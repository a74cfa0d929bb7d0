"""How busy the busiest worker would be, and which numbers of workers are worth choosing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond_operator.autoscaling import busiest, steps
from millpond_operator.autoscaling.estimate import Estimate

_LOADS = st.lists(st.floats(0, 2), min_size=1, max_size=40).map(lambda each: sorted(each, reverse=True))


@pytest.mark.parametrize(
    ("tasks", "most", "numbers"),
    [(12, 100, (1, 2, 3, 4, 6, 12)), (12, 5, (1, 2, 3, 4)), (1, 100, (1,)), (7, 7, (1, 2, 3, 4, 7))],
)
def test_only_numbers_that_take_tasks_off_the_busiest_worker_are_steps(tasks, most, numbers) -> None:
    assert steps({0: [0.5] * tasks}, most) == numbers
    assert steps({0: [0.0] * tasks}, most) == numbers


def test_tasks_of_several_subtopologies_count_together() -> None:
    """Two sub-topologies of three tasks each: six workers have one task each."""
    loads = {0: [0.4] * 3, 1: [0.4] * 3}
    assert busiest(loads, 6) == pytest.approx(0.4)
    assert steps(loads, 100) == (1, 2, 3, 6)


def test_a_light_subtopology_makes_no_steps() -> None:
    assert steps({0: [0.4] * 4, 1: [0.0001] * 100}, 200) == (1, 2, 4)


@given(_LOADS)
def test_busiest_worker_has_no_more_to_do_with_more_workers(loads) -> None:
    found = [busiest({0: loads}, workers) for workers in range(1, len(loads) + 3)]
    assert all(more <= fewer + 1e-9 for fewer, more in itertools.pairwise(found))
    assert found[0] == pytest.approx(sum(loads))
    assert found[-1] == loads[0]


@given(_LOADS, st.integers(1, 50))
def test_busiest_worker_is_never_underestimated(loads, workers) -> None:
    """Whichever tasks the assignment puts together."""
    share = -(-len(loads) // workers)
    assert busiest({0: loads}, workers) >= sum(loads[:share]) - 1e-9 if workers <= len(loads) else True
    assert busiest({0: loads}, workers) >= sum(loads) / workers - 1e-9


@given(_LOADS, st.integers(1, 50))
def test_steps_are_within_the_tasks_and_the_limit(loads, most) -> None:
    found = steps({0: loads}, most)
    assert found[0] == 1
    assert list(found) == sorted(set(found))
    assert found[-1] <= max(min(most, len(loads)), 1)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 40)), min_size=1, max_size=4),
    st.integers(1, 200),
)
def test_no_step_is_missed_although_few_numbers_are_tried(subtopologies, most) -> None:
    """The load changes only where workers get other numbers of tasks; all numbers tried one by one give the same."""
    loads = {each: [eighths / 8] * tasks for each, (tasks, eighths) in enumerate(subtopologies)}
    if not any(map(sum, loads.values())):
        loads = {each: [1.0] * len(tasks) for each, tasks in loads.items()}
    found, last = [1], busiest(loads, 1)
    for workers in range(2, min(most, sum(map(len, loads.values()))) + 1):
        load = busiest(loads, workers)
        if load <= last * 0.95 + 1e-12:
            found.append(workers)
            last = load
    assert steps(loads, most) == tuple(found)


def test_few_numbers_are_tried_for_very_many_tasks() -> None:
    """100,000 tasks of ten sub-topologies: the event loop has no time to try each number of workers."""
    estimate = Estimate.of_even_tasks({each: [0.1] * 10_000 for each in range(10)})
    assert len(estimate.changes(100_000)) < 2_500
