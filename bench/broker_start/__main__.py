"""`make bench-broker-start`: how long the embedded broker takes to answer, beside processes that keep the cores busy.

It prints wall and CPU seconds of each start, as `millpond dev` makes it (quick) and with Java's defaults, with the
archive of the broker's classes and without it. The aim for a quick start with the archive is 8 s.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import psutil

from millpond.broker import EmbeddedBroker, start_cache
from millpond.broker import __main__ as prepare
from millpond.broker.quick import QUICK

__all__ = ("main",)

_AIM_S = 8.0


def main() -> int:
    """Time the starts; return 1 if a quick start with the archive took longer than the aim."""
    parser = argparse.ArgumentParser(prog="bench.broker_start", description=__doc__)
    parser.add_argument("--starts", type=int, default=3, help="starts of each kind (default: 3)")
    parser.add_argument("--busy", type=int, default=2, help="processes that keep a core busy (default: 2)")
    arguments = parser.parse_args()
    prepare.main(["kafka"])
    slow = False
    with _busy(arguments.busy):
        print(f"{'start':<28}{'wall s':>8}{'CPU s':>8}")
        for name, options, archive in (
            ("quick, with archive", QUICK, True),
            ("quick, without", QUICK, False),
            ("Java's defaults, with archive", (), True),
            ("Java's defaults, without", (), False),
        ):
            for _ in range(arguments.starts):
                wall_s, cpu_s = _start(options, archive=archive)
                print(f"{name:<28}{wall_s:>8.1f}{cpu_s:>8.1f}", flush=True)
                slow |= options is QUICK and archive and wall_s > _AIM_S
    return int(slow)


def _start(options: tuple[str, ...], *, archive: bool) -> tuple[float, float]:
    nothing = mock.patch.object(start_cache, "class_archive", return_value=Path("/nonexistent"))
    began = time.monotonic()
    with contextlib.nullcontext() if archive else nothing, EmbeddedBroker(jvm_options=options) as broker:
        wall_s = time.monotonic() - began
        used = psutil.Process(broker.pid).cpu_times()
        broker.kill()
        return wall_s, used.user + used.system


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
