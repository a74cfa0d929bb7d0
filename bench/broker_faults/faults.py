"""The faults: each does something to brokers, waits until results flow again, and makes the cluster whole."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from bench.failover.fleet import Fleet
from bench.failover.records import PARTITIONS, now_us
from bench.failover.traffic import Arrivals
from bench.sides import RunFailed
from millpond.broker import jars, java
from tests.support.clusters.kafka import LED, KafkaCluster

FAULTS: Final = (
    *("restart", "rolling", "reassign", "kill_group", "kill_transactions", "freeze_group", "freeze_transactions"),
    *("zombie_group", "zombie_transactions"),
)
_REASSIGN: Final = Path(__file__).parent / "java" / "Reassign.java"
_FLOW_S: Final = 150.0
_AFTER_S: Final = 5.0  # seconds that a broker stays away after results flow again
_SHORTEST_S: Final = 15.0  # seconds that a frozen broker stays away at least: its session has to end
_ZOMBIE_S: Final = 10.0  # seconds at most between the loss of its leaderships and its return
_LOOK_S: Final = 0.05


@dataclass(frozen=True)
class Measured:
    """One fault: the longest pauses of any partition, in seconds."""

    kind: str
    node: str
    application_s: float
    """Between two results at a `read_committed` reader."""
    producer_s: float
    """Between two acknowledgements of a plain idempotent producer."""
    began_us: int
    ended_us: int
    """When the application's longest pause was over."""
    partition: int
    """The partition of that pause."""


@dataclass
class Faults:
    """Causes faults in a cluster under an application."""

    cluster: KafkaCluster
    fleet: Fleet
    results: Arrivals
    acknowledgements: Arrivals
    check: Callable[[], None]
    """Raises RunFailed if a process or a thread of the run has failed."""
    random: random.Random

    def perform(self, kind: str) -> Measured:
        """Cause a fault, and wait until the cluster is whole and results flow.

        Raises:
            RunFailed: results do not flow again.
        """
        application = self.fleet.work.application
        worker = min(self.fleet.live)
        match kind:
            case "restart" | "reassign" | "kill_group" | "freeze_group" | "zombie_group":
                nodes = [self.cluster.group_coordinator(application)]
            case "kill_transactions" | "freeze_transactions" | "zombie_transactions":
                nodes = [self.cluster.transaction_coordinator(f"{application}-{worker}")]
            case "rolling":
                nodes = list(self.cluster.brokers)
            case _:
                message = f"{kind} is not a fault"
                raise ValueError(message)
        began = now_us()
        for node in nodes:
            self._one(kind, node)
            self._in_sync()
        self._flow(now_us())
        ended = now_us()
        pause, producer_pause = self.results.longest(began, ended), self.acknowledgements.longest(began, ended)
        return Measured(
            kind,
            " ".join(map(str, nodes)),
            pause.length_us / 1e6,
            producer_pause.length_us / 1e6,
            began,
            pause.end_us,
            pause.partition,
        )

    def _one(self, kind: str, node: int) -> None:
        broker, began = self.cluster.brokers[node], time.monotonic()
        if kind in {"restart", "rolling"}:
            broker.stop()
            broker.start()
        elif kind == "reassign":
            self._reassign(str(node))
            self._flow(now_us())
            time.sleep(_AFTER_S)
            self._reassign("back", str(node))
        elif kind.startswith("kill"):
            broker.kill()
            self._flow(now_us())
            time.sleep(_AFTER_S)
            broker.start()
        elif kind.startswith("zombie"):
            with self.cluster.frozen(node):
                self._until(lambda: not self._leads(node), f"broker {node} leads no partition")
                time.sleep(self.random.uniform(0.0, _ZOMBIE_S))
        else:
            with self.cluster.frozen(node):
                self._flow(now_us())
                time.sleep(max(_AFTER_S, began + _SHORTEST_S - time.monotonic()))

    def _reassign(self, *arguments: str) -> None:
        command = [
            str(java.find_java()),
            "-cp",
            jars.classpath("kafka"),
            str(_REASSIGN),
            self.cluster.bootstrap_servers,
        ]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=_FLOW_S, check=False)
        if done.returncode:
            raise RunFailed(f"{_REASSIGN.name} failed:\n{done.stderr[-2000:]}")

    def _leads(self, node: int) -> bool:
        try:
            return any(node in self.cluster.leaders(topic).values() for topic in LED)
        except KafkaException:  # the admin client has asked the frozen broker
            return True

    def _flow(self, from_us: int) -> None:
        """Wait until each partition has a later result."""
        self._until(lambda: self.results.since(from_us) >= PARTITIONS, f"all {PARTITIONS} partitions have results")

    def _in_sync(self) -> None:
        self._until(self.cluster.in_sync, "replicas are in sync")

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        until(reached, what, self.check, _FLOW_S)


def until(reached: Callable[[], bool], what: str, check: Callable[[], None], seconds: float) -> None:
    """Wait until something is so, and call `check` meanwhile; raise RunFailed if it is not so in time."""
    deadline = time.monotonic() + seconds
    while not reached():
        check()
        if time.monotonic() > deadline:
            raise RunFailed(f"not within {seconds:.0f} s: {what}")
        time.sleep(_LOOK_S)
