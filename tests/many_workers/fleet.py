"""A coordinator in a child process, and workers in threads of the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import millpond as mp
from millpond.protocol import View
from tests.runtime.running import Running
from tests.support.kafka import eventually

__all__ = ("Coordinator", "Fleet")

_ROOT = Path(__file__).parents[2]


class Coordinator:
    """`python -m millpond_operator.coordinator` for one application."""

    def __init__(self, app_id: str, directory: Path, options: Mapping[str, object] | None = None) -> None:
        self._app_id = app_id
        self._store = directory / "assignment.json"
        self._log = (directory / "coordinator.log").open("ab")
        self._options = [f"--{name}={value}" for name, value in (options or {}).items()]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self, port: int = 0) -> Self:
        """Start it, and wait until it accepts requests."""
        paths = os.pathsep.join([str(_ROOT / "worker"), str(_ROOT / "operator"), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "millpond_operator.coordinator", "--application", self._app_id),
                *(f"--store={self._store}", f"--port={port}", *self._options),
            ],
            stdout=subprocess.PIPE, stderr=self._log, env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the coordinator did not start: {Path(self._log.name).read_text()[-2000:]}"
        self.url = json.loads(line)["url"]
        return self

    @property
    def port(self) -> int:
        """Its URL."""
        return int(self.url.rsplit(":", 1)[1])

    def kill(self) -> None:
        """Kill it by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def restart(self) -> None:
        """Kill it and start it again at the same address."""
        port = self.port
        self.kill()
        self.start(port)

    def post(self, worker: str, what: str, method: str = "POST") -> None:
        """Request `gone` or `drain` for a worker."""
        url = f"{self.url}/v1/applications/{self._app_id}/workers/{worker}/{what}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
            answer.read()

    def view(self) -> View:
        """Return the whole assignment."""
        import msgspec

        with urllib.request.urlopen(f"{self.url}/v1/applications/{self._app_id}/assignment", timeout=30) as answer:
            return msgspec.json.decode(answer.read(), type=View)

    def close(self) -> None:
        """Stop it."""
        self.kill()
        self._log.close()


class Fleet:
    """Workers of one application, and its coordinator."""

    def __init__(
        self,
        topology: Callable[[], mp.Topology],
        servers: str,
        app_id: str,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        coordinator: Mapping[str, object] | None = None,
    ) -> None:
        self._topology = topology
        self._servers = servers
        self._app_id = app_id
        self._directory = directory
        self._settings = dict(settings or {})
        self.coordinator = Coordinator(app_id, directory, coordinator).start()
        self.workers: dict[str, Running] = {}

    def start(self, *names: str, **settings: Any) -> None:
        """Start workers."""
        for name in names:
            self.workers[name] = Running(
                self._topology(), self._servers, self._app_id, self._directory / f"state-{name}",
                {**self._settings, "worker.id": name, "coordinator.url": self.coordinator.url, **settings},
            ).start()  # fmt: skip

    def stop(self, name: str) -> None:
        """Stop a worker like SIGTERM."""
        self.workers.pop(name).stop()

    def active(self) -> dict[str, list[str]]:
        """Return the active tasks of each worker, as the workers know them."""
        return {
            name: sorted(str(task.id) for task in running.worker._parts.executor.running)
            for name, running in self.workers.items()
            if hasattr(running.worker._parts, "assembly")
        }

    def copies(self) -> dict[str, list[str]]:
        """Return the standbys of each worker that follow their changelogs."""
        return {
            name: sorted(
                str(held.id)
                for held in list(running.worker._parts.executor.held.values())
                if held.role.value != "active" and held.state.value == "running"
            )
            for name, running in self.workers.items()
        }

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> None:
        """Wait for a condition; raise the error of a worker at once."""

        def holds() -> bool:
            for name, running in self.workers.items():
                if running.error is not None:
                    raise AssertionError(f"worker {name} ended") from running.error
            return bool(condition())

        try:
            eventually(holds, what, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.active()} {self.copies()} {self.coordinator.view()}") from error

    def wait_shared(self, tasks: int, timeout_s: float = 60.0) -> None:
        """Wait until every task runs exactly once, and every running worker has its share."""

        def shared() -> bool:
            by_worker = self.active()
            everything = [task for tasks in by_worker.values() for task in tasks]
            counts = [len(each) for each in by_worker.values()]
            return (
                len(everything) == len(set(everything)) == tasks
                and len(by_worker) == len(self.workers)
                and max(counts) - min(counts) <= 1
            )

        self.wait(shared, f"{tasks} tasks are shared by {sorted(self.workers)}", timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in self.workers.values():
            running.worker.stop()
        try:
            for running in self.workers.values():
                ended = running.join()
                if ended is not None and kind is None:
                    raise ended
        finally:
            self.coordinator.close()
