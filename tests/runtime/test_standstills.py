"""Whether the whole process stood still, as by SIGSTOP, or one call only."""

from __future__ import annotations

import pytest

from millpond.runtime.standstills import Standstills


class Process:
    """A process whose clocks the test sets."""

    def __init__(self) -> None:
        self.now, self.cpu = 100.0, 10.0
        self.standstills = Standstills(lambda: self.now, lambda: self.cpu)
        self.standstills.tick()

    def passes(self, seconds: float, cpu: float = 0.0) -> None:
        """Let time pass in which the process computes for `cpu` seconds."""
        self.now += seconds
        self.cpu += cpu


@pytest.mark.parametrize("ticked", [False, True])
def test_a_standstill_is_seen_whichever_thread_runs_first_after_it(ticked: bool) -> None:
    """The one that ticks, or the one that asks."""
    process = Process()
    process.passes(20)
    if ticked:
        process.standstills.tick()
    assert process.standstills.since(100.0) == 20
    assert process.standstills.since(115.0) == 5
    process.standstills.tick()
    process.passes(1)
    process.standstills.tick()
    assert process.standstills.since(100.0) == 20
    assert process.standstills.since(120.5) == 0


def test_a_call_that_holds_the_gil_is_no_standstill() -> None:
    """No other thread runs, but the process computes."""
    process = Process()
    process.passes(20, cpu=20)
    assert process.standstills.since(100.0) == 0
    process.standstills.tick()
    assert process.standstills.since(100.0) == 0


def test_a_call_that_waits_is_no_standstill() -> None:
    """Other threads tick meanwhile."""
    process = Process()
    for _ in range(20):
        process.passes(1)
        process.standstills.tick()
    assert process.standstills.since(100.0) == 0


def test_a_process_that_does_not_tick_yet_did_not_stand_still() -> None:
    """It has just started."""
    assert Standstills().since(0.0) == 0
