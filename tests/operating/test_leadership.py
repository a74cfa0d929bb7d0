"""Two operators, one leader: the other takes over whatever happens, and late writes of the first have no effect."""

from __future__ import annotations

import contextlib

import pytest

from millpond.protocol import clock
from tests.cluster.calls import is_write
from tests.cluster.faultproxy import on
from tests.cluster.waiting import wait_for
from tests.operating.stage import LEASE, Stage, about

#: Short enough to be waited for, long enough for a machine that is busy.
SETTINGS = {"LEASE_DURATION": "10s", "LEASE_RENEW_DEADLINE": "8s", "LEASE_RETRY_PERIOD": "300ms"}
#: Too long to be waited for.
LONG = {"LEASE_DURATION": "60s", "LEASE_RENEW_DEADLINE": "50s"}
EPOCH = "millpond.dev/leader-epoch"

pytestmark = pytest.mark.timeout(600)


@contextlib.contextmanager
def staged(world, directory, settings=SETTINGS):
    """Two operators, of which the first leads, and a running application."""
    with Stage(world, world.namespace("leadership"), directory, settings) as stage:
        stage.start()
        stage.add_operator().start()
        app = stage.app("delays")
        app.apply()
        app.runs()
        yield stage
    assert not stage.violations()


@pytest.fixture
def stage(request, world, tmp_path):
    with staged(world, tmp_path, getattr(request, "param", SETTINGS)) as stage:
        yield stage


@pytest.fixture
def app(stage):
    app = stage.app("delays")
    yield app
    assert not app.streams.fenced


def epochs(app):
    """Return the leader epochs of the objects that are written repeatedly."""
    assignment = app.stage.api.get("StreamAssignment", app.stage.namespace, app.name)
    return {app.find()["status"]["leaderEpoch"], int(assignment["metadata"]["annotations"][EPOCH])}


def epoch(stage):
    """Return the epoch of the leader."""
    return int(lease(stage)["metadata"]["annotations"][EPOCH])


def under_way(app):
    """Return whether a rollout waits for a new worker and everything until then is written."""
    last = max(call.at for call in app.stage.proxy.calls if is_write(call))
    rollout = app.status().get("rollout") or {}
    return bool(rollout.get("restarting")) and app.status()["readyReplicas"] == 2 and clock.monotonic() - last > 0.5


def lease(stage):
    return stage.api.get("Lease", stage.namespace, LEASE)


def leaders(stage):
    """Return the operators that consider themselves the leader."""
    return [each for each in stage.operators if each.leads()]


def writes_of(stage, number):
    return [str(call) for call in stage.proxies[number].writes()]


def asked(stage, number):
    return [str(call) for call in list(stage.proxies[number].calls) if is_write(call)]


def test_leader_frozen_past_its_lease_writes_nothing(stage, app):
    """The other operator finishes the rollout."""
    frozen_past_its_lease(stage, app)


@pytest.mark.long
def test_a_real_process_that_was_frozen_past_its_lease_writes_nothing(real_world, tmp_path):
    """The process is frozen by SIGSTOP, on the system's clocks."""
    with staged(real_world, tmp_path) as stage:
        app = stage.app("delays")
        frozen_past_its_lease(stage, app)
        assert not app.streams.fenced


def frozen_past_its_lease(stage, app):
    first, second = stage.operators
    app.apply(image="delays:2", rollout={"minReady": "4s"})
    wait_for(lambda: under_way(app), "a worker is on trial, and nothing on its way", otherwise=app.status, poll_s=0.05)
    first.freeze()
    second.await_leading()
    app.runs()
    ending = app.rest()
    stage.proxies[0].forget()
    app.apply(replicas=3)  # a reason to write
    first.thaw()
    assert first.ended(60) != 0
    assert not asked(stage, 0)
    app.apply(replicas=2)
    app.runs()
    app.ends_like(ending)
    assert epochs(app) == {epoch(stage)}


@pytest.mark.parametrize(
    "match",
    [
        on("streamapps", "write", subresource="status"),
        on("statefulsets", "write"),
        on("streamassignments", "write"),
        on("pods", "delete"),
        on("controllerrevisions", "write"),
    ],
    ids=["status", "StatefulSet", "StreamAssignment", "pod", "ControllerRevision"],
)
def test_a_write_that_arrives_when_another_one_leads_changes_nothing(match, stage, app):
    """The write was in flight when its writer was frozen."""
    first, second = stage.operators
    held = stage.proxies[0].hold(lambda call: match(call) and about(app)(call))
    app.apply(image="delays:2")
    held.await_arrival()
    first.freeze()
    second.await_leading()
    app.runs()
    ending, pods = app.rest(), uids(app)
    held.release()
    wait_for(lambda: held.call.status != 0, "the write arrived")
    first.thaw()
    assert first.ended(60) != 0
    second.await_reconciling()
    app.ends_like(ending)
    assert uids(app) == pods
    assert epochs(app) == {epoch(stage)}


@pytest.mark.parametrize("stage", [LONG], indirect=True, ids=["long lease"])
def test_leader_asked_to_end_is_followed_at_once(stage, app):
    """The next leader need not wait for the Lease to expire, and workers do not notice."""
    first, second = stage.operators
    app.streams.pauses.clear()
    stage.proxies[1].forget()
    began = clock.monotonic()
    assert first.stop() == 0
    second.await_leading()
    took = clock.monotonic() - began
    app.apply(image="delays:2")
    app.runs()
    assert took < 30, f"it took {took:.1f} s, as if the end of the lease were waited for"
    assert {pause.why for pause in app.streams.pauses} <= {"released"}


def test_deleted_lease_is_restored_without_two_leaders(stage, app):
    """One of the two leads afterwards, never both, and nothing is lost."""
    first, _ = stage.operators
    before = lease(stage)

    def one_leads():
        believe, found = leaders(stage), stage.api.find("Lease", stage.namespace, LEASE)
        return len(believe) == 1 and found and found["spec"]["holderIdentity"].startswith(believe[0].name)

    stage.api.delete("Lease", stage.namespace, LEASE)
    wait_for(one_leads, "there is a lease, and nobody leads but the one that it names")
    if leaders(stage) == [first]:
        assert lease(stage)["metadata"]["annotations"] == before["metadata"]["annotations"]
    app.apply(image="delays:2")
    app.runs()
    assert epochs(app) == {epoch(stage)}


@pytest.mark.parametrize("hangs", [False, True], ids=["refuses", "hangs"])
def test_a_leader_that_cannot_reach_the_api_server_stops_leading(hangs, stage, app):
    """It stops before the other may begin; requests that did not arrive are not sent later."""
    first, second = stage.operators
    stage.proxies[0].forget()
    with stage.proxies[0].unreachable(hangs=hangs):
        app.apply(image="delays:2")
        assert first.ended(60) != 0
        second.await_leading()
        app.runs()
        ending = app.rest()
    app.ends_like(ending)
    assert not [each for each in writes_of(stage, 0) if "leases" not in each]


def test_leaders_follow_each_other_with_growing_epochs(stage, app):
    """This holds even when the Lease is deleted in between."""
    seen = [epoch(stage)]
    for number, image in enumerate(("delays:2", "delays:1", "delays:2")):
        (leader,) = leaders(stage)
        leader.kill()
        if number != 1:
            stage.api.delete("Lease", stage.namespace, LEASE)
        (other,) = (each for each in stage.operators if each is not leader)
        other.await_leading()
        leader.start()
        app.apply(image=image)
        app.runs()
        assert epochs(app) == {epoch(stage)}
        seen.append(epoch(stage))
    assert seen == sorted(set(seen))


def uids(app) -> dict[str, str]:
    found = app.stage.api.list("Pod", app.stage.namespace, f"millpond.dev/app={app.name}")
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}
