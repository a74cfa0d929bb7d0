"""Clusters under random events: the invariants hold in every step, and the clusters settle when the events stop.

The simulator checks in every step that the target is complete, balanced and stable, that `refine` is stable and within
its
limits, that no owned task is given away, and that every task without a live owner is taken over exactly once.
"""

from __future__ import annotations

import random

import pytest

from millpond_operator.assignment import AssignmentOptions
from tests.assignment.simulator import SESSION_TIMEOUT, Cluster
from tests.support import generated

EVENTS = (
    "add", "crash", "reported crash", "crash and disk lost", "return", "freeze", "thaw", "drain", "undrain", "leave",
    "coordinator restarts", "coordinator restarts with nothing", "executor dies", "nothing",
)  # fmt: skip


class Chaos:
    """A cluster and its random events, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        options = AssignmentOptions(
            standby_replicas=dice.randint(0, 3),
            max_warm_ups=dice.randint(1, 5),
            rack_aware_tags=dice.choice([(), ("zone",), ("zone", "host")]),
        )
        self.cluster = Cluster(
            stateful=dice.randint(1, 20),
            stateless=dice.randint(0, 12),
            subtopologies=dice.randint(1, 3),
            options=options,
            seed=seed,
        )
        self.cluster.growth = dice.choice([0, 0, 50, 3_000])
        self.cluster.keeps_released = dice.random() < 0.5
        for _ in range(dice.randint(1, 6)):
            self._add()
        self._steps(8)

    def _add(self) -> None:
        number = len(self.cluster.processes)
        tags = {"zone": self.dice.choice("abc"), "host": str(number // 2)}
        speed = self.dice.choice([10_000, 30_000, 200_000])
        self.cluster.add(f"w{number}", speed=speed, tags=tags, rack=self.dice.choice(["a", "b", None]))

    def _steps(self, most: int) -> None:
        for _ in range(self.dice.randint(0, most)):
            self.cluster.step()

    def happen(self) -> None:
        """One event, then some time."""
        cluster, dice = self.cluster, self.dice
        cluster.loss, cluster.delay = dice.choice([0, 0, 0.3]), dice.choice([0, 0, 2])
        alive = [id_ for id_, process in cluster.processes.items() if process.alive]
        dead = [id_ for id_, process in cluster.processes.items() if not process.alive]
        frozen = [id_ for id_, process in cluster.processes.items() if process.frozen]
        match dice.choice(EVENTS):
            case "add":
                self._add()
            case "crash" if alive:
                cluster.crash(dice.choice(alive))
            case "reported crash" if alive:
                cluster.crash(dice.choice(alive), known=True)
            case "crash and disk lost" if alive:
                cluster.crash(dice.choice(alive), disk_lost=True)
            case "return" if dead:
                cluster.add(dice.choice(dead))
            case "freeze" if alive:
                cluster.processes[dice.choice(alive)].frozen = True
            case "thaw" if frozen:
                cluster.processes[dice.choice(frozen)].frozen = False
            case "drain" if alive:
                cluster.drained.add(dice.choice(alive))
            case "undrain" if cluster.drained:
                cluster.drained.remove(dice.choice(sorted(cluster.drained)))
            case "leave" if alive:
                cluster.leave(dice.choice(alive))
            case "coordinator restarts":
                cluster.restart_coordinator(stored=True)
            case "coordinator restarts with nothing":
                cluster.restart_coordinator(stored=False)
            case "executor dies" if alive:
                cluster.processes[dice.choice(alive)].dies_after = dice.randint(0, 5)
            case _:
                pass
        self._steps(6)

    def calm_down(self) -> None:
        """No more faults, and at least one worker; the coordinator knows everything."""
        cluster = self.cluster
        cluster.loss, cluster.delay, cluster.growth = 0, 0, 0
        cluster.drained.clear()
        for process in cluster.processes.values():
            process.frozen, process.dies_after = False, None
            if process.worker.leaving:
                process.crash()
        if not any(process.alive for process in cluster.processes.values()):
            self._add()
        for _ in range(SESSION_TIMEOUT + 2):
            cluster.step()


@pytest.mark.parametrize("seed", range(generated.examples(60)))
def test_random_events_keep_the_invariants(seed):
    """Crashes, zombies, drains, lost and late messages, restarts of the coordinator."""
    print(f"seed {seed}")
    chaos = Chaos(seed)
    for _ in range(chaos.dice.randint(1, 12)):
        chaos.happen()
    chaos.calm_down()
    cluster = chaos.cluster
    cluster.moves.clear()
    goal = cluster.goal
    # At worst every copy has to be made anew, one after the other, on the slowest worker.
    stateful = sum(task.stateful for task in cluster.tasks.values())
    a_copy = max(cluster.ends.values()) // min(process.speed for process in cluster.processes.values()) + 2
    cluster.settle(40 + a_copy * stateful * (1 + cluster.options.standby_replicas))
    assert cluster.goal == goal, "the target changed although nothing happened"
    assert max(cluster.moves.values(), default=0) <= 2, "a task went to and fro"


@pytest.mark.parametrize("seed", range(generated.examples(15)))
def test_dead_workers_task_runs_on_its_warm_copy(seed):
    """With a caught-up standby no task waits for a restore: it takes the report, the take-over and two answers."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    options = AssignmentOptions(standby_replicas=1)
    cluster = Cluster(stateful=dice.randint(5, 25), subtopologies=2, options=options, seed=seed)
    cluster.add(*(f"w{i}" for i in range(dice.randint(3, 6))), speed=1_000)
    cluster.waves(1)
    victim = dice.choice(sorted(cluster.processes))
    lost = [task for task, worker in cluster.goal.active.items() if worker == victim]
    warm = {task: cluster.goal.standby[task] for task in lost}
    cluster.crash(victim, known=True)
    for _ in range(4):
        cluster.step()
    assert {task: cluster.unowned[task] for task in lost} == dict.fromkeys(lost, 0)
    assert all(cluster.owners[task] in warm[task] for task in lost)


def test_executor_that_dies_during_a_take_over_is_replaced():
    """What it took over stays with the new owners; another worker does the rest."""
    cluster = Cluster(stateful=30, options=AssignmentOptions(standby_replicas=1))
    cluster.add("w0", "w1", "w2", "w3")
    cluster.waves(1)
    for process in cluster.processes.values():
        process.dies_after = 3
    cluster.crash("w0", known=True)
    cluster.step()
    cluster.step()
    [executor] = [id_ for id_ in ("w1", "w2", "w3") if not cluster.processes[id_].alive]
    moved = [task for task, owner in cluster.owners.items() if owner != "w0" and cluster.goal.standby.get(task)]
    assert moved
    for process in cluster.processes.values():
        process.dies_after = None
    cluster.waves(40)
    assert executor not in cluster.owners.values()
    assert set(cluster.owners.values()) <= {"w1", "w2", "w3"} - {executor}


def test_frozen_worker_returns_without_its_tasks():
    """A zombie finds other owners in Kafka, reports them, and gets a share like a new worker."""
    cluster = Cluster(stateful=12, options=AssignmentOptions(standby_replicas=1))
    cluster.add("w0", "w1", "w2")
    cluster.waves(1)
    cluster.processes["w0"].frozen = True
    for _ in range(SESSION_TIMEOUT + 4):
        cluster.step()
    assert "w0" not in cluster.owners.values()
    cluster.processes["w0"].frozen = False
    cluster.waves(12)
    assert sum(owner == "w0" for owner in cluster.owners.values()) == 4


def test_coordinator_without_a_stored_assignment_moves_nothing():
    """The reports alone lead to the same assignment: owners, standbys and all."""
    cluster = Cluster(stateful=21, stateless=10, subtopologies=3, options=AssignmentOptions(standby_replicas=2))
    cluster.add("w0", "w1", "w2", "w3", rack="a")
    cluster.add("w4", "w5", rack="b")
    cluster.waves(1)
    before = cluster.placement
    cluster.restart_coordinator(stored=False)
    cluster.moves.clear()
    cluster.step()
    cluster.step()
    assert cluster.placement == before
    assert not cluster.moves


def test_restarted_coordinator_keeps_warm_ups_under_way():
    """Copies continue to warm up for the same move."""
    cluster = Cluster(stateful=12)
    cluster.add("w0")
    cluster.waves(1)
    cluster.add("w1", speed=1_000)
    for _ in range(4):
        cluster.step()
    before = cluster.placement.warm_up
    assert len(before) == 2
    for stored in (True, False):
        cluster.restart_coordinator(stored=stored)
        for _ in range(SESSION_TIMEOUT):
            cluster.step()
        assert cluster.placement.warm_up == before


@pytest.mark.parametrize("growth", [5_000, 9_999, 12_000, 30_000])
def test_traffic_alone_moves_nothing(growth):
    """The lag varies around the acceptable lag, reports are late: a settled cluster stays."""
    cluster = Cluster(stateful=12, stateless=3, options=AssignmentOptions(standby_replicas=1))
    cluster.add("w0", "w1", "w2", speed=60_000)
    cluster.waves(1)
    before = cluster.placement
    cluster.growth, cluster.delay = growth, 2
    for _ in range(30):
        cluster.step()
        assert cluster.placement == before
