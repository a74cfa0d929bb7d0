"""What does not decide about a change: each part is a command.

Parts with random choices are repeated with new seeds until their time is over. Parts that take the same time whatever
the seed (those on a cluster, the mutants) run once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from tests.installing.environments import PRESENT, SUPPORTED

__all__ = ("PARTS", "Part")

_PYTHON = sys.executable
_FAULT_S = 3.5
"""The mean time between two faults of a chaos run, in seconds."""
_CHAOS_AROUND_S = 45.0
"""The time of a chaos run before the first fault and after the last, in seconds."""
_FULL_FAULTS, _FEWEST_FAULTS = 200, 6
_FULL_ORDEAL_S = 600.0
_FULL_DIFFERENTIAL_S, _LEAST_DIFFERENTIAL_S = 600.0, 15.0
_DIFFERENTIAL_AROUND_S = 5.0
"""The time until the original runs, in seconds."""
_ORDEAL_AROUND_S = 45.0
"""The time until both tenants run, in seconds."""
_KILLS = (
    ("tests/exactly_once/test_kill_nine.py",),
    ("tests/exactly_once/test_crash_points.py",),
    ("tests/chaos/test_chaos.py", "-k", "without_fencing"),  # the parts of chaos are the others
)
_SNAPSHOTS = ("tests/demo", "tests/spark", "tests/cli/test_snapshot_create.py", "tests/cli/test_snapshot_on_cluster.py")
_OTHER_PYTHONS = [each for each in SUPPORTED if each != PRESENT]
_SCENARIOS = ("rollback", "upgrade", "create", "scale", "delete")
_ORDERS = ("claim", "take and over", "hand and over", "standby", "rejections", "outages")
"""The expressions that choose explorations of a task's life cycle by the coordinator's orders."""


@dataclass(frozen=True)
class Part:
    """One kind of long test.

    Attributes:
        name: the name in the table.
        weight: its share of the time that the parts which run once leave.
        command: returns the command of one round from a seed and the remaining seconds; None without a time limit.
        rounds: the number of rounds without a time limit.
        shortest_s: a round needs so much remaining time to start, except for the first one.
        takes_s: the time of a part that runs once; 0 for others.
        on_cluster: whether it needs a Kubernetes cluster. Such parts run one after the other.
    """

    name: str
    weight: float
    command: Callable[[int, float | None], list[str]]
    rounds: int = 1
    shortest_s: float = 20.0
    takes_s: float = 0.0
    on_cluster: bool = False


def _pytest(seed: int, *arguments: str, jobs: int = 0) -> list[str]:
    return [_PYTHON, "-m", "pytest", "-n", str(jobs), "-q", "--seed", str(seed), *arguments]


def _chaos(seed: int, left_s: float | None, *, application: str = "orders") -> list[str]:
    faults = _FULL_FAULTS if left_s is None else max(_FEWEST_FAULTS, int((left_s - _CHAOS_AROUND_S) / _FAULT_S))
    command = [_PYTHON, "-m", "tests.chaos", "--application", application]
    return [*command, "--faults", str(faults), "--seed", str(seed)]


def _chaos_of_operators(seed: int, left_s: float | None) -> list[str]:
    return [*_chaos(seed, left_s, application="operators"), *(["--optimized"] if seed % 2 else [])]


def _kills(seed: int, left_s: float | None) -> list[str]:
    chosen = [file for file, *_ in _KILLS] if left_s is None else _KILLS[seed % len(_KILLS)]
    return _pytest(seed, "--soak", *chosen)


def _operators(seed: int, left_s: float | None) -> list[str]:
    if left_s is None:
        return _pytest(seed, "--soak", "tests/operating", "-m", "apiserver or slow")
    crashes = "tests/operating/test_crash_at_every_write.py"
    return _pytest(seed, "--soak", crashes, "-m", "apiserver", "-k", _SCENARIOS[seed % len(_SCENARIOS)])


def _fuzz(seed: int, left_s: float | None) -> list[str]:
    plain = "hypothesis and not (broker or apiserver or process)"
    return _pytest(seed, "-m", plain, *(["--soak"] if left_s is None else []), jobs=2)


def _snapshots(seed: int, left_s: float | None) -> list[str]:
    chosen = _SNAPSHOTS if left_s is None else (_SNAPSHOTS[seed % len(_SNAPSHOTS)],)
    return _pytest(seed, "--soak", "-m", "soak or share", *chosen)


def _model(_seed: int, left_s: float | None) -> list[str]:
    return [_PYTHON, "-m", "tests.ownership.checker", *([] if left_s is not None else ["--deep"])]


def _life_cycle(seed: int, left_s: float | None) -> list[str]:
    if left_s is None:
        return _pytest(seed, "--soak", "tests/lifecycle", "tests/ownership", jobs=2)
    return _pytest(seed, "--soak", "tests/lifecycle/test_every_assignment.py", "-k", _ORDERS[seed % len(_ORDERS)])


def _differential(seed: int, left_s: float | None) -> list[str]:
    seconds = _FULL_DIFFERENTIAL_S if left_s is None else max(_LEAST_DIFFERENTIAL_S, left_s - _DIFFERENTIAL_AROUND_S)
    command = [_PYTHON, "-m", "tests.differential", "--optional", "--cases", "1000000"]
    return [*command, "--seconds", f"{seconds:.0f}", "--seed", str(seed)]


def _tenants(seed: int, left_s: float | None) -> list[str]:
    seconds = _FULL_ORDEAL_S if left_s is None else max(30.0, left_s - _ORDEAL_AROUND_S)
    return [_PYTHON, "-m", "tests.nightly.tenants", "--seconds", f"{seconds:.0f}", "--seed", str(seed)]


def _pythons(seed: int, left_s: float | None) -> list[str]:
    chosen = [] if left_s is None else ["-k", _OTHER_PYTHONS[seed % len(_OTHER_PYTHONS)]]
    return _pytest(seed, "--soak", "-m", "soak", "tests/installing", *chosen)


def _make(target: str) -> Callable[[int, float | None], list[str]]:
    return lambda _seed, _left_s: ["make", "--no-print-directory", target]


def _turns(seed: int, _left_s: float | None) -> list[str]:
    return _pytest(seed, "tests/turns")


def _mutants(_seed: int, _left_s: float | None) -> list[str]:
    return [_PYTHON, "-m", "tests.mutants", "--jobs", "2"]


PARTS = (
    Part("all of e2e", 0.0, _make("e2e"), takes_s=1200.0, on_cluster=True),
    Part("worst days", 0.0, _make("worst-days"), takes_s=700.0, on_cluster=True),
    Part("traces of load, and alerts", 0.0, _make("e2e-load"), takes_s=700.0, on_cluster=True),
    Part("mutants", 0.0, _mutants, takes_s=700.0),
    Part("turns with Kafka Streams", 0.05, _turns, shortest_s=90.0),
    Part("chaos", 0.1, _chaos, shortest_s=90.0),
    Part("chaos of every operator", 0.1, _chaos_of_operators, shortest_s=90.0),
    Part("kill -9 and zombies", 0.2, _kills, shortest_s=120.0),
    Part("operator on a real API server", 0.2, _operators, shortest_s=150.0),
    Part("two tenants, one of them hostile", 0.1, _tenants, shortest_s=90.0),
    Part("generated cases", 0.1, _fuzz, rounds=3, shortest_s=40.0),
    Part("snapshots", 0.15, _snapshots, shortest_s=200.0),
    Part("generated topologies in Kafka Streams", 0.1, _differential, shortest_s=40.0),
    Part("model of ownership", 0.05, _model, shortest_s=60.0),
    Part("life cycle of a task", 0.05, _life_cycle, shortest_s=30.0),
    Part("a user's project on other Pythons", 0.05, _pythons, shortest_s=120.0),
)
"""All parts, in their order."""
