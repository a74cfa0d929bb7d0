"""Faults of the API server during a whole life cycle do not change the outcome."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable

import pytest

from millpond.protocol import clock
from tests.cluster.api import Object
from tests.cluster.calls import Call, is_write
from tests.cluster.faultproxy import FaultProxy, WatchEnd, on
from tests.cluster.waiting import wait_for
from tests.operating.stage import LEASE, App, Stage

SETTINGS = {
    "RESYNC_INTERVAL": "1s",
    "WATCH_PATIENCE": "1s",
    # As long as a machine that is busy needs: nobody starts an operator again that lost it in the middle of a life.
    "LEASE_DURATION": "12s",
    "LEASE_RENEW_DEADLINE": "10s",
    "LEASE_RETRY_PERIOD": "300ms",
}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def stage(world, tmp_path):
    namespace = world.namespace("api-faults")
    with Stage(world, namespace, tmp_path, SETTINGS) as stage:
        stage.start()
        yield stage
    world.api.delete("Namespace", None, namespace)


@pytest.fixture
def app(request, stage):
    """An application for one test, which is removed afterwards."""
    if not stage.operator.alive:
        stage.start()
    app = stage.app(f"app-{uuid.uuid4().hex[:8]}")
    yield app
    stage.proxy.mend()
    app.delete()
    assert not stage.violations()


@pytest.fixture(scope="module")
def endings():
    """The outcomes of life cycles without faults, by the kind of operator."""
    return {}


@pytest.fixture
def ending(stage, endings):
    """The outcome of a life cycle without faults."""
    kind = stage.world.operator
    if kind not in endings:
        app = stage.app("steady")
        live(app, lambda: None)
        endings[kind] = app.rest()
        app.delete()
    return endings[kind]


def live(app: App, trouble: Callable[[], object]) -> None:
    """Run a whole life cycle except its end, with a fault before each step."""
    for change in ({"replicas": 2}, {"replicas": 4}, {"replicas": 2}, {"image": "delays:2"}):
        trouble()
        app.apply(**change)
        app.runs()
    # Later, when all start at once, the first ones may be given what others come back for.
    assert not app.streams.fenced, "tasks were taken from a worker that processed them"
    trouble()
    app.apply(suspended=True)
    app.phase_is("Suspended")
    trouble()
    app.apply(suspended=False)
    app.runs()


def reads(call: Call) -> bool:
    return bool(call.resource) and call.verb in {"get", "list"} and call.resource != "leases"


def cached(call: Call) -> bool:
    """Return whether a request is about a kind that the operator lists and watches."""
    return call.resource not in {"leases", "secrets"}


def every(number: int, match: Callable[[Call], bool]) -> Callable[[Call], bool]:
    """Match every n-th request."""
    count = itertools.count(1)
    return lambda call: match(call) and next(count) % number == 0


def burst(status: int, match: Callable[[Call], bool], times: int = 4, **more) -> Callable[[FaultProxy], None]:
    return lambda proxy: proxy.answer(status, times=times, match=match, **more)


FAULTS: dict[str, Callable[[FaultProxy], object]] = {
    "writes answered with 409": burst(409, is_write),
    "writes answered with 422": burst(422, is_write),
    "writes answered with 429": burst(429, is_write, retry_after=1),
    "writes answered with 500": burst(500, is_write),
    "writes done and answered with 500": burst(500, is_write, applied=True),
    "writes whose answers are lost": lambda proxy: proxy.lose_answers(times=4),
    "reads answered with 429": burst(429, reads, retry_after=1),
    "reads answered with 500": burst(500, reads, times=12),
    "every third write answered with 409": burst(409, every(3, is_write), times=20),
    "every third write's answer lost": lambda proxy: proxy.lose_answers(match=every(3, is_write), times=20),
    "leases that cannot be renewed at once": burst(500, on("leases"), times=2),
    "watches that break": lambda proxy: proxy.end_watches(WatchEnd.RESET),
    "watches that expire": lambda proxy: proxy.end_watches(WatchEnd.EXPIRED),
    "watches that fall silent": lambda proxy: proxy.silence_watches(new=False),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("fault", FAULTS)
def test_api_faults_do_not_change_the_outcome(fault, stage, app, ending):
    """The fault begins before every change of the StreamApp and lasts into it."""

    def trouble() -> None:
        stage.proxy.mend()
        FAULTS[fault](stage.proxy)

    live(app, trouble)
    stage.proxy.mend()
    app.ends_like(ending)


def test_nothing_is_written_when_everything_is_listed_and_nothing_changed(stage, app):
    """Listing repeatedly causes no writes."""
    app.apply()
    app.runs()
    wait_for(lambda: quiet(stage), "the operator is done")
    stage.proxy.forget()
    listing = on("streamapps", "list")
    wait_for(lambda: sum(map(listing, stage.proxy.calls)) >= 3, "everything was listed three times")
    assert not [str(call) for call in stage.proxy.calls if is_write(call)]


@pytest.mark.share(2)
@pytest.mark.parametrize("hangs", [False, True], ids=["refuses", "hangs"])
@pytest.mark.parametrize("seconds", [1.0, 13.0], ids=["shorter than the lease", "longer than the lease"])
def test_workers_process_while_the_api_server_is_away(seconds, hangs, stage, app, ending):
    """Changes that a user requested meanwhile are applied afterwards, by this operator or the next one."""
    app.apply()
    app.runs()
    wait_for(lambda: [*Counter(app.streams.running().values()).values()] == [2, 2], "both workers have their tasks")
    app.streams.pauses.clear()
    with stage.kept_running():
        with stage.proxy.unreachable(hangs=hangs):
            until = clock.monotonic() + seconds
            wait_for(lambda: clock.monotonic() > until or still(app), "", poll_s=0.05)
            assert not still(app)
            app.apply(image="delays:2")
        app.runs()
        app.ends_like(ending)
    assert {pause.why for pause in app.streams.pauses} <= {"released"}
    assert not app.streams.fenced


@pytest.mark.parametrize("change", [{"replicas": 4}, {"image": "delays:2"}, {"suspended": True}], ids=str)
def test_operator_with_old_lists_undoes_nothing(change, stage, app):
    """An outdated replica of the API server does not affect pods."""
    app.apply()
    app.runs()
    before = app.find()["metadata"]["resourceVersion"]
    app.apply(**change)
    app.phase_is("Suspended") if "suspended" in change else app.runs()
    wanted, pods = built(app.rest()), pods_of(app)
    start_with_old_lists(stage, before)
    wait_for(lambda: built(app.ending()) == wanted, "it is as it was", otherwise=lambda: built(app.ending()))
    stage.proxy.mend()
    wait_for(lambda: quiet(stage), "the operator is done")
    assert built(app.ending()) == wanted
    assert pods_of(app) == pods


def test_operator_with_old_lists_recreates_nothing_deleted(stage, app):
    """Objects that it creates for a StreamApp from an outdated list are deleted again."""
    app.apply()
    app.runs()
    before = app.find()["metadata"]["resourceVersion"]
    app.delete()
    wait_for(lambda: not app.ending(), "it is gone", otherwise=app.ending)
    start_with_old_lists(stage, before)
    stage.proxy.mend()
    wait_for(lambda: quiet(stage), "the operator is done")
    wait_for(lambda: not app.ending(), "it is gone", otherwise=app.ending)


def start_with_old_lists(stage: Stage, version: str) -> None:
    stage.operator.kill()
    stage.api.delete("Lease", stage.namespace, LEASE)
    stage.proxy.stale_lists(version, match=cached)
    stage.operator.start()
    stage.operator.await_reconciling()


def built(ending: Object) -> Object:
    """Return a final state without ended workers, which a coordinator may remember or forget."""
    made = {name: each for name, each in ending.items() if not name.startswith("StreamAssignment")}
    made["StreamApp"]["status"] = {key: each for key, each in made["StreamApp"]["status"].items() if key != "tasks"}
    return made


def still(app: App) -> bool:
    """Return whether a task is stopped."""
    return len(app.streams.running()) < app.stage.tasks or bool(app.streams.pauses)


def quiet(stage: Stage) -> bool:
    """Return whether the operator has not written for a while."""
    last = max((call.at for call in stage.proxy.calls if is_write(call)), default=0.0)
    return clock.monotonic() - last > 3.0


def pods_of(app: App) -> dict[str, str]:
    found = app.stage.api.list("Pod", app.stage.namespace, f"millpond.dev/app={app.name}")
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}
