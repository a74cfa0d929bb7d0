"""The operator's event loop goes on while the autoscaler decides about very many tasks."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime

import pytest

from millpond.protocol import SubtopologySummary, TopologySummary, View
from millpond_operator.autoscaling import Autoscaler, AutoscalingStatus, Policy, Situation
from millpond_operator.controllers.pass_context import AppMemory, ReconcilePass
from millpond_operator.controllers.reconcile.autoscaling import autoscale
from millpond_operator.controllers.rollout.status import AppStatus
from tests.autoscaling.support import START
from tests.resources.examples import stream_app

_WAIT_S = 60.0


class _Deciding(Autoscaler):
    """An autoscaler that decides when it is told to."""

    def __init__(self) -> None:
        super().__init__(Policy())
        self.may_decide = threading.Event()
        self.decided = False

    def decide(self, now: datetime, situation: Situation, status: AutoscalingStatus | None) -> AutoscalingStatus:
        """Wait for permission, which only the event loop gives."""
        assert self.may_decide.wait(_WAIT_S), "the event loop waits for the decision"
        self.decided = True
        return super().decide(now, situation, status)


def _pass(memory: AppMemory) -> ReconcilePass:
    app = stream_app(replicas=2, autoscaling={"minReplicas": 1, "maxReplicas": 10})
    return ReconcilePass(app, AppStatus(), START, memory)


def _view(tasks: int) -> View:
    subtopology = SubtopologySummary(0, tasks, stateful=False)
    return View("orders", (1, 0), TopologySummary("hash", (subtopology,)))


def test_event_loop_goes_on_during_a_large_decision() -> None:
    memory, autoscaler = AppMemory(), _Deciding()
    memory.autoscaler = autoscaler

    async def decide() -> AutoscalingStatus | None:
        running = asyncio.create_task(autoscale(_pass(memory), lambda _: _view(100_000)))
        await asyncio.sleep(0)
        assert not autoscaler.decided
        autoscaler.may_decide.set()
        return await running

    status = asyncio.run(decide())
    assert status is not None
    assert status.max_replicas == 10
    assert memory.autoscaler is autoscaler, "its measurements are kept"


def test_pass_after_a_cancelled_one_does_not_share_the_autoscaler_with_its_thread() -> None:
    memory, autoscaler = AppMemory(), _Deciding()
    memory.autoscaler = autoscaler

    async def cancel() -> None:
        running = asyncio.create_task(autoscale(_pass(memory), lambda _: _view(100_000)))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert memory.autoscaler is None
        autoscaler.may_decide.set()

    asyncio.run(cancel())
