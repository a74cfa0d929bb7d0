"""Workers that some brokers do not answer, while another worker reaches these brokers.

Such a worker gets no tasks and hands its own ones over. If it cannot, they are taken over as from a dead worker
(docs/decisions/0025-workers-without-brokers.md). No clock and no I/O; times are in monotonic milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from .members import Membership

__all__ = ("CutOffWorkers",)

#: The part of the limit for which a report counts that a worker reaches brokers, or misses some.
_RECENT = 6


@dataclass(slots=True)
class _Limits:
    """The times of one worker."""

    changed_ms: int
    """When it was last cut off, or last counted as connected again."""
    limit_ms: int
    """Its limit at that time: until it has passed, the worker is not counted otherwise."""
    asked_ms: dict[str, int] = field(default_factory=dict)
    """Since when each of its tasks is to be handed over, while it is cut off."""


class CutOffWorkers:
    """The decision which workers of one application are cut off.

    A worker is cut off if one other worker, which can get tasks and misses no broker, reaches all brokers that it
    misses, both by a report of the last sixth of the limit. So a broker that nobody reaches cuts no worker off, nor
    does one that has stopped together with the last worker that reached it. A cut off worker stays so until all its
    brokers answer again, also if nobody reaches them in between, or until no other worker is left that can get tasks.
    Two changes of a worker are at least its limit apart, except when no other worker is left.

    Attributes:
        unable: the cut off workers that have not handed a task over within half of their limit.
    """

    def __init__(self) -> None:
        self.unable: frozenset[str] = frozenset()
        self._limits: dict[str, _Limits] = {}

    def update(self, members: Mapping[str, Membership], now_ms: int) -> Collection[Membership]:
        """Set `Membership.cut_off` of all members, and `unable`.

        Returns:
            The members whose `cut_off` has changed.
        """
        for gone in self._limits.keys() - members.keys():
            del self._limits[gone]
        able = [each for each in members.values() if _able(each)]
        # A few sets, however many workers there are: all workers may miss a broker at once.
        reached: dict[tuple[int, ...], int] = {}
        for each in able:
            if each.reach is not None and not each.reach.missing:
                at = reached.get(each.reach.reached, each.reported_ms)
                reached[each.reach.reached] = max(each.reported_ms, at)
        changed = [each for each in members.values() if self._changes(each, now_ms, reached, alone=not able)]
        for member in changed:
            member.cut_off = not member.cut_off
            limit_ms = member.reach.limit_ms if member.reach is not None else self._limits[member.id].limit_ms
            self._limits[member.id] = _Limits(now_ms, limit_ms)
        self.unable = frozenset(
            each.id
            for each in members.values()
            if each.alive and each.cut_off and (each.id in self.unable or self._waits_for_long(each, now_ms))
        )
        return changed

    def _changes(self, member: Membership, now_ms: int, reached: Mapping[tuple[int, ...], int], *, alone: bool) -> bool:
        """Return whether `cut_off` of a worker changes.

        Args:
            member: the worker.
            now_ms: the time.
            reached: the brokers that workers reach which can get tasks and miss none, with the time of the last report.
            alone: whether no worker can get tasks.
        """
        if not member.alive:
            return False
        if member.cut_off and alone:
            return True
        limits, reach = self._limits.get(member.id), member.reach
        if limits is not None and now_ms - limits.changed_ms < limits.limit_ms:
            return False
        if reach is None:  # a worker of an earlier version, which does not report it
            return member.cut_off
        if member.cut_off:
            return reach.settled and not reach.missing
        missing, since_ms = set(reach.missing), now_ms - reach.limit_ms // _RECENT
        if not missing or member.reported_ms < since_ms:
            return False
        return any(missing.issubset(each) and at >= since_ms for each, at in reached.items())

    def _waits_for_long(self, member: Membership, now_ms: int) -> bool:
        limits = self._limits[member.id]
        limits.asked_ms = {task: limits.asked_ms.get(task, now_ms) for task in member.orders.release}
        return any(now_ms - since >= limits.limit_ms // 2 for since in limits.asked_ms.values())


def _able(member: Membership) -> bool:
    """Return whether a worker can get tasks."""
    return member.alive and not (member.excluded or member.cut_off or member.draining or member.leaving)
