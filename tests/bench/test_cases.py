"""The cases of a bench run, and the warm-up of the broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from bench.__main__ import Bench, throughput_cases, usual_keys
from bench.progress import Drain
from bench.statistics import Case
from bench.workloads import KEYS, Data

DRAIN = Drain(rps=1.0, cpu_s_per_million=1.0, rss_mb=1.0, output_records=1)
CASE = Case("count", "exactly_once", 10, 10)


def bench_that_notes(runs: list[tuple[str, Case]], printed: list[str]) -> Bench:
    """A bench without a broker, which records its runs."""
    progress: Any = SimpleNamespace(
        add_task=lambda *_, **__: 0, advance=lambda *_: None, console=SimpleNamespace(print=printed.append)
    )
    unused: Any = None
    found = Bench(Console(), unused, unused, Data(1, 1, 0), progress)

    def drained(side: str, case: Case) -> Drain:
        runs.append((side, case))
        return DRAIN

    def latencies(side: str, case: Case, _rate: int, _seconds: float) -> list[float]:
        runs.append((side, case))
        return [float(len(runs))]

    found._drain = drained  # type: ignore[method-assign]
    found._latencies = latencies  # type: ignore[method-assign, assignment]
    return found


def test_both_sides_warm_the_broker_before_the_first_pair() -> None:
    """For both kinds of measurements, one run of each side comes first and is dropped, which the output states."""
    runs: list[tuple[str, Case]] = []
    printed: list[str] = []
    bench = bench_that_notes(runs, printed)
    bench.throughput([CASE], 1, 0.0)
    assert [side for side, _ in runs] == ["millpond", "kafka_streams"] * 2
    assert len(bench.throughputs[CASE].pairs) == 1
    assert "warm" in printed[0]
    runs.clear()
    bench.latency([CASE], 1, 100, 1.0)
    assert [side for side, _ in runs] == ["millpond", "kafka_streams"] * 2
    assert bench.latencies[CASE].samples == {"millpond": [3.0], "kafka_streams": [4.0]}
    assert "warm" in printed[1]


def test_count_and_window_run_with_every_number_of_keys() -> None:
    """On the first number of partitions; on others with the usual number. Other workloads have one number of keys."""
    cases = throughput_cases(["count", "join"], ["exactly_once"], [10, 1], [5_000, KEYS, 1_000_000])
    assert [(case.workload, case.partitions, case.keys) for case in cases] == [
        ("count", 10, 5_000),
        ("count", 10, KEYS),
        ("count", 10, 1_000_000),
        ("join", 10, KEYS),
        ("count", 1, KEYS),
        ("join", 1, KEYS),
    ]


@pytest.mark.parametrize(("keys", "usual"), [([5_000, KEYS], KEYS), ([7, 9], 7)])
def test_the_usual_number_of_keys_is_one_asked_for(keys: list[int], usual: int) -> None:
    """Only the requested numbers of keys are used."""
    assert usual_keys(keys) == usual


def test_the_input_has_the_keys_of_its_case() -> None:
    """The stream and the table have the requested number of keys."""
    data = Data(2_000, seed=7, start_ms=1_000, keys=20)
    assert {record.key for record in data.stream()} == {row.key for row in data.table()}
    assert len(list(data.table())) == 20
