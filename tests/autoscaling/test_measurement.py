"""What tasks demand, from two load reports."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from millpond.protocol.loads import InputLoad, TaskLoad, WorkerLoad
from millpond_operator.autoscaling import Measurement, ReportedLoad, Unmeasured
from millpond_operator.autoscaling.measurement import Meter
from tests.autoscaling.support import START

_MINUTE = timedelta(minutes=1)


def _report(second: int, busy_s: float, tasks: Mapping[str, Mapping[str, tuple[int, int | None]]]) -> ReportedLoad:
    """Return a report: of each task, by topic, the records processed and those that wait."""
    loads = {
        task: TaskLoad(
            sum(done for done, _ in inputs.values()),
            {topic: InputLoad(done, lag) for topic, (done, lag) in inputs.items()},
        )
        for task, inputs in tasks.items()
    }
    processed = sum(each.processed for each in loads.values())
    return ReportedLoad("one", WorkerLoad(second * 1000, round(busy_s * 1000), processed, loads))


def _measured(before: ReportedLoad, after: ReportedLoad, tasks: int) -> Measurement | Unmeasured:
    meter = Meter()
    meter.add(START, {"worker-0": before})
    meter.add(START + _MINUTE, {"worker-0": after})
    return meter.measure(tasks)


def test_what_arrives_is_what_is_processed_and_what_the_lag_grows_by() -> None:
    """A worker that is busy all the time processes 1,000 records per second, and 500 more arrive."""
    found = _measured(
        _report(0, 0.0, {"0_0": {"orders": (0, 0)}}), _report(60, 60.0, {"0_0": {"orders": (60_000, 30_000)}}), 1
    )
    assert isinstance(found, Measurement)
    (task,) = found.tasks
    assert task.cost == pytest.approx(0.001)
    assert task.arriving == pytest.approx(1_500)
    assert task.load == pytest.approx(1.5)
    assert task.lag_seconds == pytest.approx(20)


def test_internal_topics_will_get_more_when_the_input_is_kept_up_with() -> None:
    """Half of the input waits, so the second sub-topology gets half of what it will get: one rescale is enough."""
    topic = "delays-by-airport-repartition"
    before = {"0_0": {"orders": (0, 0)}, "1_0": {topic: (0, 0)}}
    after = {"0_0": {"orders": (30_000, 30_000)}, "1_0": {topic: (30_000, 0)}}
    found = _measured(_report(0, 0.0, before), _report(60, 60.0, after), 2)
    assert isinstance(found, Measurement)
    assert [task.arriving for task in found.tasks] == pytest.approx([1_000, 1_000])
    assert found.load == pytest.approx(2.0)


def test_catching_up_is_not_taken_for_load() -> None:
    """Twice of what arrives is processed, at both ends of an internal topic."""
    topic = "delays-by-airport-repartition"
    before = {"0_0": {"orders": (0, 30_000)}, "1_0": {topic: (0, 0)}}
    after = {"0_0": {"orders": (60_000, 0)}, "1_0": {topic: (60_000, 0)}}
    found = _measured(_report(0, 0.0, before), _report(60, 60.0, after), 2)
    assert isinstance(found, Measurement)
    assert [task.arriving for task in found.tasks] == pytest.approx([500, 500])


@pytest.mark.parametrize(
    ("after", "tasks", "message", "idle"),
    [
        ({"0_0": {"orders": (0, 0)}}, 1, "No records arrive", True),
        ({"0_0": {"orders": (0, 7)}}, 1, "7 records wait and none is processed", False),
        ({"0_0": {"orders": (9, None)}}, 1, "The lag of task 0_0 is not known", False),
        ({"0_0": {"orders": (9, 0)}}, 2, "Workers report the load of 1 of 2 tasks", False),
        ({"0_1": {"orders": (9, 0)}}, 1, "The rates of worker worker-0 are known 45 s after", False),
    ],
)
def test_unknown_rates_have_a_reason(after, tasks, message, idle) -> None:
    found = _measured(_report(0, 0.0, {"0_0": {"orders": (0, 0)}}), _report(60, 1.0, after), tasks)
    assert isinstance(found, Unmeasured)
    assert found.message.startswith(message)
    assert found.idle is idle


def test_another_process_of_a_worker_is_measured_anew() -> None:
    before = _report(0, 0.0, {"0_0": {"orders": (0, 0)}})
    after = _report(60, 1.0, {"0_0": {"orders": (9, 0)}})._replace(incarnation="two")
    assert isinstance(_measured(before, after, 1), Unmeasured)
