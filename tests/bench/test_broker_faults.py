"""The bench of brokers' faults: gaps between arrivals, and what is wrong in the topics of a run."""

from __future__ import annotations

from bench.failover.analysis import Gap
from bench.failover.traffic import Arrivals


def test_the_longest_gap_of_a_time_counts_one_that_still_lasts() -> None:
    arrivals = Arrivals()
    for partition, at_s in ((0, 0.0), (1, 0.0), (0, 0.5), (1, 2.0), (0, 3.0)):
        arrivals.add(partition, round(at_s * 1e6))
    assert arrivals.longest(0, 1_000_000) == Gap(0, 500_000, 500_000)
    assert arrivals.longest(0, 2_000_000) == Gap(1, 2_000_000, 2_000_000)
    assert arrivals.longest(2_000_000, 3_000_000) == Gap(0, 3_000_000, 2_500_000)  # ended in it
    assert arrivals.longest(0, 9_000_000) == Gap(1, 9_000_000, 7_000_000)  # nothing since


def test_a_partition_counts_as_alive_only_after_a_later_arrival() -> None:
    arrivals = Arrivals()
    arrivals.add(0, 10)
    arrivals.add(1, 20)
    assert [arrivals.since(at) for at in (5, 10, 20)] == [2, 1, 0]
