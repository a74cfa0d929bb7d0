"""A session in one line, for terminals that no table is drawn in. Pure."""

from __future__ import annotations

from .status import SessionStatus

__all__ = ("summary",)

_UNKNOWN = "-"


def summary(status: SessionStatus, dropped: int) -> str:
    """Return a session in one line; a figure that no worker reports is `-`, as in the table.

    Args:
        status: the session.
        dropped: the records that all its workers have dropped, also those that are gone.
    """
    rows = status.workers
    rates = [row.records_per_second for row in rows if row.records_per_second is not None]
    lags = [row.lag for row in rows if row.lag is not None]
    p99s = [row.commit_p99_ms for row in rows if row.commit_p99_ms is not None]
    return "   ".join(
        (
            f"{sum(row.pid > 0 for row in rows)} of {status.wanted} workers",
            f"{len(status.running)} of {status.tasks} tasks are processed",
            f"{f'{sum(rates):,.0f}' if rates else _UNKNOWN} records/s",
            f"lag {f'{sum(lags):,}' if lags else _UNKNOWN}",
            f"commit p99 {f'{max(p99s):.0f} ms' if p99s else _UNKNOWN}",
            *([f"{dropped:,} dropped"] if dropped else []),
            *([f"about {status.dead_letters:,} dead letters"] if status.dead_letters else []),
        )
    )
