"""The workers of one side: starts, kills, stops and drains them, and observes their tasks."""

from __future__ import annotations

import abc
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.failover.records import PARTITIONS
from bench.sides import RunFailed, SideName

COMMIT_MS: Final = 100
_STOP_SECONDS: Final = 30.0
_LAG: Final = 500  # allowed lag of a copy at 500 records per second and ten commits per second


@dataclass(frozen=True, slots=True)
class Work:
    """The options of the workers of one side."""

    application: str
    bootstrap: str
    input: str
    output: str
    directory: Path
    """The directory of state directories and logs."""
    session_ms: int
    transaction_ms: int
    """The transaction timeout of Kafka Streams, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Held:
    """The tasks of one worker."""

    active: frozenset[int] = frozenset()
    """Partitions of its active tasks."""
    standby: Mapping[int, int | None] = field(default_factory=dict)
    """The lag of its copies by partition, in changelog records; None while it is not known."""
    ready: bool = True
    """Whether it restores no active task, and no warm-up copy of it is about to become active."""


Holdings = Mapping[str, Held]
"""The tasks of each live worker."""


def covered(holdings: Holdings) -> bool:
    """Return whether every task is processed by exactly one worker, and has a caught-up copy on another."""
    actives = [partition for held in holdings.values() for partition in held.active]
    if sorted(actives) != list(range(PARTITIONS)) or not all(held.ready for held in holdings.values()):
        return False
    copies = {
        partition
        for held in holdings.values()
        for partition, lag in held.standby.items()
        if lag is not None and 0 <= lag <= _LAG
    }
    return len(copies) == PARTITIONS


def balanced(holdings: Holdings) -> bool:
    """Return whether it is `covered`, and the tasks are spread as evenly as possible."""
    actives = [len(held.active) for held in holdings.values()]
    return covered(holdings) and max(actives) - min(actives) <= 1


class Fleet(abc.ABC):
    """The workers of one side by name. A process is named by its worker and the number of its start: `w1#2`."""

    side: SideName
    reports_deaths = False
    """Whether a death can be reported to the assignor at once."""
    drains = False
    """Whether a running worker can be drained of its tasks."""
    keeps_state_of_the_killed = False
    """Whether a killed worker can reuse its state after a restart; otherwise it restores from the changelog."""

    def __init__(self, work: Work) -> None:
        """Create the fleet; nothing runs yet."""
        self.work = work
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._leaving: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: dict[str, int] = {}

    @abc.abstractmethod
    def command(self, worker: str) -> tuple[list[str], dict[str, str]]:
        """Return the arguments of a worker, and its additional environment."""

    @abc.abstractmethod
    def holdings(self) -> Holdings:
        """Return the tasks of the live workers."""

    def gone(self, worker: str) -> None:
        """Report a death.

        Raises:
            NotImplementedError: `reports_deaths` is false.
        """
        raise NotImplementedError

    def noticed(self, worker: str, seconds: float) -> int | None:
        """Wait at most `seconds` until the death of `worker` is detected.

        Returns:
            The time of the detection or just before it, epoch microseconds; None if it cannot be observed.
        """
        return None

    def drain(self, worker: str) -> None:
        """Request that the tasks of `worker` move away.

        Raises:
            NotImplementedError: `drains` is false.
        """
        raise NotImplementedError

    def undrain(self, worker: str) -> None:
        """Allow `worker` tasks again.

        Raises:
            NotImplementedError: `drains` is false.
        """
        raise NotImplementedError

    @property
    def live(self) -> list[str]:
        """Return the names of workers that run and are not stopping."""
        return sorted(self._processes)

    def name(self, worker: str) -> str:
        """Return the name of the worker's newest process, which its results carry."""
        return f"{worker}#{self._starts[worker]}"

    def start(self, worker: str) -> None:
        """Start a worker with its existing state directory."""
        self._starts[worker] = self._starts.get(worker, 0) + 1
        arguments, environment = self.command(worker)
        log = self.log(worker)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self._processes[worker] = subprocess.Popen(
                arguments, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment}
            )

    def kill(self, worker: str) -> None:
        """Kill a worker by SIGKILL."""
        process = self._processes.pop(worker)
        process.kill()
        process.wait()

    def freeze(self, worker: str) -> None:
        """Freeze a worker by SIGSTOP."""
        self._processes[worker].send_signal(signal.SIGSTOP)

    def thaw(self, worker: str) -> None:
        """Continue a frozen worker."""
        self._processes[worker].send_signal(signal.SIGCONT)

    def terminate(self, worker: str) -> None:
        """Stop a worker by SIGTERM."""
        process = self._leaving[worker] = self._processes.pop(worker)
        process.send_signal(signal.SIGTERM)

    def ended(self, worker: str) -> bool:
        """Return whether a stopping worker has ended."""
        if self._leaving[worker].poll() is None:
            return False
        del self._leaving[worker]
        return True

    def check(self) -> None:
        """Check that all workers run.

        Raises:
            RunFailed: one has ended by itself.
        """
        for worker, process in self._processes.items():
            if (code := process.poll()) is not None:
                tail = "\n".join(self.log(worker).read_text(errors="replace").splitlines()[-15:])
                raise RunFailed(
                    f"{self.name(worker)} ended with exit code {code}; the last lines of {self.log(worker)}:\n{tail}"
                )

    def forget(self, worker: str) -> None:
        """Delete the state of a worker that has ended: it starts next time like a new worker."""
        shutil.rmtree(self.state(worker))

    def log(self, worker: str) -> Path:
        """Return the log file of a worker, which has the output of all its starts."""
        return self.work.directory / "logs" / f"{self.work.application}-{worker}.log"

    def state(self, worker: str) -> Path:
        """Return the state directory of a worker."""
        path = self.work.directory / "state" / f"{self.work.application}-{worker}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def close(self) -> None:
        """Stop all workers, by SIGKILL if necessary."""
        processes = [*self._processes.values(), *self._leaving.values()]
        for process in processes:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # a frozen worker handles no other signal
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            process.kill()
            process.wait()
        self._processes.clear()
        self._leaving.clear()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Stop all processes of the fleet at the end of the block."""
        try:
            yield
        finally:
            self.close()
