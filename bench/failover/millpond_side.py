"""The millpond side: workers and a coordinator, each in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from bench.failover.fleet import COMMIT_MS, Fleet, Held, Holdings, Work
from bench.failover.records import now_us
from bench.sides import RunFailed
from millpond.protocol.messages import Role, TaskState, View
from millpond.protocol.tasks import parse_task

_TIMEOUT: Final = 5.0
_START: Final = 30.0
_LOOK: Final = 0.02  # seconds between two polls for a measured moment


class MillpondFleet(Fleet):
    """Workers of millpond. Their tasks are read from the coordinator's assignment."""

    side = "millpond"
    reports_deaths = True
    drains = True
    keeps_state_of_the_killed = True

    def __init__(
        self,
        work: Work,
        *,
        application: str = "bench.failover.app:topology",
        standbys: int = 1,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Start the coordinator.

        Args:
            work: the options of the workers.
            application: the application, as MODULE:ATTRIBUTE.
            standbys: `num.standby.replicas`.
            settings: more settings of the workers.

        Raises:
            RunFailed: it did not print its URL.
        """
        super().__init__(work)
        self._application = application
        self._settings = settings
        log = work.directory / "logs" / f"{work.application}-coordinator.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [
            *(sys.executable, "-m", "millpond_operator.coordinator", "--application", work.application, "--port", "0"),
            *("--standby-replicas", str(standbys), "--session-timeout", f"{work.session_ms}ms"),
            *("--store", str(work.directory / "state" / f"{work.application}-assignment.json")),
        ]
        (work.directory / "state").mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            self._coordinator = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        # A coordinator that hangs before it prints its URL must not hang the bench.
        guard = threading.Timer(_START, self._coordinator.kill)
        guard.start()
        assert self._coordinator.stdout is not None
        line = self._coordinator.stdout.readline()
        guard.cancel()
        if not line:
            self._coordinator.kill()
            self._coordinator.wait()
            raise RunFailed(f"the coordinator did not start; its output:\n{log.read_text(errors='replace')[-2000:]}")
        self._url: str = json.loads(line)["url"]

    def command(self, worker: str) -> tuple[list[str], dict[str, str]]:
        """One worker."""
        work = self.work
        settings = {
            "coordinator.url": self._url,
            "commit.interval.ms": COMMIT_MS,
            "coordinator.session.timeout.ms": work.session_ms,
            **self._settings,
        }
        return [
            *(sys.executable, "-m", "millpond.cli", "run", self._application),
            *("--application-id", work.application, "--bootstrap-servers", work.bootstrap),
            *("--processing-guarantee", "exactly_once", "--worker-id", worker, "--state-dir", str(self.state(worker))),
            *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")),
        ], {"BENCH_INPUT": work.input, "BENCH_OUTPUT": work.output, "BENCH_OWNER": self.name(worker)}

    def gone(self, worker: str) -> None:
        """Report the worker's death to the coordinator."""
        self._call("POST", f"workers/{worker}/gone")

    def noticed(self, worker: str, seconds: float) -> int | None:
        """Return when it was last a live member: just before the coordinator declared it dead."""
        deadline, seen = time.monotonic() + seconds, now_us()
        while time.monotonic() < deadline:
            asked = now_us()
            if not any(member.worker == worker and member.alive for member in self.view().members):
                return seen
            seen = asked
            time.sleep(_LOOK)
        raise RunFailed(f"millpond: the death of {worker} was not detected within {seconds:.0f} s")

    def drain(self, worker: str) -> None:
        """Request that the coordinator moves the worker's tasks away."""
        self._call("POST", f"workers/{worker}/drain")

    def undrain(self, worker: str) -> None:
        """Request that the coordinator assigns the worker tasks again."""
        self._call("DELETE", f"workers/{worker}/drain")

    def pid(self, worker: str) -> int:
        """Return the process id of a running worker."""
        return self._processes[worker].pid

    def view(self) -> View:
        """Return the coordinator's assignment."""
        return msgspec.json.decode(self._call("GET", "assignment"), type=View)

    def holdings(self) -> Holdings:
        """Return the tasks that the workers last reported, and the owners that the coordinator knows."""
        view = self.view()
        members = {member.worker: member for member in view.members if member.alive}
        found = {}
        for worker in self.live:
            member = members.get(worker)
            if member is None:
                found[worker] = Held(ready=False)
                continue
            reports = {parse_task(task).partition: report for task, report in member.tasks.items()}
            active = {partition: report for partition, report in reports.items() if report.role is Role.ACTIVE}
            found[worker] = Held(
                active=frozenset(active),
                standby={
                    partition: report.lag if report.state is TaskState.RUNNING else None
                    for partition, report in reports.items()
                    if report.role is not Role.ACTIVE
                },
                ready=all(report.state is TaskState.RUNNING for report in active.values())
                and not any(report.role is Role.WARM_UP for report in reports.values()),
            )
        return found

    def close(self) -> None:
        """Stop the workers, then the coordinator."""
        try:
            super().close()
        finally:
            self._coordinator.terminate()
            try:
                self._coordinator.wait(_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._coordinator.kill()
                self._coordinator.wait()

    def _call(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(
            f"{self._url}/v1/applications/{self.work.application}/{path}",
            method=method,
            data=b"" if method == "POST" else None,
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
                content: Any = answer.read()
        except (urllib.error.URLError, TimeoutError) as error:
            raise RunFailed(f"the coordinator did not answer {method} {path}: {error}") from error
        assert isinstance(content, bytes)
        return content
