"""The processes of a run: a broker, a coordinator, workers. Each is killed by its pid, and keeps its logs."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import millpond
from millpond.protocol import View
from tests.chaos import worker
from tests.chaos.proxying import Proxy
from tests.support import freezing
from tests.support.broker import OwnBroker, free_port

__all__ = ("Coordinator", "Exit", "WorkerProcess", "broker_with_listeners", "environment")

ROOT = Path(__file__).resolve().parents[2]
_AGAIN_S = 0.5
"""The pause before a process that ended by itself is started again, in seconds."""
_END_S = 45.0
"""The time after SIGTERM before a process is killed, in seconds."""
_CALL_S = 2.0


def environment() -> dict[str, str]:
    """Return the environment of a child, which imports the same code as this process."""
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    roots = [*given, str(Path(millpond.__file__).parents[1]), str(ROOT / "operator"), str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(roots), "PYTHONFAULTHANDLER": "1"}


def broker_with_listeners(directory: Path, listeners: Mapping[str, tuple[int, Proxy]]) -> OwnBroker:
    """A broker with one port for the test, and one proxy for each worker.

    Args:
        directory: of its data and log.
        listeners: name -> the port of the broker, and the proxy whose port it advertises.
    """
    own, controller = free_port(), free_port()
    names = {name.upper(): ports for name, ports in listeners.items()}
    here = {name: f"{name}://127.0.0.1:{port}" for name, (port, _) in names.items()}
    proxied = {name: f"{name}://127.0.0.1:{proxy.port}" for name, (_, proxy) in names.items()}
    plaintext = f"PLAINTEXT://127.0.0.1:{own}"
    return OwnBroker(
        directory,
        port=own,
        properties={
            "listeners": ",".join([plaintext, f"CONTROLLER://127.0.0.1:{controller}", *here.values()]),
            "advertised.listeners": ",".join([plaintext, *proxied.values()]),
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ["PLAINTEXT", "CONTROLLER", *names]
            ),
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        },
    )


@dataclass(frozen=True)
class Exit:
    """The end of a process that ended by itself."""

    who: str
    at: float
    """Monotonic seconds."""
    code: int
    why: str


class WorkerProcess:
    """A worker: one process after another with the same name.

    Attributes:
        wanted: whether it should run; if so, it is started again when it ends by itself.
        start_at: when to start it, in monotonic seconds.
    """

    def __init__(self, name: str, directory: Path, settings: Mapping[str, Any], **options: Any) -> None:
        self.name = name
        self._directory = directory
        self._settings = {**settings, "worker.id": name}
        self._options = options
        self.control = directory / f"{name}.control.json"
        self.wanted = False
        self.start_at = 0.0
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._expected = False
        self._end_by: float | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def set(self, controls: worker.Controls) -> None:
        """Set its switches."""
        aside = self.control.with_suffix(".new")
        aside.write_bytes(msgspec.json.encode(controls))
        aside.rename(self.control)

    def want(self, at: float = 0.0) -> None:
        """Let it run from a given moment."""
        self.wanted, self.start_at = True, at

    def supervise(self, now: float) -> Exit | None:
        """Start it when it is due; return its end if it ended by itself."""
        found = None
        if self.process is not None and self.process.poll() is not None:
            if not self._expected:
                found = Exit(self.name, now, self.process.returncode, self._why())
                self.start_at = max(self.start_at, now + _AGAIN_S)
            self.process = None
        elif self.process is not None and self._end_by is not None and now >= self._end_by:
            found = Exit(self.name, now, -signal.SIGKILL, f"it did not end within {_END_S:.0f} s of SIGTERM")
            self.kill()
        if self.wanted and self.process is None and now >= self.start_at:
            self._start()
        return found

    def _start(self) -> None:
        stem = f"{self.name}-{self.starts:03}"
        self.starts += 1
        self._expected = False
        self._end_by = None
        command = {
            **self._options,
            "settings": self._settings,
            "evidence": str(self._directory / f"{stem}.jsonl"),
            "control": str(self.control),
        }
        with (self._directory / f"{stem}.log").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", worker.__name__, json.dumps(command)],
                cwd=ROOT, env=environment(), stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def kill(self) -> None:
        """Kill it by SIGKILL, and wait for its end."""
        if self.process is not None:
            self._expected = True
            self.process.kill()
            self.process.wait()

    def terminate(self) -> None:
        """Stop it by SIGTERM: it hands over and ends."""
        if self.process is not None:
            self._expected = True
            self._end_by = self._end_by or time.monotonic() + _END_S
            self.process.send_signal(signal.SIGTERM)

    def show_threads(self) -> None:
        """Let it log the stacks of all its threads."""
        if self.running and self.process is not None:
            self.process.send_signal(signal.SIGUSR1)

    def pause(self) -> subprocess.Popen[bytes] | None:
        """Stop it by SIGSTOP; return the process to resume."""
        if self.running and self.process is not None:
            freezing.freeze(self.process)
        return self.process

    def resume(self, process: subprocess.Popen[bytes] | None) -> None:
        """Continue that process by SIGCONT, if it still exists."""
        if process is not None and process.poll() is None:
            freezing.thaw(process)

    @property
    def evidence(self) -> list[Path]:
        """The event files of all its processes, oldest first."""
        return sorted(self._directory.glob(f"{self.name}-*.jsonl"))

    def facts(self, what: str) -> list[dict[str, Any]]:
        """Return the events of one kind of all its processes."""
        return [
            fact
            for path in self.evidence
            for line in path.read_bytes().splitlines(keepends=True)
            if line.endswith(b"\n") and (fact := json.loads(line))["what"] == what
        ]

    def facts_of_life(self, after: float) -> list[dict[str, Any]]:
        """Return the restore events of the first process that started after a moment in monotonic seconds."""
        facts = [fact for what in ("started", "restore started") for fact in self.facts(what) if fact["at"] > after]
        facts.sort(key=lambda fact: float(fact["at"]))
        starts = [number for number, fact in enumerate(facts) if fact["what"] == "started"]
        if not starts:
            return []
        end = starts[1] if len(starts) > 1 else len(facts)
        return facts[starts[0] + 1 : end]

    def _why(self) -> str:
        refusals = self.facts("refused")
        if refusals:
            return str(refusals[-1]["sentence"])
        logs = sorted(self._directory.glob(f"{self.name}-*.log"))
        lines = [line for line in logs[-1].read_text(errors="replace").splitlines() if line.strip()] if logs else []
        # A process that a library aborted: the library's line is followed by the stacks of all threads.
        fatal = next((number for number, line in enumerate(lines) if line.startswith("Fatal Python error")), 0)
        if fatal:
            return lines[fatal - 1]
        return lines[-1] if lines else "it logged nothing"


class Coordinator:
    """The coordinator: it keeps its port and its store after each kill."""

    def __init__(self, application: str, directory: Path, *, standbys: int, session: float) -> None:
        self._application = application
        self._directory = directory
        self._standbys = standbys
        self._session = session
        self.port = free_port()
        self.wanted = False
        self.start_at = 0.0
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._expected = False

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def want(self, at: float = 0.0) -> None:
        """Let it run from a given moment."""
        self.wanted, self.start_at = True, at

    def supervise(self, now: float) -> Exit | None:
        """Start it when it is due; return its end if it ended by itself."""
        found = None
        if self.process is not None and self.process.poll() is not None:
            if not self._expected:
                log = self._directory / f"coordinator-{self.starts - 1:03}.log"
                lines = log.read_text(errors="replace").splitlines()
                found = Exit("coordinator", now, self.process.returncode, lines[-1] if lines else "it logged nothing")
                self.start_at = max(self.start_at, now + _AGAIN_S)
            self.process = None
        if self.wanted and self.process is None and now >= self.start_at:
            self._start()
        return found

    def _start(self) -> None:
        log = self._directory / f"coordinator-{self.starts:03}.log"
        self.starts += 1
        self._expected = False
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "millpond_operator.coordinator",
                    "--application", self._application, "--port", str(self.port),
                    "--store", str(self._directory / "assignment.json"),
                    "--standby-replicas", str(self._standbys),
                    "--session-timeout", f"{int(self._session * 1000)}ms",
                ],
                cwd=ROOT, env=environment(), stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def kill(self) -> None:
        """Kill it by SIGKILL, and wait for its end."""
        if self.process is not None:
            self._expected = True
            self.process.kill()
            self.process.wait()

    def post(self, worker_name: str, what: str, method: str = "POST") -> bool:
        """Request `gone` or `drain` for a worker; return whether it answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_CALL_S)
        try:
            connection.request(method, f"/v1/applications/{self._application}/workers/{worker_name}/{what}")
            return connection.getresponse().status < 300
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def view(self) -> View | None:
        """The whole assignment as it shows it; None when it does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_CALL_S)
        try:
            connection.request("GET", f"/v1/applications/{self._application}/assignment")
            return msgspec.json.decode(connection.getresponse().read(), type=View)
        except (OSError, http.client.HTTPException, msgspec.DecodeError):
            return None
        finally:
            connection.close()
