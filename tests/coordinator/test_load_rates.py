"""Rates from two reports of a worker's load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.protocol import Heartbeat, decode_heartbeat, encode
from millpond.protocol.load_rates import rates
from millpond.protocol.loads import InputLoad, TaskLoad, WorkerLoad

COUNTS = st.integers(0, 2**40)
LOADS = st.builds(
    WorkerLoad,
    measured_ms=COUNTS,
    busy_ms=COUNTS,
    processed=COUNTS,
    tasks=st.dictionaries(
        st.sampled_from(["0_0", "0_1", "1_0"]),
        st.builds(
            TaskLoad,
            processed=COUNTS,
            inputs=st.dictionaries(
                st.sampled_from(["orders", "prices"]), st.builds(InputLoad, COUNTS, st.none() | COUNTS), max_size=2
            ),
        ),
        max_size=3,
    ),
)


def task(processed: int, lag: int | None, consumed: int = 0) -> TaskLoad:
    return TaskLoad(processed, {"orders": InputLoad(consumed or processed, lag)})


def test_rates_are_differences_over_the_workers_own_time() -> None:
    """Ten seconds of the worker's clock, whatever clocks elsewhere say."""
    before = WorkerLoad(5_000, 1_000, 100, {"0_0": task(60, 500)})
    after = WorkerLoad(15_000, 8_000, 1_100, {"0_0": task(560, 300)})
    found = rates(before, after)
    assert (found.seconds, found.records_per_second, found.utilisation) == (10.0, 100.0, 0.7)
    assert found.tasks["0_0"].records_per_second == 50.0
    assert found.tasks["0_0"].lag == 300
    assert found.tasks["0_0"].lag_growth_per_second == -20.0
    assert found.tasks["0_0"].inputs["orders"].records_per_second == 50.0
    assert found.tasks["0_0"].inputs["orders"].lag_growth_per_second == -20.0


def test_a_task_that_has_just_come_has_a_lag_but_no_rate_yet() -> None:
    """Its counter may include an earlier time on this worker."""
    found = rates(WorkerLoad(0), WorkerLoad(10_000, tasks={"0_0": task(1_000, 7)})).tasks["0_0"]
    assert (found.records_per_second, found.lag, found.lag_growth_per_second) == (None, 7, None)


def test_the_lag_of_a_task_is_unknown_while_that_of_one_input_is() -> None:
    """A sum without an input would look like progress."""
    inputs = {"orders": InputLoad(1, 10), "prices": InputLoad(1, None)}
    found = rates(WorkerLoad(0), WorkerLoad(1_000, tasks={"0_0": TaskLoad(2, inputs)})).tasks["0_0"]
    assert found.lag is None
    assert found.inputs["orders"].lag == 10


def test_reports_in_the_wrong_order_are_rejected() -> None:
    """So that no rate is ever negative or infinite."""
    with pytest.raises(ValueError, match="in order"):
        rates(WorkerLoad(1_000), WorkerLoad(1_000))


@given(LOADS, LOADS)
def test_rates_stay_in_their_range_for_any_two_reports(one: WorkerLoad, other: WorkerLoad) -> None:
    """Also for reports of different processes, which the coordinator never compares."""
    before, after = sorted((one, other), key=lambda load: load.measured_ms)
    if before.measured_ms == after.measured_ms:
        return
    found = rates(before, after)
    assert 0.0 <= found.utilisation <= 1.0
    assert found.records_per_second >= 0.0
    assert found.tasks.keys() == after.tasks.keys()
    assert all((each.records_per_second or 0.0) >= 0.0 for each in found.tasks.values())


@given(LOADS)
def test_a_load_travels_in_a_heartbeat(load: WorkerLoad) -> None:
    """The coordinator decodes what the worker encoded."""
    heartbeat = Heartbeat("a", "w", "i", 1, "h", load=load)
    assert decode_heartbeat(encode(heartbeat)) == heartbeat


def test_the_load_of_a_hundred_tasks_stays_small() -> None:
    """Two thousand workers send one every few seconds."""
    tasks = {f"0_{number}": TaskLoad(10**9, {"orders": InputLoad(10**9, 10**6)}, 120) for number in range(100)}
    small = encode(Heartbeat("a", "w", "i", 1, "h"))
    assert (
        len(encode(Heartbeat("a", "w", "i", 1, "h", load=WorkerLoad(10**9, 10**9, 10**11, tasks)))) - len(small)
        < 12_000
    )
