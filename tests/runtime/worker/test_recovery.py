"""The order in which a worker goes back to its last commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millpond.runtime.commit.pipeline import CommitFailed
from millpond.runtime.commit.throttling import Throttling
from millpond.runtime.commit.transaction_size import TransactionSize
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
        transactions=TransactionSize(10.0),
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


@pytest.mark.parametrize(
    ("stood_s", "text"),
    [
        (
            24.0,
            "worker w0: its process stood still for 24.0 s, as by SIGSTOP or on a frozen node, so the broker has "
            "aborted its transaction ('transaction.timeout.ms' is 10.0 s): look for what stopped the process; no "
            "record was slow (no answer); going back to the last commit",
        ),
        (
            0.0,
            "worker w0: the transaction was open for 25.0 s, so the broker has aborted it ('transaction.timeout.ms' is "
            "10.0 s) (no answer); it had 0 input records, and the next ones have at most 1; going back to the last "
            "commit",
        ),
    ],
)
def test_an_aborted_transaction_is_told_with_its_cause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stood_s: float, text: str
) -> None:
    """A process that stood still needs no longer transactions."""
    parts: Any = SimpleNamespace(
        config=SimpleNamespace(worker_id="w0", transaction_timeout_ms=10_000, exactly_once=True),
        transactions=TransactionSize(10.0),
        throttling=Throttling(),
        collector=SimpleNamespace(transaction_s=25.0),
        standstills=SimpleNamespace(since=lambda _: stood_s),
        metrics=SimpleNamespace(recoveries=0, commits=0, commit_failed=lambda _: None),
        executor=SimpleNamespace(running=[]),
        stop=SimpleNamespace(wait=lambda _: None),
        assembly=SimpleNamespace(
            watch=SimpleNamespace(hurry=lambda: None), topic_ids=SimpleNamespace(hurry=lambda: None)
        ),
        rejected=SimpleNamespace(careful=False),
        offset_sink=None,
        positions=dict,
    )
    monkeypatch.setattr(Recovery, "go_back", lambda *_, **__: None)
    Recovery(parts, SimpleNamespace()).recover(CommitFailed("no answer"))  # type: ignore[arg-type]
    assert caplog.messages == [text]
