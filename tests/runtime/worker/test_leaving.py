"""Whether a worker that ends leaves the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.errors import BrokerError, OffsetsLost
from millpond.runtime.worker.leaving import Leaving


def _parts(done: list[str], *, rejecting: bool = False) -> Any:
    """The parts that are closed, which note what was done."""

    def notes(name: str, answer: Any = None) -> Callable[..., Any]:
        def called(*_: object) -> Any:
            done.append(name)
            return answer

        return called

    answered: Future[None] = Future()
    answered.set_result(None)
    return SimpleNamespace(
        controls=SimpleNamespace(leave_group=True),
        config=SimpleNamespace(worker_id="w0"),
        presence=SimpleNamespace(close=notes("presence")),
        client=SimpleNamespace(leave=notes("left")),
        heartbeats=SimpleNamespace(cancel=notes("no heartbeats")),
        coordination=SimpleNamespace(leave=notes("leaving")),
        metrics=SimpleNamespace(http=SimpleNamespace(spawn=notes("told", answered))),
        close_offset_sink=notes("offsets"),
        client_errors=SimpleNamespace(close=notes("errors")),
        contact=SimpleNamespace(close=notes("contact")),
        assembly=SimpleNamespace(
            close=notes("assembly"), offsets=SimpleNamespace(marks=SimpleNamespace(rejecting=rejecting))
        ),
    )


@pytest.mark.parametrize(
    ("failure", "rejecting", "leaves"),
    [
        (None, False, True),
        (BrokerError("away."), False, True),
        (OffsetsLost("gone back."), False, False),
        (None, True, False),  # stopped within the 30 s before that error
    ],
)
def test_worker_whose_commits_are_lost_does_not_leave(
    failure: BaseException | None, *, rejecting: bool, leaves: bool
) -> None:
    """When all have left, the coordinator forgets the commits, and the next start would process records again."""
    done: list[str] = []
    no_recovery: Any = None
    Leaving(_parts(done, rejecting=rejecting), no_recovery).close(None, failure, None)
    assert ("left" in done) == ("leaving" in done) == leaves
    assert {"presence", "no heartbeats", "assembly"} <= set(done)
