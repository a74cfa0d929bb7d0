"""Reports about autoscaling."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millpond_operator.autoscaling import Policy, Reason
from tests.autoscaling.support import Fleet

_POLICY = Policy(max_replicas=12)


class FewRecords(Fleet):
    """Workers whose tasks get a record each now and then, right before a report, which has it as lag.

    Args:
        every: the time between the records of one task; those of different tasks are spread over it.
        replicas: `spec.replicas`.
        cost_s: the time that a record takes, in seconds.
    """

    def __init__(self, every: timedelta, *, replicas: int, cost_s: float = 0.001) -> None:
        super().__init__(_POLICY, [0.0] * 12, replicas)
        self.cost_s = cost_s
        self.every: timedelta | None = every
        self._passed = [task / len(self.loads) for task in range(len(self.loads))]

    def _work(self, seconds: float) -> None:
        super()._work(seconds)
        for task, passed in enumerate(self._passed if self.every else ()):
            due, self._passed[task] = divmod(passed + timedelta(seconds=seconds) / self.every, 1)
            self.lag[task] += due


@pytest.mark.parametrize("minutes", [0.5, 1, 3, 10, 60])
@pytest.mark.parametrize("cost_s", [0.001, 0.2])
def test_workers_go_while_few_records_arrive(minutes: float, cost_s: float) -> None:
    """With rates near zero, autoscalers keep all workers: nothing is measured between two records.

    Here a record that had just arrived counted as lag of minutes, too, since so few arrive.

    https://github.com/apache/flink-kubernetes-operator/pull/543 (FLINK-30575)
    https://github.com/kedacore/keda/issues/4552
    """
    fleet = FewRecords(timedelta(minutes=minutes), replicas=4, cost_s=cost_s)
    fleet.run(minutes=5)
    assert fleet.rescales == []
    fleet.run(minutes=max(20, 2 * minutes))
    assert fleet.rescales == [(4, 1)]


def test_workers_stay_while_nothing_arrives() -> None:
    """The load after a pause is not known."""
    fleet = Fleet(_POLICY, [2.6 / 12] * 12, replicas=4)
    fleet.run(minutes=10)
    fleet.loads = [0.0] * 12
    assert fleet.run(hours=3).reason == Reason.IDLE
    fleet.loads = [2.6 / 12] * 12
    fleet.run(minutes=10)
    assert fleet.rescales == []


def test_a_first_record_after_a_pause_takes_no_worker_away() -> None:
    """The load before the pause counts until records have arrived for the time of the stabilization."""
    fleet = FewRecords(timedelta(minutes=1), replicas=4)
    fleet.loads = [2.6 / 12] * 12
    fleet.run(minutes=10)
    fleet.loads, every, fleet.every = [0.0] * 12, fleet.every, None
    fleet.run(hours=1)
    fleet.every = every
    fleet.run(minutes=4)
    assert fleet.rescales == []
    fleet.run(minutes=20)
    assert fleet.workers == 1


def test_records_that_wait_without_being_processed_take_no_worker_away() -> None:
    """A task that is stuck is none with few records."""
    fleet = FewRecords(timedelta(minutes=1), replicas=4)
    fleet.run(minutes=4)
    fleet._work = lambda _seconds: None  # type: ignore[method-assign]
    fleet.lag = [50.0] * 12
    status = fleet.run(minutes=30)
    assert (status.reason, fleet.rescales) == (Reason.UNMEASURED, [])
