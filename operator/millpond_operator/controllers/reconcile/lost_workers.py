"""Events about lost workers: their loss, the workers that took over their tasks, and their return.

There are none about workers that the operator stops, since these have handed over their tasks before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from millpond_operator.controllers.rollout.observation import ObservedApp, ObservedWorker

__all__ = ("LostWorkers",)

_Event = tuple[str, str, str]
_Key = tuple[str, str]


@dataclass
class _Known:
    """The last observation of one application."""

    alive: dict[str, ObservedWorker] = field(default_factory=dict)
    """The live workers."""
    pods: Mapping[str, str] = field(default_factory=dict)
    """The uids of their pods, by name."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """The owner of each task. By the next observation, another worker may have taken it over."""
    lost: dict[str, frozenset[str]] = field(default_factory=dict)
    """The tasks of each lost worker that have not been taken over yet."""


class LostWorkers:
    """Remembers the live workers of each application."""

    def __init__(self) -> None:
        self._known: dict[_Key, _Known] = {}

    def noted(self, key: _Key, observed: ObservedApp, leaving: AbstractSet[str]) -> list[_Event]:
        """Return the events since the last observation: type, reason, message.

        Args:
            key: the StreamApp.
            observed: the current observation.
            leaving: the workers that the operator stops, and those beyond `spec.replicas`.
        """
        alive = {
            name: worker for name, worker in observed.workers.items() if worker.alive and observed.has_reported(name)
        }
        pods = {pod.name: pod.uid for pod in observed.pods if not pod.terminating}
        known = self._known.get(key)
        if known is None:
            self._known[key] = _Known(alive, pods, observed.owners)
            return []
        events: list[_Event] = []
        for name, before in known.alive.items():
            if before.draining or name in leaving or not observed.has_reported(name):
                continue
            now = alive.get(name)
            if now is None:
                owned = {*known.owners.items(), *observed.owners.items()}
                known.lost[name] = frozenset(task for task, owner in owned if owner == name)
                stays = name in pods and pods[name] == known.pods.get(name)
                events.append(_lost(name, len(known.lost[name]), stays=stays))
            elif now.incarnation != before.incarnation:
                events.append(("Warning", "WorkerRestarted", f"Worker {name} restarted: its process had ended."))
        for name in list(known.lost):
            events += self._follow_up(known, name, alive, observed.owners)
            if name in leaving:
                known.lost.pop(name, None)
        known.alive, known.pods, known.owners = alive, pods, observed.owners
        return events

    def forget(self, key: _Key) -> None:
        """Forget a deleted StreamApp."""
        self._known.pop(key, None)

    @staticmethod
    def _follow_up(
        known: _Known, name: str, alive: Mapping[str, ObservedWorker], owners: Mapping[str, str]
    ) -> list[_Event]:
        """Return the events about a lost worker: its tasks were taken over, or it is back."""
        events: list[_Event] = []
        tasks = known.lost[name]
        takers = Counter(owner for task in tasks if (owner := owners.get(task)) is not None and owner != name)
        if tasks and takers.total() == len(tasks):
            known.lost[name] = frozenset()
            to = ", ".join(f"{taker} ({count})" for taker, count in sorted(takers.items()))
            events.append(
                (
                    "Normal",
                    "TasksTakenOver",
                    f"{_tasks(len(tasks))} of {name} {'was' if len(tasks) == 1 else 'were'} taken over by {to}.",
                )
            )
        if name in alive:
            del known.lost[name]
            events.append(("Normal", "WorkerBack", f"Worker {name} is back."))
        return events


def _lost(name: str, tasks: int, *, stays: bool) -> _Event:
    left = f"other workers take over {_tasks(tasks)}" if tasks else "it had no tasks"
    if stays:
        return "Warning", "WorkerLost", f"Worker {name} was lost: {left}."
    return "Normal", "WorkerEnded", f"Worker {name} ended with its pod: {left}."


def _tasks(count: int) -> str:
    return f"{count} task" if count == 1 else f"{count} tasks"
