"""Compares, during all tests, the conditions of a StreamApp with its pods, their nodes and its output."""

from __future__ import annotations

import contextlib
import time
import urllib.error
from collections.abc import Iterator

from e2e.beside import Beside
from e2e.cluster import Object
from e2e.commands import WORK
from e2e.measuring.meter import Meter
from e2e.streamapp import StreamApp, image_of
from tests.support.measuring.standstills import Standstills
from tests.support.measuring.status_accuracy import Moment, false_reports, flaps, is_ready

__all__ = ("ConditionWatch",)

_LOOK_EVERY_S = 0.25
#: A task without output for this long counts as stopped.
_STANDS_S = 3.0
#: The time after which a silent worker is detected (spec.sessionTimeout), and with it the stop of its tasks.
_SILENT_S = 6.0
#: The time in which the workers of a node that is back may live on, or end.
_RETURN_S = 15.0
#: For this long, transient problems of volumes and of scheduling must not be reported. The limit is ten seconds.
_PASSES_S = 8.0
#: The conditions that are True in a healthy application; all others are False or absent.
_HEALTHY = {"Ready": "True", "StandbysCaughtUp": "True"}
_MAY_PASS = frozenset({"Unschedulable", "VolumeNotMountable"})


class ConditionWatch(Beside):
    """Watches in a thread of its own during the `with` block.

    Args:
        app: the StreamApp.
        meter: has the times of each task's output.
        tasks: the number of tasks.
        standstills: of the machine, for which no condition counts as wrong.
    """

    def __init__(self, app: StreamApp, meter: Meter, tasks: int, standstills: Standstills) -> None:
        super().__init__()
        self._app = app
        self._meter = meter
        self._tasks = tasks
        self._standstills = standstills
        self._lost: dict[str, float] = {}
        self._back_at = float("-inf")
        self._moments: list[Moment] = []
        self._reasons: dict[str, float] = {}
        self._found: list[str] = []
        self._paused = False
        #: Since when pods are pending, by name and uid.
        self._pending: dict[tuple[str, str], float] = {}
        self._waited: dict[str, float] = {}
        self._looked_at = time.monotonic()

    def _end(self) -> None:
        self._write()

    def _write(self) -> None:
        with (WORK / "conditions.txt").open("a") as file:
            file.writelines(f"{moment.text()}\n" for moment in self._moments)

    @contextlib.contextmanager
    def lost(self, node: str) -> Iterator[None]:
        """Note that a node is lost during the block."""
        self._lost[node] = time.monotonic()
        try:
            yield
        finally:
            self._lost.pop(node, None)
            self._back_at = time.monotonic()

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """Ignore a time without an operator, in which nothing is reported, and start over afterwards."""
        self._paused = True
        self._found = self.findings()
        try:
            yield
        finally:
            self._write()
            self._moments = []
            self._paused = False

    def start_over(self) -> tuple[dict[str, float], list[str]]:
        """Forget what was seen so far.

        Returns:
            Each condition that was not as in a healthy application, such as `Degraded WorkerSilent`, with the seconds
            for which it was seen, also while nothing was watched; and the findings.
        """
        told, wrong = dict(self._reasons), self.findings()
        self._write()
        self._moments, self._found, self._reasons = [], [], {}
        return told, wrong

    def findings(self) -> list[str]:
        """Return conditions that were wrong for too long, and conditions that flapped."""
        moments, lasted = list(self._moments), self._standstills.lasted
        return [*self._found, *false_reports(moments, lasted), *flaps(moments, lasted)]

    def hasty(self) -> list[str]:
        """Return events about transient problems of pods that were not pending for long enough."""
        told = (event for event in self._app.events() if event["reason"] in _MAY_PASS)
        waited = dict(self._waited)
        return [
            f"{event['reason']}: {event['message']} ({waited})"
            for event in told
            if not any(name in event["message"] and seconds >= _PASSES_S for name, seconds in waited.items())
        ]

    def _run(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            with contextlib.suppress(OSError, urllib.error.URLError, AssertionError):
                self._look()

    def _look(self) -> None:
        app, pods = self._app.object(), self._app.pods()
        self._wait(pods)
        if conditions := app.get("status", {}).get("conditions"):
            if not self._paused:
                self._moments.append(self._seen(app, pods))
            for each in conditions:
                if each["status"] != _HEALTHY.get(each["type"], "False"):
                    told = f"{'not ' if each['status'] == 'False' else ''}{each['type']} {each['reason']}"
                    self._reasons[told] = self._reasons.get(told, 0.0) + _LOOK_EVERY_S

    def _wait(self, pods: list[Object]) -> None:
        """Note how long each pod has been pending at most, and the longest such time of all pods with its name."""
        now = time.monotonic()
        pending = {
            (pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in pods if pod["status"].get("phase") == "Pending"
        }
        self._pending |= dict.fromkeys(pending - self._pending.keys(), self._looked_at)
        for (name, _), since in self._pending.items():
            self._waited[name] = max(self._waited.get(name, 0.0), now - since)
        self._pending = {each: since for each, since in self._pending.items() if each in pending}
        self._looked_at = now

    def _seen(self, app: Object, pods: list[Object]) -> Moment:
        spec, status, now = app["spec"], app["status"], time.monotonic()
        lost = {node for node, since in list(self._lost.items()) if now - since > _SILENT_S}
        ready = [pod for pod in pods if is_ready(pod) and pod["spec"].get("nodeName") not in lost]
        wanted = 0 if spec.get("suspended") else spec["replicas"]
        running = self._tasks - len(self._meter.standing(_STANDS_S))
        images = {image_of(pod) for pod in pods}
        told = {each["type"]: each["status"] for each in status["conditions"]} | {"phase": status.get("phase", "")}
        copies = -1 if len(ready) > 1 or now - self._back_at < _RETURN_S else 0
        steady = len(pods) == wanted and images <= {spec["image"]}
        return Moment(now, told, len(ready), wanted, running, copies, self._tasks, steady)
