"""The statistics of the bench."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.progress import WARM_UP, Drain, Sample, drain
from bench.sides import SideName
from bench.statistics import Case, Latency, Throughput, percentile

CASE = Case("count", "exactly_once", 100, 10)


def run(rps: float, cpu: float = 1.0) -> Drain:
    return Drain(rps=rps, cpu_s_per_million=cpu, rss_mb=100.0, output_records=7)


@given(
    rate=st.floats(1_000, 1_000_000),
    cpu=st.floats(0.1, 50),
    start_up=st.floats(0, 30),
    looks=st.integers(50, 400),
)
def test_start_up_cost_does_not_change_the_measured_speed(rate: float, cpu: float, start_up: float, looks: int) -> None:
    """Records per second and CPU are those between warm-up and end: neither start-up time nor its CPU is in them."""
    records = 1_000_000
    seconds = records / rate
    samples = [
        Sample(start_up + seconds * i / looks, records * i // looks, 99.0 + cpu * i / looks) for i in range(looks + 1)
    ]
    found = drain(samples, records, rss_mb=1.0, output_records=1)
    assert found.rps == pytest.approx(rate, rel=0.01)
    assert found.cpu_s_per_million == pytest.approx(cpu, rel=0.01)


def test_a_slow_warm_up_is_not_counted() -> None:
    """A JVM that is slow before `WARM_UP` and fast after it is measured at the fast speed."""
    warm = int(1000 * WARM_UP)
    samples = [Sample(0, 1, 0), Sample(100, warm, 50), Sample(101, 1000, 51)]
    assert drain(samples, 1000, rss_mb=1.0, output_records=1).rps == pytest.approx(1000 - warm)


def test_a_run_that_did_not_finish_has_no_figures() -> None:
    """An incomplete drain is an error, not a slow result."""
    with pytest.raises(ValueError, match="500 of 1000"):
        drain([Sample(0, 400, 0), Sample(1, 500, 1)], 1000, rss_mb=1.0, output_records=1)


def test_a_run_seen_only_at_its_end_has_no_figures() -> None:
    """If nearly everything was committed at the first sample, nothing can be measured."""
    with pytest.raises(ValueError, match="use more records"):
        drain([Sample(0, 900, 0), Sample(1, 1000, 1)], 1000, rss_mb=1.0, output_records=1)


def test_ratio_is_the_median_of_paired_ratios() -> None:
    """A slow machine slows both runs of a pair: only ratios of pairs are not affected."""
    found = Throughput(CASE, 1000)
    for ours, theirs in ((200.0, 100.0), (20.0, 10.0), (90.0, 100.0)):
        found.pairs.append({"millpond": run(ours, 1.0), "kafka_streams": run(theirs, 4.0)})
    assert found.ratio == pytest.approx(2.0)
    assert found.cpu_ratio == pytest.approx(0.25)
    assert found.middle("millpond").rps == pytest.approx(90.0)


def test_an_object_of_the_report_has_the_agreed_fields() -> None:
    """Other programs read `bench.json`: its names are fixed."""
    found = Throughput(CASE, 1000, [{"millpond": run(2.0), "kafka_streams": run(1.0)}]).to_json()
    assert found | {"workload": "count", "guarantee": "exactly_once", "commit_ms": 100, "partitions": 10} == found
    assert {"rps", "cpu_s_per_million", "rss_mb"} <= found["millpond"].keys() & found["kafka_streams"].keys()
    assert found["ratio"] == pytest.approx(2.0)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(1, 100))
def test_percentile_is_the_smallest_sample_at_that_rank(samples: list[float], percent: int) -> None:
    """Nearest rank: at least `percent` of the samples are not above it, and it is the smallest such sample."""
    found = percentile(samples, percent)
    assert found in samples
    assert sum(each <= found for each in samples) * 100 >= percent * len(samples)
    assert sum(each < found for each in samples) * 100 < percent * len(samples)


def test_latency_shows_both_sides_and_how_their_tails_compare() -> None:
    """The 99th percentiles are divided, millpond's by Kafka Streams'."""
    samples: dict[SideName, list[float]] = {
        "millpond": [1.0] * 98 + [50.0, 60.0],
        "kafka_streams": [1.0] * 98 + [100.0, 110.0],
    }
    found = Latency(CASE, 2000, samples).to_json()
    assert found["millpond"] == {"p50_ms": 1.0, "p95_ms": 1.0, "p99_ms": 50.0, "records": 100}
    assert found["p99_ratio"] == pytest.approx(0.5)
