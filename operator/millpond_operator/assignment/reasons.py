"""Why tasks are not where they should be, in words."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.topology import TaskId

from .candidates import Standing
from .model import AssignmentOptions, Placement, Situation

__all__ = ("reasons",)


def reasons(
    target: Placement,
    situation: Situation,
    standing: Standing,
    options: AssignmentOptions,
    refined: Placement,
    previous: Placement,
) -> dict[TaskId, str]:
    """One sentence for each task that does not run on its target."""
    return dict(_reasons(target, situation, standing, options, refined, previous))


def _reasons(
    target: Placement,
    situation: Situation,
    standing: Standing,
    options: AssignmentOptions,
    refined: Placement,
    previous: Placement,
) -> Iterator[tuple[TaskId, str]]:
    for task in situation.tasks:
        goal = target.active.get(task)
        now = refined.active.get(task)
        runner = standing.runner(task, previous.active)
        if now is not None and now == goal:
            if runner != goal:
                yield task, f"{task} goes to {goal} {_as_soon_as(task, runner, situation)}"
        elif goal is None:
            if runner is None:
                yield task, f"{task} has nowhere to run: no live worker may get tasks"
            elif runner not in standing.placeable:
                yield task, f"{task} stays on {runner}: no other live worker may get tasks"
        else:
            where = (
                f"stays on {now}"
                if now == runner
                else f"goes to {now} {_as_soon_as(task, runner, situation)}, and is there"
            )
            yield task, f"{task} {where} until {_until(task, goal, standing, options, refined)}"


def _as_soon_as(task: TaskId, runner: str | None, situation: Situation) -> str:
    if runner is not None:
        return f"as soon as {runner} has handed it over"
    owner = situation.owners.get(task)
    return f"as soon as it is taken over from {owner}, which is gone" if owner else "as soon as it is claimed in Kafka"


def _until(task: TaskId, goal: str, standing: Standing, options: AssignmentOptions, refined: Placement) -> str:
    """What has to happen on the target."""
    if goal not in standing.placeable:
        return f"there is a new target: {goal} may not get tasks"
    if goal not in refined.warm_up.get(task, ()) and goal not in refined.standby.get(task, ()):
        return f"{goal} can warm up a copy: all {options.max_warm_ups} warm-ups (max.warmup.replicas) are taken"
    copy = standing.copies(task).get(goal)
    lag = f"still {copy.lag:,}" if copy is not None and copy.lag is not None else "not known yet"
    return f"{goal}'s copy is within {options.acceptable_lag:,} records ({lag})"
