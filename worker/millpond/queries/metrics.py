"""Metrics of queries: durations by outcome, and requests forwarded to other workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Histogram

from .failures import QueryFailed

__all__ = ("QueryMetrics",)

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Outcome:
    """The outcome of a query whose answer has begun, when an error can no longer be raised.

    Attributes:
        failed: the failure, if the query failed after its answer had begun.
        begun: whether a part of the answer was sent.
    """

    def __init__(self) -> None:
        self.begun = False
        self.failed: QueryFailed | None = None


class QueryMetrics:
    """The metrics of the queries that a worker answers."""

    def __init__(self, registry: CollectorRegistry, application: str, worker: str) -> None:
        labels = {"application_id": application, "worker": worker}
        self._labels = labels
        self._seconds = Histogram(
            "millpond_query_seconds",
            "Seconds that a query took, to the end of its answer, by kind and outcome; kind peer is what other "
            "workers asked for. Bad when high quantiles are above what users of the queries accept, or when an "
            "outcome other than ok grows.",
            [*labels, "kind", "outcome"],
            registry=registry,
            buckets=_SECONDS,
        )
        self._forwarded = Counter(
            "millpond_query_forwarded",
            "Requests to other workers, for partitions of stores that they have. Bad when it is far above the "
            "number of queries: clients ask the wrong workers.",
            list(labels),
            registry=registry,
        ).labels(**labels)

    def forwarded(self) -> None:
        """Count a request to another worker."""
        self._forwarded.inc()

    @contextmanager
    def observed(self, kind: str) -> Iterator[Outcome]:
        """Measure the block as one query."""
        outcome = Outcome()
        started = perf_counter()
        ended = "aborted"
        try:
            yield outcome
            ended = "ok" if outcome.failed is None else outcome.failed.reason.value.lower()
        except QueryFailed as failed:
            ended = failed.reason.value.lower()
            raise
        finally:
            self._seconds.labels(**self._labels, kind=kind, outcome=ended).observe(perf_counter() - started)
