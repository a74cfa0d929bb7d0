"""Probes and metrics over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from millpond_operator.controllers.process.health import Check, HealthServer, stuck
from millpond_operator.controllers.process.metrics import OperatorMetrics
from millpond_operator.controllers.process.work_queue import WorkQueue
from tests.kubernetes.support import fetched
from tests.simulation.running import simulate


@asynccontextmanager
async def probed(metrics: OperatorMetrics, **checks: list[Check]) -> AsyncIterator[tuple[HealthServer, str]]:
    server = HealthServer(metrics.collected, **checks)
    await server.start("127.0.0.1", 0)
    try:
        yield server, f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


def test_probes_report_the_fault() -> None:
    """All checks run; the response is 503 with one sentence for each failure, including a check that raises."""

    async def scenario() -> None:
        def broken() -> str | None:
            raise KeyError("x")

        async with probed(OperatorMetrics(), ready=[lambda: "It is not synced."]) as (server, url):
            assert await fetched(f"{url}/healthz") == (200, "ok\n")
            assert await fetched(f"{url}/readyz") == (503, "It is not synced.\n")
            server.also_alive(lambda: "One.")
            server.also_alive(lambda: None)
            server.also_alive(broken)
            assert await fetched(f"{url}/healthz") == (503, "One.\nHealth check broken raised KeyError('x').\n")

    simulate(scenario())


def test_a_reconciliation_that_hangs_is_found() -> None:
    """The check names a key that is worked on for too long."""

    async def scenario() -> None:
        now = 0.0
        queue: WorkQueue[str] = WorkQueue(clock=lambda: now)
        check = stuck(queue, timedelta(minutes=5))
        assert check() is None
        queue.add("ns/app")
        await queue.get()
        now = 300.0
        assert check() is None
        now = 301.0
        assert check() == "The reconcile of ns/app has been running for 301 s, but should take seconds."
        queue.done("ns/app")
        assert check() is None

    simulate(scenario())


def test_metrics_are_exposed() -> None:
    """Reconciliations by result, leadership and metrics of other components are exposed in the Prometheus format."""

    async def scenario() -> None:
        metrics = OperatorMetrics()
        results: list[Any] = [None, timedelta(seconds=1), ValueError()]

        async def handle(_key: str) -> timedelta | None:
            await asyncio.sleep(0)
            result = results.pop(0)
            if isinstance(result, Exception):
                raise result
            return result  # type: ignore[no-any-return]

        measured = metrics.measured("streamapp", handle)
        assert await measured("a") is None
        assert await measured("a") == timedelta(seconds=1)
        with pytest.raises(ValueError):
            await measured("a")
        metrics.leads("millpond-operator", now=True)
        metrics.gauge("millpond_operator_cached_objects", "Objects.", lambda: 7)
        async with probed(metrics) as (_, url):
            status, text = await fetched(f"{url}/metrics")
        assert status == 200
        for line in (
            'controller_runtime_reconcile_total{controller="streamapp",result="success"} 1.0',
            'controller_runtime_reconcile_total{controller="streamapp",result="requeue_after"} 1.0',
            'controller_runtime_reconcile_total{controller="streamapp",result="error"} 1.0',
            'controller_runtime_reconcile_time_seconds_count{controller="streamapp"} 3.0',
            'controller_runtime_active_workers{controller="streamapp"} 0.0',
            'leader_election_master_status{name="millpond-operator"} 1.0',
            "millpond_operator_cached_objects 7.0",
        ):
            assert line in text

    simulate(scenario())
