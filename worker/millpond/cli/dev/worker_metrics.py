"""A worker's `/metrics`, read: what the table shows of it."""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass, field

from .status import Restoring

__all__ = ("Figures", "Input", "Scrape", "parse")

_WINDOW_S = 5.0
_SAMPLE = re.compile(r"(millpond_\w+?)(?:_total)?(?:\{(.*)\})? (\S+)(?: \d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_WANTED = (
    "millpond_worker_state",
    "millpond_worker_processed_records",
    "millpond_worker_commit_seconds_bucket",
    "millpond_worker_commit_seconds_count",
    "millpond_processor_position_offset",
    "millpond_processor_caught_up",
    "millpond_restore_",
)


@dataclass
class Input:
    """One input partition of a task."""

    position: int = 0
    """Next offset to process."""
    caught_up: bool = False
    """Whether nothing was left to process."""


@dataclass
class Scrape:
    """One answer of `/metrics`."""

    state: str = ""
    processed: int = 0
    commits: int = 0
    buckets: dict[float, float] = field(default_factory=dict)
    """Commits that took at most so many seconds."""
    inputs: dict[tuple[str, str], Input] = field(default_factory=dict)
    """By task id and topic."""
    restored: dict[tuple[str, int], int] = field(default_factory=dict)
    """Records applied, by store and partition."""
    remaining: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def restoring(self) -> tuple[Restoring, ...]:
        """Store partitions that are not at the end of their changelogs."""
        return tuple(
            Restoring(store, partition, done := self.restored.get((store, partition), 0), done + left)
            for (store, partition), left in sorted(self.remaining.items())
            if left > 0
        )


def parse(text: str) -> Scrape:
    """What Prometheus' text format says, as far as the table needs it."""
    scrape = Scrape()
    for line in text.splitlines():
        if not line.startswith(_WANTED):
            continue
        found = _SAMPLE.match(line)
        if found is None:
            continue
        name, value = found[1], float(found[3])
        labels = dict(_LABEL.findall(found[2] or ""))
        match name:
            case "millpond_worker_state":
                scrape.state = labels.get("state", "") if value else scrape.state
            case "millpond_worker_processed_records":
                scrape.processed = int(value)
            case "millpond_worker_commit_seconds_count":
                scrape.commits = int(value)
            case "millpond_worker_commit_seconds_bucket":
                scrape.buckets[float(labels.get("le", "+Inf"))] = value
            case "millpond_processor_position_offset":
                _input(scrape, labels).position = int(value)
            case "millpond_processor_caught_up":
                _input(scrape, labels).caught_up = bool(value)
            case "millpond_restore_records":
                scrape.restored[_store(labels)] = int(value)
            case "millpond_restore_remaining_records":
                scrape.remaining[_store(labels)] = int(value)
    return scrape


def _input(scrape: Scrape, labels: dict[str, str]) -> Input:
    return scrape.inputs.setdefault((labels.get("task", ""), labels.get("topic", "")), Input())


def _store(labels: dict[str, str]) -> tuple[str, int]:
    return labels.get("store", ""), int(labels.get("partition", "0"))


class Figures:
    """What one worker process does, from one scrape to the next.

    Attributes:
        last: the latest scrape.
        last_commit: when the number of commits was last seen to grow, in seconds of the clock that `add` is given.
    """

    def __init__(self) -> None:
        self.last: Scrape = Scrape()
        self.last_commit: float | None = None
        self._scrapes: deque[tuple[float, Scrape]] = deque()

    def add(self, scrape: Scrape, now: float) -> None:
        """Take in a scrape made at `now`, in seconds."""
        if scrape.commits > self.last.commits:
            self.last_commit = now
        self.last = scrape
        scrapes = self._scrapes
        scrapes.append((now, scrape))
        while len(scrapes) > 2 and now - scrapes[1][0] >= _WINDOW_S:
            scrapes.popleft()

    @property
    def records_per_second(self) -> float | None:
        """Over the last few seconds; None before there are two scrapes."""
        if len(self._scrapes) < 2:
            return None
        (since, first), (now, last) = self._scrapes[0], self._scrapes[-1]
        return (last.processed - first.processed) / (now - since) if now > since else None

    @property
    def commit_p99_ms(self) -> float | None:
        """Of the commits of the last few seconds, or of all when those were none; None without a commit."""
        if not self._scrapes:
            return None
        first, last = self._scrapes[0][1], self._scrapes[-1][1]
        recent = {edge: count - first.buckets.get(edge, 0) for edge, count in last.buckets.items()}
        return _quantile_ms(recent if recent.get(math.inf) else last.buckets, 0.99)


def _quantile_ms(buckets: dict[float, float], share: float) -> float | None:
    """A quantile from cumulative buckets, on a straight line within its bucket, as Prometheus has it."""
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
