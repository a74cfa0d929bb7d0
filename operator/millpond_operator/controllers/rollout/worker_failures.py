"""Failures of workers: they last until the worker is ready or its revision is replaced, whatever the pod shows then.

The status of a pod does not show a failure all the time: a container that runs again may have no last state for a
moment, and the pod may be deleted and created again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .conditions import problems
from .observation import ObservedApp, ordinal_of
from .problems import Problem

__all__ = ("WorkerFailure", "failures", "lasting_problems")


@dataclass(frozen=True)
class WorkerFailure:
    """The failure of a worker that has not been ready since."""

    revision: str
    """The revision of its pod."""
    problem: Problem


def failures(
    before: Mapping[str, WorkerFailure], observed: ObservedApp, revision: str, replicas: int
) -> dict[str, WorkerFailure]:
    """Return the failures that last, by name of the worker.

    Args:
        before: the failures in the last pass.
        observed: the pods now.
        revision: the revision that pods are created with.
        replicas: the wanted number of workers; 0 when the application is suspended or being deleted.
    """
    kept = {
        name: each for name, each in before.items() if replicas and _lasts(name, each, observed, revision, replicas)
    }
    for pod in observed.pods:
        found = pod.problem
        if found is None or not found.is_failure or pod.terminating:
            continue
        former = kept.get(pod.name)
        # A worker that cannot start does not recover by one more start.
        persistent = former is not None and former.revision == pod.revision and former.problem.persistent
        kept[pod.name] = WorkerFailure(pod.revision, replace(found, persistent=found.persistent or persistent))
    return kept


def lasting_problems(observed: ObservedApp, failed: Mapping[str, WorkerFailure]) -> list[tuple[str, Problem]]:
    """Return the problems by pod name, with the failures that last: persistent ones first, as `problems` does."""
    found = [(name, problem) for name, problem in problems(observed) if not problem.is_failure or name not in failed]
    found += [(name, failed[name].problem) for name in sorted(failed, key=ordinal_of)]
    return sorted(found, key=lambda each: not each[1].persistent)


def _lasts(name: str, failure: WorkerFailure, observed: ObservedApp, revision: str, replicas: int) -> bool:
    """Return whether the worker has not recovered, and its revision has not been replaced."""
    alike = [pod for pod in observed.pods if pod.revision == failure.revision and not pod.terminating]
    own = next((pod for pod in alike if pod.name == name), None)
    if own is not None:
        return not own.ready
    if not failure.problem.persistent:
        return False  # another pod may do better
    if alike and not any(pod.ready for pod in alike):
        return True  # no worker has shown yet that the revision works
    replaced = any(pod.name == name and not pod.terminating for pod in observed.pods)
    return not replaced and failure.revision == revision and ordinal_of(name) < replicas
