"""Medians and percentiles of the measurements, and the objects of `build/bench.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil
from statistics import median
from typing import Any, Final

from bench.progress import Drain
from bench.sides import SIDES, SideName
from bench.workloads import KEYS, Guarantee, WorkloadName

PERCENTILES: Final = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison: one line of the table."""

    workload: WorkloadName
    guarantee: Guarantee
    commit_ms: int
    partitions: int
    keys: int = KEYS
    """Distinct keys of the input."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """All pairs of runs of one case; the runs of a pair follow each other directly."""

    case: Case
    records: int
    pairs: list[Mapping[SideName, Drain]] = field(default_factory=list)

    def middle(self, side: SideName) -> Drain:
        """Return the median of each measurement of a side."""
        runs = [pair[side] for pair in self.pairs]
        return Drain(
            rps=median(run.rps for run in runs),
            cpu_s_per_million=median(run.cpu_s_per_million for run in runs),
            rss_mb=median(run.rss_mb for run in runs),
            output_records=round(median(run.output_records for run in runs)),
        )

    @property
    def ratios(self) -> list[float]:
        """Records per second of millpond divided by Kafka Streams', for each pair."""
        return [pair["millpond"].rps / pair["kafka_streams"].rps for pair in self.pairs]

    @property
    def ratio(self) -> float:
        """The median of `ratios`."""
        return median(self.ratios)

    @property
    def cpu_ratio(self) -> float:
        """CPU seconds per million records of millpond divided by Kafka Streams': the median of the pairs."""
        return median(
            pair["millpond"].cpu_s_per_million / pair["kafka_streams"].cpu_s_per_million for pair in self.pairs
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object of this case in `bench.json`."""
        sides: dict[str, Any] = {side: _rounded(asdict(self.middle(side))) for side in SIDES}
        figures = {"ratio": self.ratio, "cpu_ratio": self.cpu_ratio, "ratios": self.ratios}
        return {"kind": "throughput", **asdict(self.case), "records": self.records, **sides, **_rounded(figures)}


@dataclass(frozen=True, slots=True)
class Latency:
    """End-to-end latencies of one case, in milliseconds, over all repeats."""

    case: Case
    rate: int
    """Records sent per second."""
    samples: dict[SideName, list[float]] = field(default_factory=dict)

    def percentiles(self, side: SideName) -> dict[str, float]:
        """Return `p50_ms`, `p95_ms` and `p99_ms` of a side."""
        return {f"p{percent}_ms": percentile(self.samples[side], percent) for percent in PERCENTILES}

    @property
    def ratio(self) -> float:
        """The 99th percentile of millpond divided by Kafka Streams': below 1 is faster."""
        return self.percentiles("millpond")["p99_ms"] / self.percentiles("kafka_streams")["p99_ms"]

    def to_json(self) -> dict[str, Any]:
        """Return the object of this case in `bench.json`."""
        sides: dict[str, Any] = {
            side: {**_rounded(self.percentiles(side)), "records": len(samples)}
            for side, samples in self.samples.items()
        }
        return {"kind": "latency", **asdict(self.case), "rate": self.rate, **sides, "p99_ratio": round(self.ratio, 3)}


def percentile(samples: Sequence[float], percent: int) -> float:
    """Return the smallest sample that at least `percent` % of the samples do not exceed (nearest rank).

    Raises:
        ValueError: there are no samples.
    """
    if not samples:
        message = "a percentile needs samples, and there are none"
        raise ValueError(message)
    return sorted(samples)[max(0, ceil(len(samples) * percent / 100) - 1)]


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _round(value) for name, value in figures.items()}


def _round(value: Any) -> Any:
    if isinstance(value, list):
        return [_round(each) for each in value]
    if isinstance(value, float):
        return round(value, 3) if value < 1000 else round(value)
    return value
