"""Every state that a worker with a coordinator can reach: promotions, hand-overs, take-overs, losses, late answers.

The task is assigned, released and taken over in any order; lookups are answered late; the coordinator and the brokers
fail.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.lifecycle.coordinated import Violation, Worker


class Explored(NamedTuple):
    """All reachable states, by their keys."""

    first_step: dict[Any, tuple[str, Any] | None]
    """The step that led to a state first, and the state before it."""
    own: dict[Any, list[Any]]
    """The states that the worker reaches by itself."""
    settled: set[Any]
    running: set[Any]


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing, since an exploration would fill files."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _explore(assignments: Collection[str], **circumstances: bool) -> Explored:
    first = Worker(assignments, **circumstances)
    explored = Explored({first.key(): None}, {}, set(), set())
    todo = [(first, first.key())]
    with _quiet():
        for world, key in todo:
            own = explored.own[key] = []
            try:
                for what, by_itself, after in world.steps():
                    after_key = after.key()
                    if by_itself:
                        own.append(after_key)
                    if after_key not in explored.first_step:
                        explored.first_step[after_key] = (what, key)
                        todo.append((after, after_key))
            except Violation as violation:
                raise Violation("\n".join([str(violation), "after:", *_path(explored, key)])) from violation
            if world.settled():
                explored.settled.add(key)
            if world.record is not None and world.record.running:
                explored.running.add(key)
    print(f"{len(explored.first_step)} states")
    return explored


def _path(explored: Explored, key: Any) -> list[str]:
    steps: list[str] = []
    while (step := explored.first_step[key]) is not None:
        steps.append(step[0])
        key = step[1]
    return steps[::-1]


def _check_progress(explored: Explored) -> None:
    """From each state the worker fulfils the coordinator's assignment without another order."""
    backward: dict[Any, list[Any]] = {key: [] for key in explored.first_step}
    for key, afters in explored.own.items():
        for after in afters:
            backward[after].append(key)
    reached, todo = set(explored.settled), list(explored.settled)
    while todo:
        for before in backward[todo.pop()]:
            if before not in reached:
                reached.add(before)
                todo.append(before)
    stuck = [key for key in explored.first_step if key not in reached]
    assert not stuck, "\n".join(
        [f"{len(stuck)} states, the first of them after:", *_path(explored, stuck[0]), str(stuck[0])]
    )


@pytest.mark.share(1)
@pytest.mark.parametrize("fenced_by_brokers", [True, False], ids=["exactly_once", "at_least_once"])
def test_no_order_of_assignments_breaks_an_invariant(fenced_by_brokers: bool) -> None:
    """A worker writes only for tasks that it owns, and fulfils the coordinator's assignment."""
    explored = _explore(["active"], fenced_by_brokers=fenced_by_brokers)
    assert explored.running
    _check_progress(explored)


@pytest.mark.share(2)
@pytest.mark.slow
@pytest.mark.timeout(300)  # ten seconds of computing, beside others that compute
@pytest.mark.parametrize(
    ("assignments", "circumstances"),
    [
        (["nothing", "active"], {}),
        (["nothing", "active"], {"rejections": True}),
        (["nothing", "claim"], {}),
        (["nothing", "take over from the other"], {}),
        (["active", "hand over"], {}),
        (["active", "standby"], {}),
    ],
    ids=str,
)
def test_no_order_breaks_an_invariant_of_exactly_once(assignments: list[str], circumstances: dict[str, bool]) -> None:
    """The same with other orders of the coordinator."""
    _check_progress(_explore(assignments, fenced_by_brokers=True, **circumstances))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("assignments", "circumstances"),
    [
        (["active"], {"outages": True}),
        (["active"], {"missing": True}),
        (["nothing", "active"], {}),
        (["nothing", "active"], {"rejections": True}),
        (["nothing", "claim"], {}),
        (["nothing", "take over from the other"], {}),
        (["active", "hand over"], {}),
    ],
    ids=str,
)
def test_no_order_breaks_an_invariant_of_at_least_once(assignments: list[str], circumstances: dict[str, bool]) -> None:
    """The same without fencing: the ownership check alone keeps the worker from writing."""
    _check_progress(_explore(assignments, fenced_by_brokers=False, **circumstances))
