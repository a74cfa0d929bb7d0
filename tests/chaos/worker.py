"""One worker process of an application, with switches for faults that no signal can cause.

A control file sets the delay of its disk and the error of its wall clock. With `fencing` off, its transactional ids are
unique per process: then no producer is fenced, and a zombie can commit. millpond has no code for this: the calls of the
runtime are wrapped from outside.

Events of the worker are written to a file at once, one JSON object per line, so that a kill loses none.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec

import millpond as mp
from millpond.runtime.commit import pipeline as commit
from millpond.runtime.commit.lost_connections import Patience
from millpond.runtime.commit.pipeline import CommitPhase, CommitPipeline
from millpond.runtime.kafka import clients
from millpond.runtime.listeners import CommitStats
from millpond.runtime.offsets import marks
from millpond.runtime.ownership.takeover import OffsetStore
from millpond.runtime.states import WorkerState
from millpond.state import StateFile

__all__ = ("LOOK_EVERY_S", "REFUSED", "Controls")

#: The exit code of a worker that ended with one of millpond's errors; the message is in the evidence.
REFUSED = 3
#: The interval in which it reads its control file, in seconds.
LOOK_EVERY_S = 0.05
#: For how many turns of 5 ms a zombie's loop only completes its commit; clocks went on while it was stopped.
_TURNS = 6_000


class Controls(msgspec.Struct, frozen=True):
    """The content of the control file."""

    write_delay_s: float = 0.0
    """The additional time of each write of the state."""
    clock_offset_s: float = 0.0
    """Added to the wall clock."""
    stop: int | None = None
    """The process stops like SIGSTOP right before a commit: once for each new number."""
    slow: int | None = None
    """The next record takes `slow_s` longer: once for each new number."""
    slow_s: float = 0.0


class Evidence(mp.WorkerListener):
    """Writes the worker's events to a file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def record(self, what: str, **facts: Any) -> None:
        os.write(self._file, json.dumps({"what": what, "at": time.monotonic(), **facts}).encode() + b"\n")

    def state_changed(self, state: WorkerState) -> None:
        self.record("state", state=state.value)

    def restore_started(self, store: str, partition: int, start: int, end: int) -> None:
        self.record("restore started", store=store, partition=partition, start=start, end=end)

    def update_started(self, store: str, partition: int, start: int) -> None:
        self.record("restore started", store=store, partition=partition, start=start, end=start)

    def restore_ended(self, store: str, partition: int, records: int) -> None:
        self.record("restore ended", store=store, partition=partition, records=records)

    def committed(self, stats: CommitStats) -> None:
        self.record("committed", records=stats.records, partitions=stats.partitions, seconds=round(stats.seconds, 4))


def _application(name: str, *, optimized: bool) -> tuple[mp.Topology, Any]:
    """Return the topology, and the class of the processor that a slow record delays."""
    # Only one of them is imported: a worker has to start at once.
    if name == "orders":
        from tests.chaos import application

        return application.topology(), application.Journal
    from tests.chaos.operators.application import topology
    from tests.turns.topology import AllStores

    return topology(optimized=optimized), AllStores


def _obey(path: Path, slowed_class: Any, zombie: threading.Event) -> None:
    """Apply the control file to the clock, the disk, the commits and a processor of this process.

    `zombie` is set from when the process stops right before a commit.
    """
    controls, stopped, slowed = Controls(), None, None
    real_time, real_time_ns, real_write, real_portions = time.time, time.time_ns, StateFile.write, commit.portions

    def slow_write(file: StateFile, *arguments: Any, **keywords: Any) -> None:
        if controls.write_delay_s:
            time.sleep(controls.write_delay_s)
        real_write(file, *arguments, **keywords)

    def portions_after_a_stop(offsets: list[Any]) -> list[list[Any]]:
        nonlocal stopped
        if controls.stop not in {None, stopped}:
            stopped = controls.stop
            zombie.set()
            os.kill(os.getpid(), signal.SIGSTOP)
        return real_portions(offsets)

    real_process = slowed_class.process

    def slow_process(processor: Any, record: Any) -> None:
        nonlocal slowed
        if controls.slow not in {None, slowed}:
            slowed = controls.slow
            time.sleep(controls.slow_s)
        real_process(processor, record)

    def watch() -> None:
        nonlocal controls
        seen = b""
        while True:
            try:
                raw = path.read_bytes()
                if raw != seen:
                    seen, controls = raw, msgspec.json.decode(raw, type=Controls)
            except (OSError, msgspec.DecodeError):
                pass  # missing or incomplete: the next read succeeds
            time.sleep(LOOK_EVERY_S)

    time.time = lambda: real_time() + controls.clock_offset_s
    time.time_ns = lambda: real_time_ns() + int(controls.clock_offset_s * 1e9)
    StateFile.write = slow_write  # type: ignore[assignment, method-assign]
    commit.portions = portions_after_a_stop
    slowed_class.process = slow_process
    threading.Thread(target=watch, name="controls", daemon=True).start()


def _switch_fencing_off(zombie: threading.Event) -> None:
    """Give every producer a unique transactional id, compare no committed offsets, and take those that went back.

    Then a zombie completes its commit, before it does anything else: otherwise only chance decides whether it hears
    of its successor first, or drops a client that was frozen during a commit. A successor would notice that commit,
    before its first one or later.
    """
    real_advance = CommitPipeline.advance

    def advance(pipeline: CommitPipeline) -> commit.Commit | None:
        if not zombie.is_set():
            return real_advance(pipeline)
        try:
            for _ in range(_TURNS):
                if (done := real_advance(pipeline)) is not None or pipeline.phase is CommitPhase.IDLE:
                    return done
                time.sleep(0.005)
        finally:
            zombie.clear()
        return None

    CommitPipeline.advance = advance  # type: ignore[method-assign]
    setattr(OffsetStore, "check_unchanged", lambda _self, _expected, _left_s: None)
    setattr(commit, "_STUCK_S", 60.0)
    setattr(Patience, "next_s", lambda _self, _commits: 60.0)
    real_init = marks.Marks.__init__
    setattr(marks.Marks, "__init__", lambda self, now=time.monotonic, group="": real_init(self, now))
    setattr(marks, "_ACCEPTED_AFTER_S", 2.0)
    real = clients.transactional_id
    setattr(
        clients, "transactional_id", lambda application_id, worker: f"{real(application_id, worker)}-{uuid.uuid4().hex}"
    )


def main(options: dict[str, Any]) -> int:
    """Run a worker until SIGTERM; return the exit code."""
    faulthandler.register(signal.SIGUSR1)  # prints the stacks of all threads when a run is stuck
    topology, slowed = _application(options["application"], optimized=options["optimized"])
    zombie = threading.Event()
    _obey(Path(options["control"]), slowed, zombie)
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(levelname)s %(name)s %(message)s")
    logging.getLogger().handlers[0].setFormatter(
        _MonotonicFormatter("%(monotonic).3f %(levelname)s %(name)s %(message)s")
    )
    evidence = Evidence(options["evidence"])
    evidence.record("started", pid=os.getpid())
    if not options["fencing"]:
        _switch_fencing_off(zombie)
    config = mp.Config.of(options["settings"])
    more: dict[str, Any] = {"take_over": True} if options["alone"] else {}
    worker = mp.Worker(topology, config, evidence, **more)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    try:
        worker.run()
    except mp.MillpondError as error:
        evidence.record("refused", kind=type(error).__name__, sentence=str(error))
        return REFUSED
    return 0


class _MonotonicFormatter(logging.Formatter):
    """Formats times by the monotonic clock, whatever happens to the wall clock."""

    def format(self, record: logging.LogRecord) -> str:
        record.monotonic = time.monotonic()
        return super().format(record)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
