"""The console of the operator: from its objects to documents, as often as it can afford."""

from __future__ import annotations

import asyncio
import itertools
import threading
from datetime import UTC, datetime

import msgspec
import pytest

from millpond.console import Unavailable
from millpond.protocol import clock
from millpond.protocol.overview import AutoscalingOverview, EdgeOverview, NodeOverview, TopologyOverview
from millpond_operator.controllers.console.documents import overview, summary, typed
from millpond_operator.controllers.console.source import OperatorConsole
from millpond_operator.controllers.events import EventHistory
from millpond_operator.controllers.rollout.status import AppStatus
from millpond_operator.kubernetes import Cache, kinds
from tests.console.pond import view

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
STATUS = {
    "phase": "Running",
    "readyReplicas": 3,
    "currentRevision": "5f9c",
    "image": "pond:1",
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "TasksStopped", "message": "2 tasks stopped.",
         "lastTransitionTime": "2026-11-23T11:59:00Z"},
        {"type": "Degraded", "status": "True", "reason": "NoBrokers", "message": "No broker answers.",
         "lastTransitionTime": "2026-11-23T11:58:00Z"},
    ],
}  # fmt: skip


def raw(name: str = "pond", **status: object):
    return {
        "apiVersion": "millpond.dev/v1alpha1",
        "kind": "StreamApp",
        "metadata": {"name": name, "namespace": "flights", "uid": name, "generation": 1, "resourceVersion": "5"},
        "spec": {"image": "pond:1", "topology": "app:pond", "replicas": 3, "kafka": {"bootstrapServers": "kafka:9092"}},
        "status": STATUS | status,
    }


def pod(name: str, node: str, *, ready: bool = True):
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": name, "namespace": "flights", "uid": name, "labels": {"millpond.dev/revision": "5f9c"}},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running", "conditions": conditions, "containerStatuses": []},
    }


def test_overview_joins_status_view_pods_and_events() -> None:
    """Conditions come with the times of their changes, workers with their nodes."""
    history = EventHistory()
    app = typed(raw())
    history.add(app, "WorkerLost", "pond-1 ended.", warning=True)
    history.add(app, "WorkerLost", "pond-1 ended.", warning=True)
    pods = [pod("pond-0", "node-0"), pod("pond-3", "node-3", ready=False)]
    found = overview(app, view(), pods, history.of("flights", "pond"), NOW)
    assert (found.summary.degraded, found.summary.message) == ("NoBrokers", "No broker answers.")
    assert (found.summary.ready, found.summary.workers_ready, found.summary.workers_wanted) == (False, 3, 3)
    assert (found.summary.tasks_running, found.summary.lag, found.epoch) == (6, 20, "7.42")
    assert [(each.type, found.at_ms - each.since_ms) for each in found.conditions] == [
        ("Ready", 60_000), ("Degraded", 120_000),
    ]  # fmt: skip
    assert [(each.text, each.count, each.warning) for each in found.events] == [("pond-1 ended.", 2, True)]
    assert {each.worker: (each.node, each.state) for each in found.workers}["pond-3"] == ("node-3", "starting")
    assert found.drawing
    assert [each.task for each in found.moves] == ["0_2", "1_2"]


def test_overview_without_a_coordinator_has_what_the_status_says() -> None:
    """Before workers report, and while the application is suspended."""
    found = overview(typed(raw()), None, [], (), NOW)
    assert (found.tasks, found.workers, found.topology, found.drawing) == ((), (), None, "")
    assert found.summary.phase == "Running"


def test_invalid_application_is_listed_with_its_condition() -> None:
    """People must find out why nothing runs."""
    broken = raw() | {"spec": {"image": 5}}
    found = summary(typed(broken), None)
    assert (found.name, found.degraded) == ("pond", "NoBrokers")


def test_autoscaling_is_read_from_the_status() -> None:
    """Whatever else the status contains."""
    said = {"mode": "Recommend", "currentReplicas": 3, "recommendedReplicas": 5, "message": "Busy.", "other": [1]}
    found = overview(typed(raw(autoscaling=said)), None, [], (), NOW).autoscaling
    assert found == AutoscalingOverview(mode="Recommend", current=3, recommended=5, reason="Busy.")
    assert overview(typed(raw(autoscaling={"mode": 7})), None, [], (), NOW).autoscaling is None


def test_autoscaler_decides_on_the_wanted_workers() -> None:
    """In mode Auto, unless a person changed `spec.replicas` since."""
    said = {"mode": "Auto", "currentReplicas": 6, "recommendedReplicas": 6, "specReplicas": 3}
    scaled = raw(autoscaling=said)
    scaled["spec"] |= {"autoscaling": {"mode": "Auto", "minReplicas": 2, "maxReplicas": 8}}
    assert summary(typed(scaled), None).workers_wanted == 6
    scaled["spec"]["replicas"] = 4
    assert summary(typed(scaled), None).workers_wanted == 4
    assert summary(typed(raw(autoscaling=said)), None).workers_wanted == 3


def test_history_is_bounded_and_newest_first() -> None:
    """A StreamApp that flaps must not fill the operator's memory."""
    history, app = EventHistory(), typed(raw())
    for number in range(500):
        history.add(app, "Flaps", f"number {number}")
    found = history.of("flights", "pond")
    assert (len(found), found[0].text) == (50, "number 499")
    history.forget("flights", "pond")
    assert history.of("flights", "pond") == ()


def filled(*names: str) -> Cache:
    cache = Cache()
    cache.resynced(kinds.STREAM_APP, [raw(name) for name in names], "5")
    return cache


def test_replica_that_stands_by_says_so() -> None:
    """And a leader that has not listed all objects."""
    console = OperatorConsole()
    with pytest.raises(Unavailable, match="stands by"):
        asyncio.run(console.summaries())
    console.lead(Cache(), lambda _app: None, EventHistory(), lambda: False)
    with pytest.raises(Unavailable, match="has just begun to lead"):
        asyncio.run(console.overview("flights", "pond"))


def test_many_viewers_cost_as_much_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is reused for a second, or for twenty times as long as it took."""
    now, views = [100.0], []
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])

    def seen(app):
        views.append(app.name)
        now[0] += 0.5
        return view()

    console = OperatorConsole()
    console.lead(filled("pond", "lake"), seen, EventHistory(), lambda: True)

    async def look(times: int) -> None:
        found = await asyncio.gather(*(console.summaries() for _ in range(times)))
        assert [each.name for each in found[0]] == ["lake", "pond"]

    asyncio.run(look(20))
    assert views == ["lake", "pond"]
    now[0] += 19.9
    asyncio.run(look(1))
    assert len(views) == 2
    now[0] += 0.2
    asyncio.run(look(1))
    assert len(views) == 4


def test_picture_is_drawn_once_for_a_topology() -> None:
    """It has no styles of its own, which the page's policy would block."""
    console = OperatorConsole()
    console.lead(filled("pond"), lambda _app: view(), EventHistory(), lambda: True)

    async def look():
        return await console.picture("flights", "pond"), await console.picture("flights", "pond")

    first, second = asyncio.run(look())
    assert first is second
    assert first.startswith("<svg")
    assert "<style" not in first
    assert 'data-topic="flights"' in first
    assert asyncio.run(console.picture("flights", "none")) is None


def test_topology_that_takes_long_to_draw_is_not_drawn() -> None:
    """A hostile tenant reports 60 nodes, each linked with all others: its layout would take minutes."""
    names = [f"n{number}" for number in range(60)]
    nodes = [NodeOverview(name="topic x", kind="topic", label="x")]
    nodes += [NodeOverview(name=name, kind="processor", subtopology=0, label=name) for name in names]
    edges = [EdgeOverview(source="topic x", target="n0", topic="x")]
    edges += [EdgeOverview(source=one, target=other) for one, other in itertools.combinations(names, 2)]
    hostile = TopologyOverview(nodes=tuple(nodes), edges=tuple(edges))
    console = OperatorConsole()
    seen = msgspec.structs.replace(view(), graph=hostile)
    console.lead(filled("pond"), lambda _app: seen, EventHistory(), lambda: True)
    assert asyncio.run(console.picture("flights", "pond")) is None


def test_large_application_does_not_hold_up_heartbeats() -> None:
    """Its documents are made by a thread."""
    threads = set()
    console = OperatorConsole()
    large = msgspec.structs.replace(view(), active={f"0_{number}": "pond-0" for number in range(5_000)})

    class Noting(tuple):
        __slots__ = ()

        def __iter__(self):
            threads.add(threading.current_thread().name)
            return super().__iter__()

    large = msgspec.structs.replace(large, members=Noting(large.members))
    console.lead(filled("pond"), lambda _app: large, EventHistory(), lambda: True)

    async def look() -> None:
        assert (await console.summaries())[0].tasks_total == 6
        found = await console.overview("flights", "pond")
        assert found is not None

    asyncio.run(look())
    assert threads
    assert threading.main_thread().name not in threads


def test_status_of_another_writer_does_not_break_the_list() -> None:
    """The status may be anything that the CRD accepts."""
    assert AppStatus.of({"phase": 3}) == AppStatus()
    assert summary(typed(raw() | {"status": {"phase": 3}}), None).phase == "Pending"
