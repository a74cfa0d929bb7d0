"""Worker processes of `application.py`: started, observed by their evidence file, killed by pid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.exactly_once import application
from tests.support import freezing

ROOT = Path(__file__).resolve().parents[2]
Fact = dict[str, Any]

#: Short, since kills have to hit a moment of milliseconds.
_POLL_S = 0.002


class Run:
    """One process of a worker."""

    def __init__(self, command: dict[str, Any], directory: Path, name: str) -> None:
        self.evidence_file = directory / f"{name}.jsonl"
        self.log = directory / f"{name}.log"
        self._whole = 0
        self._facts: list[Fact] = []
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "worker"), str(ROOT))),
            "PYTHONFAULTHANDLER": "1",
        }  # fmt: skip
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", application.__name__),
                    json.dumps({**command, "evidence": str(self.evidence_file)}),
                ],
                cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    # Its events

    def facts(self, what: str | None = None) -> list[Fact]:
        """Return the worker's events so far."""
        if self.evidence_file.exists():
            with self.evidence_file.open("rb") as file:
                file.seek(self._whole)
                for line in file:
                    if line.endswith(b"\n"):
                        self._whole += len(line)
                        self._facts.append(json.loads(line))
        return [fact for fact in self._facts if what is None or fact["what"] == what]

    def states(self) -> list[str]:
        return [fact["state"] for fact in self.facts("state")]

    def start_up_seconds(self) -> float | None:
        """The seconds from the first line of the program to running; None if it never ran."""
        running = [fact["at"] for fact in self.facts("state") if fact["state"] == "running"]
        return running[0] - self.facts("started")[0]["at"] if running else None

    def refusal(self) -> Fact:
        """The error with which the worker ended."""
        [fact] = self.facts("refused")
        return fact

    # Waiting and ending

    def await_(self, condition: Callable[[Run], object], what: str, timeout_s: float = 90) -> None:
        """Wait until a condition is true while the process is alive."""
        deadline = time.monotonic() + timeout_s
        while not condition(self):
            ended = self.process.poll() is not None and not condition(self)
            assert not ended, f"the worker ended ({self.process.returncode}) before: {what}\n{self.tail()}"
            assert time.monotonic() < deadline, f"not true within {timeout_s} s: {what}\n{self.tail()}"
            time.sleep(_POLL_S)

    def await_running(self, times: int = 1) -> None:
        """Wait until it has reached the running state so many times in this process."""
        self.await_(lambda run: run.states().count("running") >= times, f"the worker runs, time {times}")

    def commits(self) -> int:
        """Return the number of commits of this process so far."""
        return len(self.facts("committed"))

    def await_commits(self, count: int = 1, after: int | None = None) -> None:
        """Wait for so many further commits of this process.

        Args:
            count: so many.
            after: what `commits` returned before the input was sent; needed if no more input follows, since its commit
                may come before this call. The default is what it returns now.
        """
        wanted = (self.commits() if after is None else after) + count
        self.await_(lambda run: run.commits() >= wanted, f"{count} more commits")

    def await_end(self, timeout_s: float = 90) -> int:
        """Wait for its end; return the exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker does not end\n{self.tail()}") from None

    def freeze(self) -> None:
        """Stop it as a hanging machine does."""
        freezing.freeze(self.process)

    def thaw(self) -> None:
        """Let it go on."""
        freezing.thaw(self.process)

    def kill(self) -> None:
        """Kill it by SIGKILL, and wait for its end."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stop it by SIGTERM; the worker must commit and end without an error."""
        self.process.terminate()
        code = self.await_end()
        assert code == 0, f"the worker ended with {code}\n{self.tail()}"

    def tail(self) -> str:
        """Return the last lines of its log, for messages of failed tests."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])


class Application:
    """One application: its topics, its settings, and all runs of its workers."""

    def __init__(self, bootstrap_servers: str, app_id: str, source: str, target: str, directory: Path) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.app_id = app_id
        self.source = source
        self.target = target
        self.repartition = f"{app_id}-{application.WORDS}-repartition"
        self.runs: list[Run] = []
        self._directory = directory

    def changelog(self, store: str) -> str:
        return f"{self.app_id}-{store}-changelog"

    def state_directory(self, worker: str = "w0", place: str = "state") -> Path:
        return self._directory / place / self.app_id / worker

    def start(
        self,
        guarantee: str = "exactly_once",
        worker: str = "w0",
        place: str = "state",
        crash: dict[str, Any] | None = None,
        take_over: bool = False,
        join: str | None = None,
        kind: str | None = None,
        sums: bool = False,
        **settings: Any,
    ) -> Run:
        """Start a worker process.

        Args:
            guarantee: the processing guarantee.
            worker: the worker's id.
            place: the name of its state directory.
            crash: the step at which it ends by itself, see `crashing`.
            take_over: whether it takes over tasks of other workers.
            join: the topic of the right table, to join two tables by a foreign key instead of counting.
            kind: with `join`, the function of `application` that makes another topology.
            sums: whether to sum the rows of a table that is restored from its topic, instead of counting.
            settings: further settings, with `_` for `.`.
        """
        every = {
            "application.id": self.app_id,
            "bootstrap.servers": self.bootstrap_servers,
            "worker.id": worker,
            "state.dir": str(self._directory / place),
            "processing.guarantee": guarantee,
            "commit.interval.ms": 100,
            # The test reads the whole repartition topic at the end.
            "repartition.purge.interval.ms": "1h",
            "http.port": -1,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        command = {
            "settings": every, "source": self.source, "target": self.target, "crash": crash, "take_over": take_over,
            "join": join, "kind": kind, "sums": sums,
        }  # fmt: skip
        run = Run(command, self._directory, f"run-{len(self.runs):02}")
        self.runs.append(run)
        return run

    def end(self) -> None:
        """Kill all processes that still run."""
        for run in self.runs:
            if run.process.poll() is None:
                run.kill()
