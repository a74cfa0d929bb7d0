"""Applications as the operator and the API server show them: for views, and as objects to create."""

from __future__ import annotations

from typing import Any

import msgspec

from millpond.protocol.overview import (
    ApplicationOverview,
    ApplicationSummary,
    ConditionOverview,
    CopyOverview,
    EventOverview,
    MoveOverview,
    TaskOverview,
    WorkerOverview,
)

Object = dict[str, Any]
NOW_MS = 1_770_000_000_000
"""2026-02-02T02:40:00Z."""

OVERVIEW = ApplicationOverview(
    summary=ApplicationSummary(
        name="delays",
        namespace="shop",
        phase="RollingOut",
        ready=False,
        message="The workers are restarting with the new revision: waiting for delays-2 to run its tasks.",
        workers_ready=2,
        workers_wanted=3,
        tasks_running=3,
        tasks_total=4,
        records_per_second=45_120.4,
        lag=1_204,
        lag_seconds=0.31,
    ),
    application_id="delays",
    guarantee="exactly_once",
    image="registry.example.com/delays:3",
    revision="6a1f",
    epoch="7.41",
    conditions=(
        ConditionOverview(
            type="Ready",
            status="False",
            reason="RollingOut",
            message="The workers are restarting with the new revision: waiting for delays-2 to run its tasks.",
            since_ms=NOW_MS - 95_000,
        ),
        ConditionOverview(type="Progressing", status="True", reason="RollingOut", since_ms=NOW_MS - 95_000),
        ConditionOverview(type="Degraded", status="False", reason="AsExpected", since_ms=NOW_MS - 86_400_000),
        ConditionOverview(
            type="StandbysCaughtUp",
            status="False",
            reason="Restoring",
            message="2 of 4 standbys are caught up.",
            since_ms=NOW_MS - 60_000,
        ),
    ),
    events=(
        EventOverview(
            at_ms=NOW_MS - 95_000,
            reason="RollingOut",
            text="Restarting 3 workers with revision 7c20, one at a time.",
        ),
        EventOverview(
            at_ms=NOW_MS - 7_200_000,
            reason="WorkerLost",
            text="Worker delays-1 sends no heartbeats; 2 tasks are taken over by delays-0.",
            warning=True,
            count=3,
        ),
    ),
    workers=(
        WorkerOverview(
            worker="delays-0",
            state="alive",
            active=2,
            standby=1,
            records_per_second=30_080.2,
            utilisation=0.61,
            lag=1_100,
            node="node-1",
            revision="6a1f",
            volume_used=0.42,
        ),
        WorkerOverview(
            worker="delays-1",
            state="alive",
            active=1,
            standby=2,
            warm_up=1,
            records_per_second=15_040.2,
            utilisation=0.33,
            lag=104,
            restoring=1,
            node="node-2",
            revision="6a1f",
            volume_used=0.4,
        ),
        WorkerOverview(
            worker="delays-2",
            state="starting",
            node="node-3",
            revision="7c20",
            trouble="CrashLoopBackOff, last ended with Error (1)",
        ),
    ),
    tasks=(
        TaskOverview(
            task="0_0",
            worker="delays-0",
            owner="delays-0",
            state="running",
            records_per_second=15_040.1,
            lag=804,
            lag_seconds=0.2,
            standbys=(CopyOverview(worker="delays-1", state="running", lag=12),),
        ),
        TaskOverview(
            task="0_1",
            worker="delays-0",
            owner="delays-0",
            state="running",
            records_per_second=15_040.1,
            lag=296,
            lag_seconds=0.31,
            warm_ups=(CopyOverview(worker="delays-1", state="restoring", lag=120_400),),
        ),
        TaskOverview(
            task="0_2",
            worker="delays-1",
            owner="delays-1",
            state="running",
            records_per_second=15_040.2,
            lag=104,
            standbys=(CopyOverview(worker="delays-0", state="running", lag=0),),
        ),
        TaskOverview(
            task="0_3",
            worker="delays-1",
            owner="delays-2",
            state="restoring",
            restoring=31_200,
            standbys=(CopyOverview(worker="delays-0"),),
            note="0_3 moves to delays-1 when it is taken over from delays-2, which is dead",
        ),
    ),
    moves=(
        MoveOverview(
            task="0_1",
            source="delays-0",
            target="delays-1",
            reason="0_1 stays on delays-0 until delays-1's copy is within 10,000 records (lag 120,400)",
            lag=120_400,
        ),
    ),
    at_ms=NOW_MS,
)

APP: Object = {
    "apiVersion": "millpond.dev/v1alpha1",
    "kind": "StreamApp",
    "metadata": {"name": "delays", "namespace": "shop", "generation": 4},
    "spec": {
        "image": "registry.example.com/delays:3",
        "topology": "app:delays",
        "replicas": 3,
        "kafka": {"bootstrapServers": "kafka:9092"},
    },
    "status": {
        "observedGeneration": 4,
        "phase": "RollingOut",
        "workers": "2/3",
        "tasks": "3/4",
        "image": "registry.example.com/delays:3",
        "currentRevision": "6a1f",
        "targetRevision": "7c20",
        "rollout": {
            "revision": "7c20",
            "from": "6a1f",
            "strategy": "Rolling",
            "startedAt": "2026-02-02T02:38:25Z",
            "worker": "delays-2",
            "workerSince": "2026-02-02T02:38:30Z",
            "restarting": True,
        },
        "conditions": [
            {
                "type": each.type,
                "status": each.status,
                "reason": each.reason,
                "message": each.message,
                "lastTransitionTime": "2026-02-02T02:38:25Z",
                "observedGeneration": 4,
            }
            for each in OVERVIEW.conditions
        ],
    },
}

ASSIGNMENT: Object = {
    "apiVersion": "millpond.dev/v1alpha1",
    "kind": "StreamAssignment",
    "metadata": {"name": "delays", "namespace": "shop"},
    "spec": {
        "application": "delays",
        "term": 7,
        "number": 41,
        "workerCount": 2,
        "taskCount": 4,
        "topology": {
            "hash": "h1",
            "subtopologies": [{"id": 0, "partitions": 4, "stateful": True, "stores": ["counts"]}],
        },
        "workers": [
            {
                "name": "delays-0",
                "alive": True,
                "owns": ["0_0", "0_1"],
                "active": ["0_0", "0_1"],
                "standby": ["0_2", "0_3"],
            },
            {
                "name": "delays-1",
                "alive": True,
                "draining": False,
                "owns": ["0_2"],
                "active": ["0_2", "0_3"],
                "standby": ["0_0"],
                "warmUp": ["0_1"],
            },
            {"name": "delays-2", "alive": False, "owns": ["0_3"]},
        ],
    },
}


def pod(name: str, namespace: str, app: str = "delays", node: str = "") -> Object:
    """Return a worker's pod as the StatefulSet controller makes it."""
    labels = {
        "app.kubernetes.io/name": "millpond",
        "app.kubernetes.io/instance": app,
        "app.kubernetes.io/component": "worker",
        "millpond.dev/app": app,
        "millpond.dev/revision": "6a1f",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            **({"nodeName": node} if node else {}),
            "automountServiceAccountToken": False,
            "containers": [{"name": "worker", "image": "registry.example.com/delays:3"}],
        },
    }


def pod_status(*, ready: bool, restarts: int = 0, waiting: str = "") -> Object:
    """Return the status of a pod as its node reports it."""
    state: Object = {"waiting": {"reason": waiting}} if waiting else {"running": {"startedAt": "2026-02-02T02:00:00Z"}}
    last: Object = {"terminated": {"reason": "Error", "exitCode": 1}} if restarts else {}
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [
            {
                "name": "worker",
                "ready": ready,
                "restartCount": restarts,
                "image": "registry.example.com/delays:3",
                "imageID": "",
                "state": state,
                "lastState": last,
            }
        ],
    }


def as_json(overview: ApplicationOverview = OVERVIEW) -> Object:
    """Return an overview as the operator serves it."""
    return dict(msgspec.to_builtins(overview))
