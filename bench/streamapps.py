"""Many StreamApps at one operator: `python -m bench.streamapps`.

It uses a real API server and etcd, with the operator on the same cores; no nodes, so no pod runs. The run measures

- the time until all StreamApps that are created at once are applied: every child object and the status;
- the writes of two resyncs of all of them, and those of an idle minute: none;
- the CPU time while nothing changes; all pods are missing, so the operator looks for the cause once a minute;
- the time from a change of a specification until the StatefulSet has it, one change at a time;
- the highest memory of the operator.

    python -m bench.streamapps apps=2000 changes=200
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.operating import operating
from bench.options import from_arguments
from tests.cluster.api import AsyncApi, Object
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.binaries import BinariesMissing
from tests.operating.process import OperatorProcess as Operator

_NAMESPACE = "streamapps"
_CREATORS = 20
#: The API server shares the cores with everything else: the operator waits longer than by default.
_PATIENT = {"LEASE_DURATION": "60s", "LEASE_RENEW_DEADLINE": "50s", "REQUEST_TIMEOUT": "30s"}
_WRITES = ("PATCH", "POST", "DELETE")  # PUT renews the lease
RESULT = Path("build/bench-streamapps.json")


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    apps: int = 2000
    changes: int = 200
    seed: int = 1


@dataclass(frozen=True)
class Figures:
    """The measurements of a run; times in seconds."""

    apps: int
    created: float
    """The time until the last one was created."""
    applied: float
    """The time from the first creation until the last one was applied."""
    resync_writes: int
    idle_writes: float
    """Writes per minute without changes, besides the renewals of the lease."""
    idle_core_share: float
    """CPU time per second without changes."""
    change_p50: float
    change_p99: float
    change_max: float
    operator_mb: float
    """The highest memory, in megabytes."""
    operator_cpu_s: float
    """CPU time of the operator from its start until all were applied."""
    change_cpu_s: float
    """CPU time of the operator for one change."""
    load_average: float
    """Load average of the machine: above its number of cores, other processes distort the times."""


def streamapp(name: str, image: str = "registry.example/delays:1") -> Object:
    """Return a typical StreamApp."""
    return {
        "apiVersion": "millpond.dev/v1alpha1",
        "kind": "StreamApp",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {
            "image": image,
            "topology": "app:delays",
            "replicas": 4,
            "standbyReplicas": 1,
            "kafka": {"bootstrapServers": "kafka:9092", "credentialsSecret": "kafka"},
            "config": {"max.task.idle.ms": "100"},
            "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        },
    }


async def measure(server: SharedApiServer, operator: Operator, options: Options) -> Figures:
    """Create all StreamApps, wait, change some; return the measurements."""
    assert operator.process is not None
    process = psutil.Process(operator.process.pid)
    async with AsyncApi(server.admin, agent="bench") as api:
        names = [f"app-{number:04}" for number in range(options.apps)]
        began = time.monotonic()
        free = asyncio.Semaphore(_CREATORS)

        async def create(name: str) -> None:
            async with free:
                await api.create(streamapp(name))

        await asyncio.gather(*map(create, names))
        created = time.monotonic() - began
        while not await _all_applied(api, options.apps):  # noqa: ASYNC110 - polls another process
            await asyncio.sleep(0.25)
        applied = time.monotonic() - began
        cpu = sum(process.cpu_times()[:2])
        memory = process.memory_info().rss

        resync_writes, idle_writes, idle_share = await _idle(operator, process)
        memory = max(memory, process.memory_info().rss)
        used, began = sum(process.cpu_times()[:2]), time.monotonic()
        latencies = await _changes(api, names, options)
        used = sum(process.cpu_times()[:2]) - used - idle_share * (time.monotonic() - began)
        memory = max(memory, process.memory_info().rss)
    ordered = sorted(latencies)
    return Figures(
        options.apps,
        created,
        applied,
        resync_writes,
        idle_writes,
        idle_share,
        statistics.median(ordered),
        ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
        ordered[-1],
        memory / 1e6,
        cpu,
        used / len(latencies),
        os.getloadavg()[0],
    )


async def _all_applied(api: AsyncApi, apps: int) -> bool:
    """Return whether every StreamApp has all of its child objects, and a status of its current specification."""
    found = await api.list("StreamApp", _NAMESPACE)
    if sum(app.get("status", {}).get("observedGeneration") == app["metadata"]["generation"] for app in found) < apps:
        return False
    for kind in ("StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy", "StreamAssignment"):
        if len(await api.list(kind, _NAMESPACE, labels="millpond.dev/app")) < apps:
            return False
    return True


def _writes(operator: Operator) -> int:
    """Return the number of writes so far, except those of the lease."""
    return int(sum(operator.metric("rest_client_requests_total", method=each) or 0 for each in _WRITES))


def _lists(operator: Operator) -> int:
    return int(operator.metric("rest_client_request_duration_seconds_count", verb="list") or 0)


async def _idle(operator: Operator, process: psutil.Process) -> tuple[int, float, float]:
    """Wait until there are no writes; return the writes of two resyncs, writes per minute, and CPU time per second."""
    quiet = _writes(operator)
    while True:  # late writes, such as those of a second reconcile
        await asyncio.sleep(2)
        now = _writes(operator)
        if now == quiet:
            break
        quiet = now
    lists, cpu, began = _lists(operator), sum(process.cpu_times()[:2]), time.monotonic()
    while _lists(operator) < lists + 2 * 12:  # noqa: ASYNC110 - polls another process
        await asyncio.sleep(0.5)
    writes, took = _writes(operator) - quiet, time.monotonic() - began
    return writes, writes * 60 / took, (sum(process.cpu_times()[:2]) - cpu) / took


async def _changes(api: AsyncApi, names: list[str], options: Options) -> list[float]:
    """Return the seconds from each change of an image until the StatefulSet has it."""
    seen: dict[str, str] = {}
    news = asyncio.Event()
    chance = random.Random(options.seed)

    async def notice(_change: str, item: Object) -> None:
        seen[item["metadata"]["name"]] = item["spec"]["template"]["spec"]["containers"][0]["image"]
        news.set()

    following = asyncio.create_task(api.follow("StatefulSet", notice, _NAMESPACE))
    try:
        while len(seen) < len(names):  # noqa: ASYNC110 - once, before anything is measured
            await asyncio.sleep(0.1)
        latencies = []
        for number in range(options.changes):
            name, image = chance.choice(names), f"registry.example/delays:{number + 2}"
            began = time.monotonic()
            await api.patch("StreamApp", _NAMESPACE, name, {"spec": {"image": image}})
            while seen.get(name) != image:
                news.clear()
                async with asyncio.timeout(60):
                    await news.wait()
            latencies.append(time.monotonic() - began)
            await asyncio.sleep(0.02)
        return latencies
    finally:
        following.cancel()


def run(options: Options) -> Figures:
    """Run the whole bench.

    Raises:
        BinariesMissing: the API server is not installed.
    """
    with operating(_NAMESPACE, {"RESYNC_INTERVAL": "60s", "WATCH_PATIENCE": "3m", **_PATIENT}) as setting:
        return asyncio.run(measure(setting.server, setting.operator, options))


def main() -> None:
    """Run the bench; print and save the results."""
    options = Options(**{name: int(value) for name, value in from_arguments(sys.argv[1:]).items()})
    try:
        figures = run(options)
    except BinariesMissing as missing:
        sys.exit(str(missing))
    print(f"\n  {figures.apps} StreamApps on {os.cpu_count()} cores, with the API server and etcd on the same cores\n")
    for what, value, target in (
        ("all created", f"{figures.created:.1f} s", ""),
        ("all applied", f"{figures.applied:.1f} s", "60 s"),
        ("writes of a resync", f"{figures.resync_writes}", "0"),
        ("writes of an idle minute", f"{figures.idle_writes:.0f}", "0"),
        ("CPU while idle", f"{figures.idle_core_share:.1%} of a core", ""),
        ("a change applied, p50", f"{figures.change_p50 * 1000:.0f} ms", ""),
        ("a change applied, p99", f"{figures.change_p99 * 1000:.0f} ms", "1000 ms"),
        ("a change applied, longest", f"{figures.change_max * 1000:.0f} ms", ""),
        ("the operator's memory", f"{figures.operator_mb:.0f} MB", "400 MB"),
        ("its CPU until all were applied", f"{figures.operator_cpu_s:.1f} s", ""),
        ("its CPU per change", f"{figures.change_cpu_s * 1000:.0f} ms", ""),
        ("load average of the machine", f"{figures.load_average:.1f}", ""),
    ):
        print(f"  {what:<32}{value:>10}   {'at most ' + target if target else ''}")
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(figures.__dict__, indent=2))


if __name__ == "__main__":
    main()
