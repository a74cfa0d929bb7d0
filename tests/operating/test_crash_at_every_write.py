"""An operator that is killed after any write of a life cycle, and started again, reaches the same final state.

A scenario runs undisturbed first. Then it runs again from the same start for each of its writes: the API server accepts
the write, its response is lost, and the operator is killed. Several runs go on at a time, each with a namespace, a
cluster and an operator of its own.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from tests.cluster.waiting import TIME, together, wait_for
from tests.operating.stage import App, Stage, about
from tests.operating.world import World

LANES = 2
SAMPLE = 2
"""Writes of a scenario after which a real operator is killed, too."""
#: The lease of one that was killed is deleted; one that lives must not lose it to a machine that is busy.
SETTINGS = {"LEASE_DURATION": "60s", "LEASE_RENEW_DEADLINE": "50s", "LEASE_RETRY_PERIOD": "10s"}
#: Writes of one run may come in another order or number than those of the next one.
_MOST_WRITES = 100


def _nothing(app: App) -> None:
    """Begin without the application."""


def _started(app: App) -> None:
    app.apply()
    app.runs()


def _started_with_finalizer(app: App) -> None:
    app.apply(deletion={"kafka": "Delete"})
    app.runs()


def _scale(app: App) -> None:
    app.apply(replicas=4)
    app.runs()
    app.apply(replicas=2)


def _gone(app: App) -> None:
    wait_for(lambda: not app.ending(), f"{app.name} is gone", otherwise=app.ending)


def _rolled_back(app: App) -> None:
    wait_for(
        lambda: (app.condition("Ready").get("reason"), app.status().get("workers")) == ("RolledBack", "2/2"),
        f"{app.name} went back",
        otherwise=app.status,
    )


@dataclass(frozen=True)
class Scenario:
    """What a user does, in which state, and when it is finished."""

    start: Callable[[App], None]
    act: Callable[[App], None]
    done: Callable[[App], None]


SCENARIOS = {
    "rollback": Scenario(_started, lambda app: app.apply(image="delays:bad"), _rolled_back),
    "upgrade": Scenario(_started, lambda app: app.apply(image="delays:2"), App.runs),
    "create": Scenario(_nothing, lambda app: app.apply(deletion={"kafka": "Delete"}), App.runs),
    "scale": Scenario(_started, _scale, App.runs),
    "delete": Scenario(_started_with_finalizer, App.delete, _gone),
}


@dataclass(frozen=True)
class Point:
    """A disturbed run, and what went wrong in it.

    Attributes:
        number: of the write.
        write: the last one that came through; "" when there are fewer.
        error: None when all was as it should be.
        seconds: it took.
    """

    number: int
    write: str
    error: BaseException | None
    seconds: float


class Lanes:
    """Clusters in which a scenario is run repeatedly."""

    def __init__(self, scenario: Scenario, stages: list[Stage]) -> None:
        self._scenario = scenario
        self._stages = stages
        self._numbers: Iterator[int] = iter(())
        self._lock = threading.Lock()
        self._over = False
        self._least = 0

    def undisturbed(self) -> tuple[object, int]:
        """Return the final state of an undisturbed run, and its number of writes."""
        stage, scenario = self._stages[0], self._scenario
        app = stage.app("steady")
        scenario.start(app)
        stage.proxy.forget()
        scenario.act(app)
        scenario.done(app)
        wanted = app.rest()
        writes = len(stage.proxy.writes(about(app)))
        app.delete()
        return wanted, writes

    def disturbed(self, wanted: object, writes: int, numbers: Iterable[int]) -> list[Point]:
        """Run once for each of these writes, or until a run has no such write."""
        self._least, self._numbers = writes, iter(numbers)
        points: list[Point] = []
        together([lambda stage=stage: self._lane(stage, wanted, points) for stage in self._stages], "lanes")
        return sorted(points, key=lambda point: point.number)

    def _lane(self, stage: Stage, wanted: object, points: list[Point]) -> None:
        while not self._over:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                return
            assert number < _MOST_WRITES
            point = self._point(stage, number, wanted)
            points.append(point)
            self._over = self._over or (not point.write and number > self._least)

    def _point(self, stage: Stage, number: int, wanted: object) -> Point:
        app, scenario, began = stage.app(f"crash-{number}"), self._scenario, time.monotonic()
        error, write = None, ""
        try:
            scenario.start(app)
            stage.proxy.forget()
            stage.crashed = False
            stage.proxy.halt_after(number, stage.crash, about(app))
            scenario.act(app)
            app.ends_like(wanted)
            writes = stage.proxy.writes(about(app))
            if len(writes) >= number:
                write = f"{writes[number - 1].verb} {writes[number - 1].resource}/{writes[number - 1].name}"
                wait_for(lambda: stage.crashed, "the operator is started again")
                stage.operator.await_reconciling()
                app.ends_like(wanted)
            assert not stage.violations()
            assert not app.streams.fenced, "tasks were taken from a worker that processed them"
        except BaseException as failure:
            error = failure
            write = write or "?"
        finally:
            stage.proxy.resume()
        app.delete()
        return Point(number, write, error, time.monotonic() - began)


@contextmanager
def _lanes(world: World, count: int, directory) -> Iterator[list[Stage]]:
    names = [world.namespace(f"crash-{lane}") for lane in range(count)]
    try:
        with ExitStack() as stack:
            stages = []
            for name in names:
                (directory / name).mkdir()
                stage = Stage(world, name, directory / name, SETTINGS)
                stages.append(stack.enter_context(stage))
            for stage in stages:
                stage.operator.start()
            for stage in stages:
                stage.operator.await_leading()
            yield stages
    finally:
        for name in names:
            world.api.delete("Namespace", None, name)


def _check(
    world: World, name: str, directory, subtests, capsys, chosen: Callable[[int], Iterable[int]], lanes: int = 1
) -> None:
    """Kill an operator after some writes of a scenario; `chosen` returns their numbers, given the number of all."""
    with _lanes(world, lanes if TIME.get().parallel else 1, directory) as stages:
        began = time.monotonic()
        runs = Lanes(SCENARIOS[name], stages)
        wanted, writes = runs.undisturbed()
        points = runs.disturbed(wanted, writes, chosen(writes))
        with capsys.disabled():
            print(f"\n    {name}: {writes} writes, {len(points)} runs in {time.monotonic() - began:.0f} s")
        for point in points:
            with subtests.test(f"{name}[{point.number}: {point.write}]"):
                if point.error is not None:
                    raise point.error


@pytest.mark.long
@pytest.mark.share(2)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SCENARIOS)
def test_kill_after_any_write_converges_to_the_same_state(name, world, tmp_path, subtests, capsys, seed, soak):
    """The objects and the status are the same, nothing is left over, and no task was ever processed by two workers.

    `make test` takes every second write, with the first one or without it, by the seed of the run.
    """
    numbers = itertools.count(1) if soak else itertools.count(1 + seed % 2, 2)
    _check(world, name, tmp_path, subtests, capsys, lambda _: numbers, LANES)


@pytest.mark.long
@pytest.mark.share(1)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_real_operators_that_are_killed_end_the_same_too(name, real_world, tmp_path, subtests, capsys, seed):
    """Some of the writes are repeated with processes on a real API server."""
    pick = random.Random(seed)
    _check(real_world, name, tmp_path, subtests, capsys, lambda writes: pick.sample(range(1, writes + 1), SAMPLE))
