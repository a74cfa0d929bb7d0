"""One fault after the other against an application under load, each from a healthy state into a healthy state."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from e2e.cluster import Object, eventually
from e2e.commands import WORK, CommandFailed
from e2e.images import Images
from e2e.installation import Installation
from e2e.measuring.condition_watch import ConditionWatch
from e2e.measuring.traffic import PARTITIONS
from e2e.measuring.verification import Verification
from e2e.worst_days.nodes import Nodes
from e2e.worst_days.report import Day, table

__all__ = ("WORKERS", "Days")

WORKERS = 2
_HEALTHY_S = 180.0
_SHARED_S = 120.0
_CALM_S = 90.0


class Days:
    """Conducts the faults, and keeps what they did.

    Attributes:
        verification: the application with its input and its meter.
        watch: compares its conditions with the facts.
        nodes: the nodes, which the faults hit.
        operator: the operator.
        version: the version of the application's image that has to run.
        past: what the faults did so far.
    """

    def __init__(
        self, verification: Verification, watch: ConditionWatch, nodes: Nodes, operator: Installation, images: Images
    ) -> None:
        self.verification = verification
        self.watch = watch
        self.nodes = nodes
        self.operator = operator
        self.version = "v1"
        self.past: list[Day] = []
        self._images = images

    @contextlib.contextmanager
    def fault(self, name: str, ready_within_s: float, workers: int = WORKERS) -> Iterator[None]:
        """Measure a fault: the block causes it and may undo it; what it leaves is undone when it ends.

        Args:
            name: for the table.
            ready_within_s: how long the application may take, from the end of the block, until it is Ready with all
                standbys.
            workers: how many it has then.

        Raises:
            AssertionError: it does not become healthy in time, or a condition was wrong or flapped.
        """
        app, meter = self.verification.app, self.verification.meter
        self._await_health()
        self.watch.start_over()
        begin = time.monotonic()
        try:
            with meter.event(name, _CALM_S):
                yield
                lasted = time.monotonic() - begin
                self.nodes.heal()
                self.operator.await_ready()
                app.settled(workers, ready_within_s, self._images.verifier(self.version))
                ready = time.monotonic() - begin
        except BaseException:
            self._restore()
            raise
        event = meter.events[-1]
        conditions, wrong = self.watch.start_over()
        self.past.append(Day(name, lasted, ready, event.pauses, event.path, conditions))
        (WORK / "worst-days.txt").write_text(table(self.past) + "\n")
        assert not wrong, f"{len(wrong)} findings:\n" + "\n".join(wrong)

    def victim(self) -> Object:
        """Return a worker on a node without the leading operator; another worker if there is none."""
        leader = self.operator.leading_pod()
        pods = self.verification.app.pods()
        others = [pod for pod in pods if leader is None or pod["spec"]["nodeName"] != leader["spec"]["nodeName"]]
        return (others or pods)[0]

    def await_leader(self) -> None:
        """Wait until an operator renews its lease from now on."""
        since = eventually(self.operator.lease_renewals, "the lease is read", 60)
        eventually(lambda: self.operator.lease_renewals() != since, "an operator leads", 90)

    def _await_health(self) -> None:
        self.nodes.heal()
        self.operator.await_ready()
        app = self.verification.app
        app.scale(WORKERS)  # a fault that failed may have left another number
        app.settled(WORKERS, _HEALTHY_S, self._images.verifier(self.version))
        # Without tasks on each worker, a fault would hit nothing.
        share = 2 * PARTITIONS // WORKERS
        eventually(
            lambda: list(app.owned().values()) == [share] * WORKERS, "each worker has its share of tasks", _SHARED_S
        )
        self.verification.meter.rest(_CALM_S)

    def _restore(self) -> None:
        """Undo what a fault left that failed, so that the next one can begin; the error of the fault is told."""
        with contextlib.suppress(AssertionError, CommandFailed):
            self.nodes.heal()
            self.verification.app.patch(image=self._images.verifier(self.version), replicas=WORKERS)
