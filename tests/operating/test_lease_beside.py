"""The Lease is renewed in another thread than the event loop that serves tenants."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from millpond_operator.controllers.process.lease_thread import own_thread
from millpond_operator.kubernetes import LeadershipLost, Lease, LeaseOptions, NotFound

_BRISK = LeaseOptions(retry_period=timedelta(milliseconds=5))
_PATIENCE_S = 60.0


class Kept:
    """An API server with one Lease, which counts renewals."""

    def __init__(self, wanted: int) -> None:
        self.lease: dict[str, Any] | None = None
        self.renewed = 0
        self.often = threading.Event()
        self._wanted = wanted

    async def get(self, _kind: object, _namespace: str, _name: str) -> dict[str, Any]:
        if self.lease is None:
            raise NotFound("no lease")
        return self.lease

    async def create(self, _kind: object, lease: dict[str, Any]) -> dict[str, Any]:
        self.lease = lease
        return lease

    async def replace(self, _kind: object, lease: dict[str, Any]) -> dict[str, Any]:
        self.lease = lease
        self.renewed += 1
        if self.renewed >= self._wanted:
            self.often.set()
        return lease


def test_lease_is_renewed_while_the_loop_is_blocked() -> None:
    """A tenant that blocks the loop cannot cost the leadership."""
    kept = Kept(wanted=20)

    async def scenario() -> None:
        async with own_thread() as run:
            lease = Lease(kept, "ns", "me", options=_BRISK)  # type: ignore[arg-type]
            await run(lease.acquire())
            holding = asyncio.create_task(run(lease.hold()))
            await asyncio.sleep(0)
            assert kept.often.wait(_PATIENCE_S)  # in this loop's own thread, which does nothing else meanwhile
            lease.check()
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
            await run(lease.release())
            assert kept.lease is not None
            assert kept.lease["spec"]["holderIdentity"] == ""

    asyncio.run(scenario())


def test_error_of_the_other_loop_comes_here() -> None:
    """The error is raised as if the coroutine had been awaited here, so a lost Lease ends the operator."""

    async def lost() -> None:
        raise LeadershipLost("another one leads")

    async def scenario() -> None:
        async with own_thread() as run:
            with pytest.raises(LeadershipLost, match="another one leads"):
                await run(lost())

    asyncio.run(scenario())
