"""The order in which a worker goes back to its last commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millpond.runtime.worker.recovery import Recovery


@pytest.fixture
def steps() -> list[str]:
    """The recorded calls, in their order."""
    return []


def _recovery(steps: list[str]) -> Recovery:
    """A recovery of a worker whose parts only record their calls."""

    def noting(step: str) -> Any:
        return lambda *_, **__: steps.append(step)

    def check_owners(_tasks: Any) -> Any:
        steps.append("check owners")
        return SimpleNamespace(tasks={})

    executor = SimpleNamespace(
        go_back=noting("look tasks up"), active_tasks=[], registrar=SimpleNamespace(look_up_now=check_owners)
    )
    parts: Any = SimpleNamespace(
        collector=SimpleNamespace(producer=SimpleNamespace(purge=noting("forget output"))),
        client_errors=SimpleNamespace(forget_fatal=noting("forget errors")),
        stop=SimpleNamespace(wait=noting("wait for the other worker")),
        executor=executor,
        coordination=None,
        new_plan=None,
        close_offset_sink=noting("end the commit"),
        become=noting("become"),
    )
    producers: Any = SimpleNamespace(start=noting("take the transactional id"))
    return Recovery(parts, producers)


def test_worker_takes_its_id_before_it_looks_tasks_up(steps: list[str]) -> None:
    """A late request of its former producer may change offsets that were looked up earlier."""
    _recovery(steps).go_back()
    assert steps.index("end the commit") < steps.index("take the transactional id") < steps.index("look tasks up")
    assert "check owners" not in steps


def test_fenced_worker_checks_owners_before_it_takes_its_id(steps: list[str]) -> None:
    """The worker that fenced it writes the new owners meanwhile; taking the id at once would abort that."""
    _recovery(steps).go_back(fenced=True)
    order = ["wait for the other worker", "check owners", "take the transactional id", "look tasks up"]
    assert [each for each in steps if each in order] == order
