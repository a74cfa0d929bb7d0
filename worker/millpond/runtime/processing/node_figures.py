"""Figures of single nodes and stores, for `metrics.recording.level` DEBUG and TRACE. With INFO there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.topology.user_metrics import Histogram

__all__ = ("LATENCIES", "NodeFigures", "StoreFigures")

Forward = Callable[..., None]

LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
"""Upper bounds of the buckets of latencies, in seconds."""


class NodeFigures:
    """The figures of one node of one task.

    Attributes:
        node: the node's name.
        processed: number of records that reached it.
        forwarded: number of records that it sent on; one for all children together.
        dropped: number of records that it dropped.
        latency: times from a record's timestamp until the node had processed it, in seconds; None if not measured.
    """

    __slots__ = ("dropped", "forwarded", "latency", "node", "processed")

    def __init__(self, node: str, *, latency: bool) -> None:
        self.node: str = node
        self.processed: int = 0
        self.forwarded: int = 0
        self.dropped: int = 0
        self.latency: Histogram | None = Histogram(LATENCIES) if latency else None

    def counting(self, process: Forward, now_ms: Callable[[], int]) -> Forward:
        """Return a function that processes a record and counts it. The timestamp is the record's last argument."""
        latency = self.latency
        if latency is None:

            def counted(*record: Any) -> None:
                self.processed += 1
                process(*record)

            return counted
        observe = latency.observe

        def measured(*record: Any) -> None:
            self.processed += 1
            process(*record)
            observe(max(0, now_ms() - record[-1]) / 1000)

        return measured

    def sending(self, forward: Forward) -> Forward:
        """Return a function that forwards a record and counts it."""

        def sent(*record: Any) -> None:
            self.forwarded += 1
            forward(*record)

        return sent


class StoreFigures:
    """The figures of one store of one task: counted at each flush, not for each record.

    Attributes:
        records: number of changelog records that its flushes have made.
        seconds: durations of its flushes, with what the nodes below a record cache do with the updates.
    """

    __slots__ = ("records", "seconds")

    def __init__(self) -> None:
        self.records: int = 0
        self.seconds: Histogram = Histogram()

    def flushed(self, records: int, seconds: float) -> None:
        """Count a flush."""
        self.records += records
        self.seconds.observe(seconds)
