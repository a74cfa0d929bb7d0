"""Queries that are cancelled end, whatever they wait for: else a worker would wait for them when it stops."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millpond.protocol import View
from millpond.queries.directory import TaskDirectory
from millpond.queries.messages import Read
from millpond.queries.routing import Router

#: Turns of the event loop after which a cancelled query has ended.
_TURNS = 20


@pytest.mark.parametrize("answers_after", range(4))
@pytest.mark.parametrize("at_turn", range(40))
def test_a_query_for_a_partition_that_nobody_has_ends_at_once(at_turn: int, answers_after: int) -> None:
    """It is cancelled with the request to the coordinator that it waits for, as at the end of the HTTP thread."""

    async def fetch() -> View:
        for _ in range(answers_after):
            await asyncio.sleep(0)
        raise OSError("the session is closed")

    async def scenario() -> None:
        reader = SimpleNamespace(
            worker="w0",
            catalog={"counts": SimpleNamespace(subtopology=1)},
            readable=lambda *_: False,
            rejection=lambda *_: None,
        )
        directory = TaskDirectory(fetch)
        router = Router(cast("Any", reader), directory, cast("Any", None), lambda: None)
        scan = router.scan(Read(application="a", store="counts", partitions=(0,), timeout_ms=60_000))
        query = asyncio.ensure_future(anext(scan.batches()))
        for _ in range(at_turn):
            # A view that is old enough to be fetched again, without waiting.
            directory._fetched_at = float("-inf")
            await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        assert query.cancelled()

    asyncio.run(scenario())
