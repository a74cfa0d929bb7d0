"""Standstills of the machine are measured by a process beside the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack

import pytest

from tests.support.measuring.figures import Figures
from tests.support.measuring.standstills import Standstills, _standstill

_LOOP = "echo; while :; do :; done"


@pytest.mark.parametrize(
    ("passed_s", "others", "expected_s"),
    [
        pytest.param(0.01, 0, 0.0, id="idle"),
        pytest.param(0.01, 2, 0.0, id="a processor for each"),
        pytest.param(0.01, 8, 0.0075, id="a quarter of a processor for each"),
        pytest.param(5.011, 0, 5.0, id="frozen"),
        pytest.param(5.011, 4, 5.0055, id="frozen and busy"),
    ],
)
def test_standstill_is_late_time_and_a_share_of_the_rest(passed_s: float, others: int, expected_s: float) -> None:
    """On two processors."""
    assert _standstill(passed_s, others, 2) == pytest.approx(expected_s)


def test_frozen_machine_stands_still(standstills: Standstills) -> None:
    """For the process that measures, a machine is frozen while the process itself is stopped."""
    os.kill(standstills.pid, signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, standstills.pid, os.WSTOPPED | os.WNOWAIT)
        began = time.monotonic()
        time.sleep(0.5)
        ended = time.monotonic()
    finally:
        os.kill(standstills.pid, signal.SIGCONT)
    assert 0.9 * (ended - began) <= standstills.between(began, ended) <= ended - began


def test_busy_machine_stands_still_for_a_share(standstills: Standstills, figures: Figures) -> None:
    """Beside four busy processes on each processor, a process computes for a fifth of the time."""
    with ExitStack() as stack:
        for _ in range(4 * (os.cpu_count() or 1)):
            busy = subprocess.Popen(["sh", "-c", _LOOP], stdout=subprocess.PIPE)
            stack.callback(busy.wait)
            stack.callback(busy.kill)
            assert busy.stdout is not None
            stack.callback(busy.stdout.close)
            busy.stdout.readline()  # it runs
        began, used = time.monotonic(), time.process_time()
        while time.process_time() - used < 0.2:
            pass
        ended = time.monotonic()
    lasted = standstills.lasted(began, ended)
    figures.note("0.2 s of computing on a busy machine, as the clock tells it", ended - began, "s")
    figures.note("0.2 s of computing on a busy machine, without standstills", lasted, "s", wished=0.4)
    assert 0 < lasted < 0.5 * (ended - began)
