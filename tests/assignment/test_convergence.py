"""How fast clusters settle: Kafka Streams' convergence scenarios (`TaskAssignorConvergenceTest`), with its bounds.

A wave corresponds to its round: all copies that may warm up have caught up, and everything that follows is done.
"""

from __future__ import annotations

import itertools
import random

import pytest

from millpond_operator.assignment import AssignmentOptions
from tests.assignment.simulator import SESSION_TIMEOUT, Cluster


def cluster(workers: int, **kwargs) -> Cluster:
    """A settled cluster of some workers."""
    made = Cluster(**kwargs)
    made.add(*(f"w{i}" for i in range(workers)))
    made.waves(1)
    return made


def test_one_worker_gets_everything_at_once():
    """Static: one worker, one stateful and one stateless task, nothing to wait for."""
    assert cluster(1, stateful=1, stateless=1).waves(0) == 0


def test_a_first_assignment_is_the_target_itself():
    """Nobody holds anything, so nothing has to warm up."""
    made = Cluster(stateful=20, stateless=10, options=AssignmentOptions(standby_replicas=2))
    made.add("w0", "w1", "w2")
    made.step()
    assert made.placement == made.goal
    assert made.waves(0) == 0


@pytest.mark.parametrize("standbys", [0, 1])
def test_added_worker_fills_in_waves_of_warm_ups(standbys):
    """From one worker to two with 11 stateful and 7 stateless tasks, two warm-ups: at most 11/2 + 1 waves."""
    made = cluster(1, stateful=11, stateless=7, options=AssignmentOptions(standby_replicas=standbys))
    made.moves.clear()
    made.add("w1")
    assert made.waves(11 // 2 + 1) >= 1
    assert set(made.moves.values()) == {1}
    assert sum(made.moves.values()) == 9, "more tasks moved than the new worker's share"


@pytest.mark.parametrize("known", [True, False])
def test_tasks_of_a_lost_worker_find_new_owners(known):
    """From seven workers to six, 11 stateful and 13 stateless tasks: at most 13/2 + 2 waves, each task moves once."""
    made = cluster(7, stateful=11, stateless=13, options=AssignmentOptions(standby_replicas=1))
    lost = {task for task, worker in made.goal.active.items() if worker == "w3"}
    made.moves.clear()
    made.crash("w3", known=known)
    made.waves(13 // 2 + 2)
    assert lost <= set(made.moves)
    assert set(made.moves.values()) <= {1, 2}  # twice: to the copy that was warm, then to its share
    assert len(made.moves) <= len(lost) + 4


@pytest.mark.parametrize("seed", range(14))
def test_random_changes_converge(seed):
    """Workers join, die and return with their disks; each time 2 * (S + S * standbys) waves are enough."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    workers, stateful, stateless = dice.randint(1, 10), dice.randint(1, 10), dice.randint(1, 10)
    options = AssignmentOptions(standby_replicas=dice.randint(0, workers), max_warm_ups=dice.randint(1, stateful))
    most = 2 * (stateful + stateful * options.standby_replicas)
    made = Cluster(stateful=stateful, stateless=stateless, options=options, seed=seed)
    names = (f"w{i}" for i in itertools.count())
    made.add(*itertools.islice(names, workers))
    made.waves(most)
    for _ in range(dice.randint(1, 10)):
        alive = [id_ for id_, process in made.processes.items() if process.alive]
        dead = [id_ for id_, process in made.processes.items() if not process.alive]
        event = dice.choice(["drop", "add", "resurrect"])
        if event == "drop" and len(alive) > 1:
            made.crash(dice.choice(alive), known=dice.random() < 0.5)
        elif event == "resurrect" and dead:
            made.add(dice.choice(dead))
        else:
            made.add(next(names))
        made.waves(most)


@pytest.mark.parametrize("budget", [1, 3, 11])
def test_scale_out_waves_match_the_warm_up_budget(budget):
    """A task that warms up keeps a slot for one wave, so moving six takes ⌈6 / budget⌉ waves."""
    made = cluster(1, stateful=12, options=AssignmentOptions(max_warm_ups=budget))
    made.add("w1")
    assert made.waves(7) == -(-6 // budget)


def test_without_warm_ups_tasks_move_at_once():
    """`max_warm_ups` 0: the target is the placement, and tasks restore on their new worker."""
    made = cluster(1, stateful=12, options=AssignmentOptions(max_warm_ups=0))
    made.add("w1")
    made.step()
    assert made.placement == made.goal
    assert made.waves(0) == 0


def test_a_rolling_restart_moves_each_task_away_and_evenly_back():
    """Draining and restarting one worker after the other ends balanced, with no task cold for a moment."""
    made = cluster(4, stateful=16, options=AssignmentOptions(standby_replicas=1, max_warm_ups=4))
    for id_ in ("w0", "w1", "w2", "w3"):
        made.drained.add(id_)
        made.waves(20)
        assert not made.processes[id_].held
        made.crash(id_, known=True)
        made.drained.discard(id_)
        made.add(id_)
        for _ in range(SESSION_TIMEOUT):
            made.step(restore=False)
            assert max(made.unowned.values()) == 0
        made.waves(20)
