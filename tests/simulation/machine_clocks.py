"""The clocks of the machine in a simulation: if anything reads them, the same seed gives another run under load."""

from __future__ import annotations

import _thread
import contextlib
import datetime as dt
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

__all__ = ("hostile_clocks", "machine_reads")

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "time_ns", "monotonic_ns", "perf_counter_ns", "sleep")
#: Functions that read a clock of the machine, wait for one, or start a thread.
_READS = frozenset({*(getattr(time, name) for name in _CLOCKS), time.clock_gettime, _thread.start_new_thread})
_DATE_READS = frozenset({"now", "utcnow", "today"})
#: Log records have real times, and hypothesis measures garbage collections, once another test has imported it: nothing
#: reads these times.
_HARMLESS = frozenset({"logging", "hypothesis.internal.conjecture.junkdrawer"})
_MOST_S = 30.0


@contextlib.contextmanager
def machine_reads() -> Iterator[Counter[str]]:
    """Provide the number of reads of the machine's clocks, and of starts of threads, by function, module and line."""
    found: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and _is_read(function):
            module = str(frame.f_globals.get("__name__"))
            if module not in _HARMLESS:
                found[f"{function.__name__} in {module}:{frame.f_lineno}"] += 1

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]


def _is_read(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, dt.date):
        return function.__name__ in _DATE_READS
    return type(function).__hash__ is not None and function in _READS


@contextlib.contextmanager
def hostile_clocks(seed: int) -> Iterator[None]:
    """Let the clocks of the machine jump: each read of one takes up to 30 s, as on a machine that is far too busy.

    All modules that read them by name are patched, those that were imported before as well.
    """
    chance = random.Random(seed)
    late = 0.0

    def hostile(original: Callable[[], float], unit: float) -> Callable[[], float]:
        def read() -> float:
            nonlocal late
            late += chance.choice((0.0, 0.001, _MOST_S)) * chance.random()
            return type(original())(original() + late * unit)

        return read

    replaced = {
        getattr(time, name): hostile(getattr(time, name), 1e9 if name.endswith("_ns") else 1.0)
        for name in _CLOCKS
        if name != "sleep"
    }
    with contextlib.ExitStack() as stack:
        for original, replacement in replaced.items():
            for module in list(sys.modules.values()):
                for name in [key for key, value in vars(module).items() if value is original]:
                    setattr(module, name, replacement)
                    stack.callback(setattr, module, name, original)
        yield
