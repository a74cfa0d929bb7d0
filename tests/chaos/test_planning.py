"""The plan of faults is a pure function of its seed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.chaos.planning import Fault, Kind, described, make_plan

_STORES: dict[str, Any] = {"stores": ["small", "large"], "large_stores": ["large"]}
_CLUSTER: dict[str, Any] = {"every": 3.5, "workers": ["w0", "w1", "w2"], "spare": "w3", "session": 2.0, **_STORES}


def test_one_seed_makes_one_plan() -> None:
    """The same seed gives the same faults at the same times, another seed gives others."""
    plan = make_plan(7, 200, **_CLUSTER)
    assert plan == make_plan(7, 200, **_CLUSTER)
    assert plan != make_plan(8, 200, **_CLUSTER)


@pytest.mark.parametrize("seed", range(20))
def test_plan_has_every_kind_at_the_given_rate(seed: int) -> None:
    """200 faults have all kinds, hit every process, are in order, and take less than a quarter of an hour."""
    plan = make_plan(seed, 200, **_CLUSTER)
    assert [fault.number for fault in plan] == list(range(200))
    assert [fault.at for fault in plan] == sorted(fault.at for fault in plan)
    assert {fault.kind for fault in plan} == set(Kind)
    assert {fault.target for fault in plan} == {"w0", "w1", "w2", "w3", "broker", "coordinator"}
    assert 300 < plan[-1].at < 900


@pytest.mark.parametrize("seed", range(20))
def test_overlapping_faults_kill_only_running_processes(seed: int) -> None:
    """Many faults overlap; a worker that is down by the plan is not killed or stopped meanwhile."""
    plan = make_plan(seed, 200, **_CLUSTER)
    overlapping = sum(any(each.at < fault.at < each.at + each.duration for each in plan) for fault in plan)
    assert overlapping > 50
    down_until: dict[str, float] = {}
    for fault in plan:
        if fault.kind not in {Kind.CUT_BROKER, Kind.CUT_COORDINATOR, Kind.LOST_BROKER, Kind.LOST_COORDINATOR}:
            assert fault.at >= down_until.get(fault.target, 0.0), fault
        if fault.kind in {Kind.KILL, Kind.RESTART, Kind.COORDINATOR_KILL}:
            down_until[fault.target] = fault.at + fault.duration


def test_most_pauses_outlast_the_session() -> None:
    """A paused worker mostly loses its tasks before it continues."""
    pauses = [fault for seed in range(10) for fault in make_plan(seed, 200, **_CLUSTER) if fault.kind is Kind.PAUSE]
    assert sum(fault.duration > 2.0 for fault in pauses) > len(pauses) * 0.6


def test_plan_can_be_limited_to_some_kinds() -> None:
    """`only` leaves the other kinds out, and a single worker gets no fault that needs a coordinator."""
    only = make_plan(1, 30, **_CLUSTER, only={Kind.KILL})
    assert {fault.kind for fault in only} == {Kind.KILL}
    alone = make_plan(1, 200, every=2.0, workers=["w0"], spare=None, session=2.0, coordinated=False, **_STORES)
    kinds = Counter(fault.kind for fault in alone)
    assert not kinds.keys() & {
        Kind.DRAIN, Kind.SCALE_OUT, Kind.COORDINATOR_KILL, Kind.CUT_COORDINATOR, Kind.LOST_COORDINATOR
    }  # fmt: skip
    assert {fault.target for fault in alone} == {"w0", "broker"}


def test_described_plan_is_readable() -> None:
    """Each fault is one line with its time, kind, target and duration."""
    text = described([Fault(3, 12.5, Kind.CUT_BROKER, "w1", 2.25, "down")])
    assert text == "  3    12.50 s  cut broker       w1          for  2.25 s down\n"
