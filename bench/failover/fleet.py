"""The workers of one side: start, kill, stop, drain them, and see what each holds."""

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
_LAG: Final = (
    500  # records a copy may be behind while records come in at 500 a second and are committed ten times a second
)


@dataclass(frozen=True, slots=True)
class Work:
    """What the workers of one side are told."""

    application: str
    bootstrap: str
    input: str
    output: str
    directory: Path
    """For state directories and logs."""
    session_ms: int
    transaction_ms: int
    """Kafka Streams' transaction timeout."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one worker holds."""

    active: frozenset[int] = frozenset()
    """Partitions of the tasks it processes."""
    standby: Mapping[int, int | None] = field(default_factory=dict)
    """Its copies: partition and how many changelog records it is behind, None while that is not known."""
    ready: bool = True
    """It restores nothing that it should process, and is not about to get what warms up."""


Holdings = Mapping[str, Held]
"""By worker, only those that are alive."""


def covered(holdings: Holdings) -> bool:
    """Whether every task is processed by exactly one worker and has a caught-up copy at another."""
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
    """Whether it is `covered`, and the tasks are spread as evenly as they can be."""
    actives = [len(held.active) for held in holdings.values()]
    return covered(holdings) and max(actives) - min(actives) <= 1


class Fleet(abc.ABC):
    """The workers of one side, by name. The name of a process is its worker's with a number for its start: `w1#2`."""

    side: SideName
    reports_deaths = False
    """Whether whoever hands out the tasks can be told of a death at once."""
    drains = False
    """Whether a worker can be asked to give up its tasks while it goes on running."""
    keeps_state_of_the_killed = False
    """Whether a killed worker's state is of use when it comes back; otherwise it is wiped and restored from the changelog."""

    def __init__(self, work: Work) -> None:
        """Nothing runs yet."""
        self.work = work
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._leaving: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: dict[str, int] = {}

    @abc.abstractmethod
    def command(self, worker: str) -> tuple[list[str], dict[str, str]]:
        """How a worker is started: arguments, and what to add to the environment."""

    @abc.abstractmethod
    def holdings(self) -> Holdings:
        """What the live workers hold."""

    def gone(self, worker: str) -> None:
        """Report a death.

        Raises:
            NotImplementedError: `reports_deaths` is false.
        """
        raise NotImplementedError

    def noticed(self, worker: str, seconds: float) -> int | None:
        """Wait until the death of `worker` is noticed by itself, `seconds` at most.

        Returns:
            When, epoch microseconds, never later than it was; None where it cannot be seen.
        """
        return None

    def drain(self, worker: str) -> None:
        """Ask `worker` to give up its tasks.

        Raises:
            NotImplementedError: `drains` is false.
        """
        raise NotImplementedError

    def undrain(self, worker: str) -> None:
        """Let `worker` have tasks again.

        Raises:
            NotImplementedError: `drains` is false.
        """
        raise NotImplementedError

    @property
    def live(self) -> list[str]:
        """Names of the workers that run and have not been asked to end."""
        return sorted(self._processes)

    def name(self, worker: str) -> str:
        """The name of the worker's newest process, as its results carry it."""
        return f"{worker}#{self._starts[worker]}"

    def start(self, worker: str) -> None:
        """Start a worker, in its state directory of last time."""
        self._starts[worker] = self._starts.get(worker, 0) + 1
        arguments, environment = self.command(worker)
        log = self.log(worker)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self._processes[worker] = subprocess.Popen(
                arguments, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment}
            )

    def kill(self, worker: str) -> None:
        """End a worker with SIGKILL."""
        process = self._processes.pop(worker)
        process.kill()
        process.wait()

    def freeze(self, worker: str) -> None:
        """Stop a worker with SIGSTOP: it exists, and does nothing."""
        self._processes[worker].send_signal(signal.SIGSTOP)

    def thaw(self, worker: str) -> None:
        """Let a frozen worker go on."""
        self._processes[worker].send_signal(signal.SIGCONT)

    def terminate(self, worker: str) -> None:
        """Ask a worker to end, with SIGTERM."""
        process = self._leaving[worker] = self._processes.pop(worker)
        process.send_signal(signal.SIGTERM)

    def ended(self, worker: str) -> bool:
        """Whether a worker that was asked to end has."""
        if self._leaving[worker].poll() is None:
            return False
        del self._leaving[worker]
        return True

    def check(self) -> None:
        """Do nothing while all workers run.

        Raises:
            RunFailed: when one has ended by itself.
        """
        for worker, process in self._processes.items():
            if (code := process.poll()) is not None:
                tail = "\n".join(self.log(worker).read_text(errors="replace").splitlines()[-15:])
                raise RunFailed(
                    f"{self.name(worker)} ended with exit code {code}; it printed:\n{tail}\n(all of it is in {self.log(worker)})"
                )

    def forget(self, worker: str) -> None:
        """Remove the state of a worker that has ended: its next start is that of a new one."""
        shutil.rmtree(self.state(worker))

    def log(self, worker: str) -> Path:
        """Where a worker's output goes, all its starts one after another."""
        return self.work.directory / "logs" / f"{self.work.application}-{worker}.log"

    def state(self, worker: str) -> Path:
        """A worker's state directory."""
        path = self.work.directory / "state" / f"{self.work.application}-{worker}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def close(self) -> None:
        """End all workers, by force if need be."""
        processes = [*self._processes.values(), *self._leaving.values()]
        for process in processes:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # or a frozen one would not hear of it
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            process.kill()
            process.wait()
        self._processes.clear()
        self._leaving.clear()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Whatever was started is ended at the end of the block."""
        try:
            yield
        finally:
            self.close()
