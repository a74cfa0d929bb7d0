"""The order in which a worker goes back to its last commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millpond.runtime.worker.loop import Worker


@pytest.fixture
def steps() -> list[str]:
    """What happened, in its order."""
    return []


def _worker(steps: list[str]) -> Any:
    """A worker whose parts only note what is asked of them."""

    def noting(step: str) -> Any:
        return lambda *_, **__: steps.append(step)

    worker: Any = Worker.__new__(Worker)
    worker._collector = SimpleNamespace(producer=SimpleNamespace(purge=noting("forget output")))
    worker._reports = SimpleNamespace(forget_fatal=noting("forget errors"))
    worker._stop = SimpleNamespace(wait=noting("wait for the rival"))
    worker._executor = SimpleNamespace(go_back=noting("look tasks up"))
    worker._coordination = None
    worker._new_plan = None
    worker._close_offset_sink = noting("end the commit")
    worker._start_producer = noting("take the transactional id")
    worker._check_still_mine = noting("check owners")
    worker._become = noting("become")
    return worker


def test_worker_takes_its_id_before_it_looks_tasks_up(steps: list[str]) -> None:
    """What is looked up earlier may be changed by a request of its former producer that arrives late."""
    _worker(steps)._go_back()
    assert steps.index("end the commit") < steps.index("take the transactional id") < steps.index("look tasks up")
    assert "check owners" not in steps


def test_fenced_worker_checks_owners_before_it_takes_its_id(steps: list[str]) -> None:
    """Whoever fenced it writes the new owners meanwhile; to take the id at once would abort that, without end."""
    _worker(steps)._go_back(fenced=True)
    order = ["wait for the rival", "check owners", "take the transactional id", "look tasks up"]
    assert [each for each in steps if each in order] == order
