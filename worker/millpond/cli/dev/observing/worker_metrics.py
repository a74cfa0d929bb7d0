"""The metrics of a worker that the table shows, read from its `/metrics`."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from millpond.cli.dev.status import Restoring
from millpond.drops import is_dropped

__all__ = ("Input", "RecentMetrics", "Scrape", "parse")

_WINDOW_S = 5.0
_READ = (
    "millpond_worker_state",
    "millpond_worker_processed_records",
    "millpond_worker_commit_seconds_bucket",
    "millpond_worker_commit_seconds_count",
    "millpond_processor_position_offset",
    "millpond_processor_caught_up",
    "millpond_restore_",
    "millpond_task_dropped_records",
    "millpond_task_dead_letters",
)
"""Prefixes of the lines that are read: a worker of many tasks has thousands of others, each second."""


@dataclass
class Input:
    """One input partition of a task."""

    position: int = 0
    """The next offset to process."""
    caught_up: bool = False
    """Whether all records were processed."""


@dataclass
class Scrape:
    """The metrics of one scrape."""

    state: str = ""
    processed: int = 0
    """Records since the process started."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Records that tasks dropped, for all reasons for which a record is not processed, by task."""
    dead_letters: Counter[str] = field(default_factory=Counter)
    """Records that were sent to dead-letter topics, by task."""
    commits: int = 0
    buckets: dict[float, float] = field(default_factory=dict)
    """Commits by duration: at most so many seconds -> number."""
    inputs: dict[tuple[str, str], Input] = field(default_factory=dict)
    """Input partitions by task id and topic."""
    restored: dict[tuple[str, int], int] = field(default_factory=dict)
    """Records restored, by store and partition."""
    remaining: dict[tuple[str, int], int] = field(default_factory=dict)
    """Records to restore, by store and partition."""

    @property
    def restoring(self) -> tuple[Restoring, ...]:
        """Store partitions that have not reached the end of their changelogs."""
        return tuple(
            Restoring(store, partition, done := self.restored.get((store, partition), 0), done + left)
            for (store, partition), left in sorted(self.remaining.items())
            if left > 0
        )


def parse(text: str) -> Scrape:
    """Return the metrics that the table shows from Prometheus' text format."""
    scrape = Scrape()
    lines = "\n".join(line for line in text.splitlines() if line.startswith(_READ))
    for family in text_string_to_metric_families(lines):
        for sample in family.samples:
            _read_sample(scrape, sample)
    return scrape


def _read_sample(scrape: Scrape, sample: Sample) -> None:
    labels = sample.labels
    match sample.name.removesuffix("_total"):
        case "millpond_worker_state" if sample.value:
            scrape.state = labels["state"]
        case "millpond_worker_processed_records":
            scrape.processed = int(sample.value)
        case "millpond_task_dropped_records" | "millpond_task_dead_letters" as name:
            _add_unprocessed(scrape, sample, dead_letters=name == "millpond_task_dead_letters")
        case "millpond_worker_commit_seconds_count":
            scrape.commits = int(sample.value)
        case "millpond_worker_commit_seconds_bucket":
            scrape.buckets[float(labels["le"])] = sample.value
        case "millpond_processor_position_offset":
            _input(scrape, labels).position = int(sample.value)
        case "millpond_processor_caught_up":
            _input(scrape, labels).caught_up = bool(sample.value)
        case "millpond_restore_records":
            scrape.restored[_store(labels)] = int(sample.value)
        case "millpond_restore_remaining_records":
            scrape.remaining[_store(labels)] = int(sample.value)


def _add_unprocessed(scrape: Scrape, sample: Sample, *, dead_letters: bool) -> None:
    """Add records of one task, which dropped them or sent them to a dead-letter topic."""
    if dead_letters:
        scrape.dead_letters[sample.labels["task"]] += int(sample.value)
    elif is_dropped(sample.labels["reason"]):
        scrape.dropped[sample.labels["task"]] += int(sample.value)


def _input(scrape: Scrape, labels: dict[str, str]) -> Input:
    return scrape.inputs.setdefault((labels["task"], labels["topic"]), Input())


def _store(labels: dict[str, str]) -> tuple[str, int]:
    return labels["store"], int(labels["partition"])


class RecentMetrics:
    """The metrics of one worker process over the last scrapes.

    Attributes:
        last: the latest scrape.
        last_commit: the time at which the number of commits last increased, in seconds of the clock of `add`; None
            before the first increase.
    """

    def __init__(self) -> None:
        self.last: Scrape = Scrape()
        self.last_commit: float | None = None
        self._scrapes: deque[tuple[float, Scrape]] = deque()

    def add(self, scrape: Scrape, now: float) -> None:
        """Add a scrape made at `now`, in seconds."""
        if scrape.commits > self.last.commits:
            self.last_commit = now
        self.last = scrape
        scrapes = self._scrapes
        scrapes.append((now, scrape))
        while len(scrapes) > 2 and now - scrapes[1][0] >= _WINDOW_S:
            scrapes.popleft()

    @property
    def records_per_second(self) -> float | None:
        """The records per second in the last few seconds; None before the second scrape."""
        if len(self._scrapes) < 2:
            return None
        (since, first), (now, last) = self._scrapes[0], self._scrapes[-1]
        return (last.processed - first.processed) / (now - since) if now > since else None

    @property
    def commit_p99_ms(self) -> float | None:
        """The 99th percentile of the latest commits, else of all commits; None without a commit."""
        if not self._scrapes:
            return None
        first, last = self._scrapes[0][1], self._scrapes[-1][1]
        recent = {edge: count - first.buckets.get(edge, 0) for edge, count in last.buckets.items()}
        return _quantile_ms(recent if recent.get(math.inf) else last.buckets, 0.99)


def _quantile_ms(buckets: dict[float, float], share: float) -> float | None:
    """Return a quantile of cumulative buckets, interpolated linearly within its bucket like Prometheus does."""
    total = buckets.get(math.inf, 0)
    if not total:
        return None
    rank, low, below = share * total, 0.0, 0.0
    for edge, count in sorted(buckets.items()):
        if count >= rank:
            if math.isinf(edge):
                return low * 1000
            return (low + (edge - low) * (rank - below) / (count - below)) * 1000
        low, below = edge, count
    return low * 1000
