"""Runs workers in the process of the test: start, wait for conditions, stop, and get their errors."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import millpond as mp
from millpond.runtime.listeners import CommitStats, WorkerListener
from millpond.runtime.states import WorkerState
from tests.support import kafka

__all__ = ("Running", "config", "failure_of", "run_until")

GUARANTEES = ("at_least_once", "exactly_once")

#: What tests want to be quick about; a test overrides what it is about.
_QUICK: dict[str, object] = {
    "commit.interval.ms": 50,
    "poll.ms": 20,
    "http.port": -1,
    "shutdown.timeout.ms": 20_000,
    # An outage that is over in seconds may last a minute on a busy machine.
    "task.timeout.ms": 120_000,
}


def config(servers: str, app_id: str, state_dir: Path, settings: Mapping[str, object] | None = None) -> mp.Config:
    """A configuration with short intervals."""
    given = {
        "bootstrap.servers": servers,
        "application.id": app_id,
        "worker.id": "w0",
        "state.dir": str(state_dir),
        **_QUICK,
        **(settings or {}),
    }
    return mp.Config.of(given)


class _Listener(WorkerListener):
    def __init__(self) -> None:
        self.states: list[WorkerState] = []
        self.commits: list[CommitStats] = []
        self.restoring: list[tuple[str, int, int, int]] = []
        self.on_restore: Callable[[], object] = lambda: None

    def state_changed(self, state: WorkerState) -> None:
        self.states.append(state)

    def restore_progress(self, store: str, partition: int, done: int, total: int) -> None:
        self.restoring.append((store, partition, done, total))
        self.on_restore()

    def committed(self, stats: CommitStats) -> None:
        self.commits.append(stats)


class Running:
    """A worker in a thread. The end of the block stops it, and raises its error."""

    def __init__(
        self,
        topology: mp.Topology,
        servers: str,
        app_id: str,
        state_dir: Path,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.listener = _Listener()
        self.worker = mp.Worker(topology, config(servers, app_id, state_dir, settings), self.listener)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="worker under test", daemon=True)

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:
            self.error = error

    @property
    def state(self) -> WorkerState:
        """The state of the worker."""
        return self.worker.state

    @property
    def ended(self) -> bool:
        """Whether its thread has ended."""
        return not self._thread.is_alive()

    def start(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 40.0) -> None:
        """Wait until the condition is true. An error of the worker is raised at once."""

        def holds() -> bool:
            if condition():
                return True
            if self.ended:
                if self.error is not None:
                    raise self.error
                raise AssertionError(f"the worker ended before: {what}")
            return False

        kafka.eventually(holds, what, timeout_s)

    def wait_running(self, timeout_s: float = 40.0) -> None:
        """Wait until all is restored and records are processed."""
        self.wait(lambda: self.state is WorkerState.RUNNING, "the worker runs", timeout_s)

    def join(self, timeout_s: float = 40.0) -> BaseException | None:
        """Wait for the end; return the error."""
        self._thread.join(timeout_s)
        assert self.ended, (
            f"the worker did not end within {timeout_s} s (it is {self.state.value}):\n{_stack_of(self._thread)}"
        )
        return self.error

    def stop(self, timeout_s: float = 40.0) -> None:
        """Stop it, and raise its error."""
        self.worker.stop()
        error = self.join(timeout_s)
        if error is not None:
            raise error

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.worker.stop()
            self._thread.join(60)


def _stack_of(thread: threading.Thread) -> str:
    """Return where a thread is, since that is the cause if it does not end."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else "its thread has ended meanwhile"


def failure_of(
    topology: mp.Topology, servers: str, app_id: str, state_dir: Path, settings: Mapping[str, object] | None = None
) -> mp.MillpondError:
    """Run a worker that must fail; return its error, which must be one of millpond's."""
    running = Running(topology, servers, app_id, state_dir, settings).start()
    try:
        error = running.join()
    finally:
        running.worker.stop()
    assert isinstance(error, mp.MillpondError), f"ended with {error!r}"
    text = str(error)
    assert text, "an error says something"
    assert "Traceback" not in text
    assert len(text.splitlines()) == 1, text
    return error


def run_until(
    topology: mp.Topology,
    servers: str,
    app_id: str,
    state_dir: Path,
    output: str,
    done: Callable[[list[kafka.Row]], bool] | int,
    settings: Mapping[str, object] | None = None,
    *,
    timeout_s: float = 40.0,
) -> list[kafka.Row]:
    """Run a worker until its output is as expected, and stop it; return all committed rows."""
    enough = (lambda rows: len(rows) >= done) if isinstance(done, int) else done
    with Running(topology, servers, app_id, state_dir, settings) as running:
        running.wait(lambda: enough(kafka.read(servers, output)), f"{output} is complete", timeout_s)
    return kafka.read(servers, output)


logging.getLogger("millpond").setLevel(logging.INFO)
