"""The decisions of the autoscaler, one situation each."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond_operator.autoscaling import AUTO, RECOMMEND, AutoscalingStatus, Policy, Reason, effective_replicas
from tests.autoscaling.support import Fleet
from tests.support import generated

_POLICY = Policy(max_replicas=12)


def _even(workers: float, tasks: int = 12) -> list[float]:
    """Return the loads of equal tasks that keep so many workers busy."""
    return [workers / tasks] * tasks


def test_it_scales_out_in_one_step_and_stays() -> None:
    """2.6 workers' work at 70 % takes four of them."""
    fleet = Fleet(_POLICY, _even(2.6))
    status = fleet.run(hours=3)
    assert fleet.rescales == [(1, 4)]
    assert (status.reason, status.recommended_replicas, status.limited) == (Reason.STEADY, 4, False)
    assert "needs 65 % of its time" in status.message


def test_it_scales_in_after_the_stabilization_window() -> None:
    fleet = Fleet(_POLICY, _even(0.6), replicas=4)
    fleet.run(minutes=5)
    assert fleet.rescales == []
    fleet.run(minutes=2)
    assert fleet.rescales == [(4, 1)]
    assert "For 5m, 1 worker would have been enough." in [each.message for each in fleet.written]


def test_a_short_dip_takes_no_workers_away() -> None:
    fleet = Fleet(_POLICY, _even(2.6), replicas=4)
    fleet.run(minutes=10)
    for _ in range(5):
        fleet.loads = _even(0.5)
        fleet.run(minutes=4)
        fleet.loads = _even(2.6)
        fleet.run(minutes=4)
    assert fleet.rescales == []


def test_workers_stay_while_lag_is_worked_off() -> None:
    """Four workers, with work for one and a long queue: they stay until it is short."""
    fleet = Fleet(_POLICY, _even(0.6), replicas=4)
    fleet.lag = [100_000.0] * 12
    fleet.run(minutes=4)
    assert max(fleet.lag) > 0
    fleet.lag = [100_000.0] * 12
    status = fleet.run(minutes=4)
    assert fleet.rescales == []
    assert status.reason == Reason.CATCHING_UP
    fleet.run(minutes=15)
    assert fleet.rescales == [(4, 1)]


def test_lag_that_would_take_too_long_gets_more_workers() -> None:
    """The workers could keep up with what arrives, and not work off the lag in time."""
    fleet = Fleet(_POLICY, _even(1.2), replicas=2)
    fleet.lag = [200_000.0] * 12
    fleet.run(minutes=3)
    ((before, after),) = fleet.rescales
    assert before == 2
    assert after > 2


def test_it_never_exceeds_the_number_of_tasks_and_says_so() -> None:
    fleet = Fleet(Policy(max_replicas=100), _even(30))
    status = fleet.run(hours=1)
    assert fleet.rescales == [(1, 12)]
    assert status.limited
    assert status.reason == Reason.AT_MAX
    assert "each of the 12 tasks has its own worker" in status.message
    assert status.max_replicas == 12


def test_maximum_is_named_where_it_is_too_low() -> None:
    fleet = Fleet(Policy(max_replicas=4), _even(8))
    status = fleet.run(hours=1)
    assert fleet.workers == 4
    assert status.limited
    assert "raise spec.autoscaling.maxReplicas" in status.message


def test_a_maximum_that_takes_no_task_off_the_busiest_worker_is_not_used() -> None:
    """With 10 workers for 12 tasks the busiest one has as many tasks as with 6, so the maximum is too low."""
    fleet = Fleet(Policy(max_replicas=10), _even(8))
    status = fleet.run(hours=1)
    assert fleet.workers == 6
    assert (status.reason, status.limited) == (Reason.AT_MAX, True)
    assert "raise spec.autoscaling.maxReplicas" in status.message


def test_a_task_that_cannot_be_divided_is_named_and_gets_no_useless_workers() -> None:
    """One partition takes 95 % of a worker; the others nearly nothing."""
    fleet = Fleet(_POLICY, [0.95] + [0.002] * 11, replicas=1)
    status = fleet.run(hours=2)
    assert fleet.workers == 1
    assert (status.reason, status.limited) == (Reason.HOT_TASK, True)


def test_budget_bounds_the_rescales_of_a_day_and_the_reserve_serves_lag() -> None:
    """A load that swings every hour."""
    policy = Policy(max_replicas=12, rescales_per_day=4)
    fleet = Fleet(policy, _even(0.6))
    for _ in range(5):
        fleet.loads = _even(8.0)
        fleet.run(minutes=30)
        fleet.loads = _even(0.6)
        fleet.run(minutes=30)
    assert len(fleet.rescales) <= 4 + policy.reserve
    shrinks = [pair for pair in fleet.rescales if pair[1] < pair[0]]
    assert len(shrinks) <= 4
    assert Reason.BUDGET_SPENT in {each.reason for each in fleet.written}
    assert fleet.workers == 12, "what is left is enough for the peak"


@pytest.mark.slow
def test_budget_of_the_day_holds_while_rescales_are_only_recommended() -> None:
    """From mode Auto to Recommend and back: what happened in the last 24 hours counts all the time."""
    policy = Policy(max_replicas=12, rescales_per_day=1)
    fleet = Fleet(policy, _even(0.6))
    fleet.loads = _even(4.0)
    spent = fleet.run(minutes=30)
    assert len(fleet.rescales) == 1
    fleet.autoscaler.policy = replace(policy, mode="Recommend")
    fleet.replicas = fleet.workers
    recommending = fleet.run(minutes=30)
    assert (recommending.mode, recommending.rescales) == ("Recommend", spent.rescales)
    assert (recommending.rescales_today, recommending.last_scale_time) == (1, spent.last_scale_time)
    fleet.autoscaler.policy = policy
    fleet.loads = _even(0.6)
    status = fleet.run(hours=2)
    assert status.reason == Reason.BUDGET_SPENT
    assert len(fleet.rescales) == 1
    fleet.run(hours=24)
    assert len(fleet.rescales) == 2, "a day later it may act again"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda fleet: setattr(fleet, "loads", [0.0] * 12), Reason.IDLE),
        (lambda fleet: setattr(fleet, "unsteady", "workers restart"), Reason.SETTLING),
        (lambda fleet: setattr(fleet, "replicas", 0), Reason.DISABLED),
    ],
)
def test_nothing_is_decided_without_a_meaning_of_the_rates(change, reason) -> None:
    fleet = Fleet(_POLICY, _even(2.6), replicas=4)
    fleet.run(minutes=10)
    change(fleet)
    status = fleet.run(minutes=30)
    assert status.reason == reason
    assert status.message.endswith(".")
    assert status.rescales == ()


def test_nothing_is_decided_while_workers_report_nothing() -> None:
    fleet = Fleet(_POLICY, _even(2.6), replicas=2)
    fleet.run(minutes=1)
    fleet.autoscaler.observe(fleet.now + timedelta(seconds=15), {})
    fleet.now += timedelta(minutes=5)
    for _ in range(20):
        fleet.now += timedelta(seconds=15)
        fleet.autoscaler.observe(fleet.now, {})
        fleet.decide()
    assert fleet.status is not None
    assert fleet.status.reason == Reason.UNMEASURED
    assert fleet.status.message == "Workers report the load of 0 of 12 tasks; nothing is decided."
    assert fleet.rescales == []


def test_recommendations_are_not_followed_in_mode_recommend() -> None:
    fleet = Fleet(Policy(max_replicas=12, mode=RECOMMEND), _even(2.6), replicas=4)
    fleet.run(minutes=10)
    fleet.loads = _even(3.8)
    status = fleet.run(minutes=10)
    assert (status.current_replicas, status.recommended_replicas, status.reason) == (4, 6, Reason.SCALE_OUT)
    assert fleet.workers == 4
    assert status.rescales == ()
    assert len(fleet.written) < 6


def test_recommendations_that_waver_are_written_seldom() -> None:
    """The load wavers around what two workers can do."""
    fleet = Fleet(Policy(max_replicas=12, mode=RECOMMEND), _even(1.2), replicas=2)
    for number in range(60):
        fleet.loads = _even(1.9 if number % 2 else 1.2)
        fleet.run(minutes=2)
    assert len(fleet.written) < 40


def test_another_autoscaler_is_not_fought() -> None:
    """Its number holds, and it is told that both are at work."""
    fleet = Fleet(_POLICY, _even(2.6), replicas=3)
    fleet.conflict = "kube-controller-manager"
    status = fleet.run(minutes=30)
    assert fleet.workers == 3
    assert (status.reason, status.recommended_replicas) == (Reason.CONFLICT, 4)
    assert "delete the HorizontalPodAutoscaler" in status.message


def test_a_person_who_sets_replicas_gives_a_new_start() -> None:
    fleet = Fleet(_POLICY, _even(2.6), replicas=2)
    fleet.run(minutes=10)
    assert fleet.workers == 4
    fleet.replicas = 12
    fleet.run(seconds=15)
    assert fleet.workers == 12
    assert fleet.status is not None
    assert fleet.status.rescales_today == 1, "what a person does costs no budget"


def test_applying_the_same_specification_again_changes_nothing() -> None:
    """As a tool does that applies what is in Git again and again."""
    fleet = Fleet(_POLICY, _even(2.6), replicas=2)
    fleet.run(minutes=10)
    before = len(fleet.written)
    fleet.replicas = 2
    fleet.run(minutes=30)
    assert fleet.workers == 4
    assert len(fleet.written) == before


def test_another_leader_continues_from_the_status_alone() -> None:
    """It measures first, and nothing is done twice."""
    fleet = Fleet(_POLICY, _even(2.6))
    fleet.run(minutes=3)
    assert fleet.workers == 4
    fleet.autoscaler = type(fleet.autoscaler)(_POLICY)
    status = fleet.run(hours=1)
    assert fleet.rescales == [(1, 4)]
    assert status.rescales_today == 1


@given(
    replicas=st.integers(0, 20),
    least=st.integers(1, 10),
    more=st.integers(0, 10),
    current=st.integers(0, 30),
    seen=st.integers(0, 20),
    mode=st.sampled_from([AUTO, RECOMMEND]),
)
def test_wanted_number_is_always_allowed(replicas, least, more, current, seen, mode) -> None:
    policy = Policy(min_replicas=least, max_replicas=least + more, mode=mode)
    status = AutoscalingStatus(mode=mode, current_replicas=current, spec_replicas=seen)
    wanted = effective_replicas(replicas, policy, status)
    if mode == RECOMMEND or replicas == 0:
        assert wanted == replicas
    else:
        assert least <= wanted <= least + more


@settings(max_examples=generated.examples(20))
@given(
    loads=st.lists(st.floats(0.001, 0.9), min_size=1, max_size=12),
    least=st.integers(1, 3),
    more=st.integers(0, 12),
    start=st.integers(1, 12),
)
def test_a_constant_load_never_makes_it_oscillate(loads, least, more, start) -> None:
    """It stays within its bounds and the tasks, and does not go out and in again."""
    policy = Policy(min_replicas=least, max_replicas=least + more, rescales_per_day=100)
    fleet = Fleet(policy, loads, replicas=start)
    fleet.run(minutes=90)
    counts = [each.current_replicas for each in fleet.written]
    assert all(least <= each <= least + more for each in counts)
    first = effective_replicas(start, policy, None)
    assert all(each <= max(len(loads), least, first) for each in counts)
    assert len(fleet.rescales) <= 2, fleet.written
    grows = [b > a for a, b in fleet.rescales]
    assert len(set(grows)) <= 1, "it never undoes what it did"


@settings(max_examples=generated.examples(15))
@given(tasks=st.integers(1, 12), low=st.floats(0.05, 6), more=st.floats(0, 6))
def test_more_load_never_gets_fewer_workers(tasks, low, more) -> None:
    policy = Policy(max_replicas=12, rescales_per_day=100)
    ends = []
    for load in (low, low + more):
        fleet = Fleet(policy, _even(load, tasks))
        fleet.run(minutes=40)
        ends.append(fleet.workers)
    assert ends[0] <= ends[1]


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_clock_that_is_set_delays_no_scale_out_and_hastens_no_scale_in(jump) -> None:
    """Times before the jump mean nothing after it."""
    fleet = Fleet(_POLICY, _even(2.6), replicas=4)
    fleet.run(minutes=10)
    fleet.loads = _even(0.6)
    fleet.run(minutes=2)
    fleet.set_clock(jump)
    fleet.run(minutes=4)
    assert fleet.rescales == []
    fleet.loads = _even(6.0)
    fleet.run(seconds=30)
    fleet.set_clock(jump)
    fleet.run(minutes=3)
    assert fleet.rescales == [(4, 12)]


@pytest.mark.slow
def test_rescales_in_the_future_count_from_now_on() -> None:
    """As written by an operator whose clock was a year ahead: the budget is kept, and not used up for a year."""
    future = ("2027-01-01T00:00:00Z",) * 6
    fleet = Fleet(_POLICY, _even(2.6), replicas=1)
    fleet.status = AutoscalingStatus(mode=AUTO, current_replicas=1, spec_replicas=1, rescales=future)
    assert fleet.run(hours=23).reason == Reason.BUDGET_SPENT
    fleet.run(hours=2)
    assert fleet.rescales == [(1, 12)]
    fleet = Fleet(_POLICY, _even(0.6), replicas=4)
    fleet.status = AutoscalingStatus(mode=AUTO, current_replicas=4, spec_replicas=4, last_scale_time=future[0])
    fleet.run(minutes=10)
    assert fleet.rescales == [(4, 1)]


@pytest.mark.parametrize("rubbish", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "yesterday"])
def test_times_that_someone_wrote_into_the_status_stop_nothing(rubbish) -> None:
    """The year 1 in an eastern time zone is a valid time for the API server, and none in UTC."""
    fleet = Fleet(_POLICY, _even(2.6), replicas=1)
    fleet.status = AutoscalingStatus(
        mode=AUTO, current_replicas=1, spec_replicas=1, last_scale_time=rubbish, rescales=(rubbish,)
    )
    fleet.run(minutes=5)
    assert fleet.rescales == [(1, 4)]


def test_message_says_what_holds_now_with_the_same_reason_too() -> None:
    """A drain after a restart is another cause, and has another cure."""
    fleet = Fleet(_POLICY, _even(2.6), replicas=4)
    fleet.unsteady = "workers restart"
    fleet.run(minutes=2)
    fleet.unsteady = "the annotation millpond.dev/drain is set"
    status = fleet.run(minutes=2)
    assert status.reason == Reason.SETTLING
    assert "millpond.dev/drain" in status.message
    before = len(fleet.written)
    for number in range(120):
        fleet.unsteady = "workers restart" if number % 2 else "tasks move"
        fleet.run(minutes=1)
    assert len(fleet.written) - before < 30, "causes that alternate are not written each time"


def test_another_policy_is_explained_at_once() -> None:
    """Not with the numbers of the former one."""
    fleet = Fleet(Policy(max_replicas=12, rescales_per_day=1), _even(2.6), replicas=1)
    used = ("2026-01-01T00:00:00Z",) * 6
    fleet.status = AutoscalingStatus(mode=AUTO, current_replicas=1, spec_replicas=1, rescales=used)
    assert "rescalesPerDay (1)" in fleet.run(minutes=10).message
    fleet.autoscaler.policy = Policy(max_replicas=12, rescales_per_day=2)
    fleet.run(seconds=15)
    assert "rescalesPerDay (2)" in fleet.run(minutes=1).message


def test_worker_that_reports_nonsense_does_not_fill_the_message() -> None:
    """Nothing is known of what its tenant runs."""
    fleet = Fleet(_POLICY, _even(1e9), replicas=12)
    status = fleet.run(minutes=10)
    assert status.reason == Reason.AT_MAX
    assert "more than 10000 %" in status.message
