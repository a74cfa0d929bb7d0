"""The line of a session: figures that nobody reports are not zero."""

from __future__ import annotations

import msgspec

from millpond.cli.dev.status import SessionStatus, WorkerPhase, WorkerStatus
from millpond.cli.dev.summary import summary

SILENT = WorkerStatus(worker="w0", phase=WorkerPhase.STARTING, pid=7)
STATUS = SessionStatus(
    application="a", title="a", guarantee="", bootstrap_servers="b:1", directory="", wanted=2, tasks=4,
    running={"0_0": "w1"}, workers=(SILENT, SILENT),
)  # fmt: skip


def test_figures_that_nobody_reports_are_unknown() -> None:
    """A lag of 0 would say that all is processed."""
    assert summary(STATUS, 0) == ("2 of 2 workers   1 of 4 tasks are processed   - records/s   lag -   commit p99 -")


def test_figures_are_those_of_the_workers_that_report() -> None:
    """Zero is a figure; the lag and the rates are added up, of commits the slowest counts."""
    one, two = (
        WorkerStatus(worker=name, phase=WorkerPhase.RUNNING, pid=8, lag=lag, records_per_second=rate, commit_p99_ms=p99)
        for name, lag, rate, p99 in (("w1", 0, 0.0, 0.4), ("w2", 1_200, 7.6, 12.0))
    )
    assert "   0 records/s   lag 0   commit p99 0 ms" in summary(
        msgspec.structs.replace(STATUS, workers=(one, SILENT)), 0
    )
    both = summary(msgspec.structs.replace(STATUS, workers=(one, two), dead_letters=3), 1_000)
    assert both.endswith("8 records/s   lag 1,200   commit p99 12 ms   1,000 dropped   about 3 dead letters")
