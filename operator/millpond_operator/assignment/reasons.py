"""The reasons why tasks do not run on their targets, as text."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.topology import TaskId

from .candidates import CandidateIndex
from .model import Placement, Situation

__all__ = ("reasons",)


def reasons(target: Placement, index: CandidateIndex, refined: Placement, previous: Placement) -> dict[TaskId, str]:
    """Return a sentence for each task that does not run on its target.

    Args:
        target: the final placement of tasks.
        index: the workers' reports.
        refined: the placement for now.
        previous: the last refined placement.
    """
    return dict(_reasons(target, index, refined, previous))


def _reasons(
    target: Placement, index: CandidateIndex, refined: Placement, previous: Placement
) -> Iterator[tuple[TaskId, str]]:
    situation = index.situation
    for task in situation.tasks:
        goal = target.active.get(task)
        now = refined.active.get(task)
        runner = index.runner(task, previous.active)
        if now is not None and now == goal:
            if runner != goal:
                yield task, f"{task} moves to {goal} {_when(task, runner, situation)}"
        elif goal is None:
            if runner is None:
                yield task, f"{task} cannot run: no live worker may get tasks"
            elif runner not in index.placeable:
                yield task, f"{task} stays on {runner}: no other live worker may get tasks"
        else:
            where = (
                f"stays on {now}"
                if now == runner
                else f"moves to {now} {_when(task, runner, situation)}, and stays there"
            )
            yield task, f"{task} {where} until {_until(task, goal, index, refined)}"


def _when(task: TaskId, runner: str | None, situation: Situation) -> str:
    if runner is not None:
        return f"when {runner} has handed it over"
    owner = situation.owners.get(task)
    return f"when it is taken over from {owner}, which is dead" if owner else "when it is claimed in Kafka"


def _until(task: TaskId, goal: str, index: CandidateIndex, refined: Placement) -> str:
    """Return the condition for which the task waits, to complete "until …"."""
    options = index.options
    if goal not in index.placeable:
        return f"there is a new target: {goal} may not get tasks"
    if goal not in refined.warm_up.get(task, ()) and goal not in refined.standby.get(task, ()):
        return f"{goal} can warm up a copy: all {options.max_warm_ups} warm-ups (max.warmup.replicas) are in use"
    copy = index.copies(task).get(goal)
    lag = f"lag {copy.lag:,}" if copy is not None and copy.lag is not None else "lag not known yet"
    return f"{goal}'s copy is within {options.acceptable_lag:,} records ({lag})"
