"""Explores the model of ownership to its end: ``python -m tests.ownership.checker``.

Breadth first, so that the trace of a violation is a shortest one. Safety is looked at in each step, the lemma behind it
in each state. Then liveness: from every state in which only one worker is left, that worker alone, told the right
things, can commit further for each task. Every state leads to such states by crashes, so this says it of all.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.ownership.model import Model, Mutant
from tests.ownership.states import NOBODY, TASKS, WORKERS, Holder, State, Step

__all__ = ("Found", "explore", "liveness", "of_mutant")


@dataclass
class Found:
    """What an exploration came to.

    Attributes:
        states: how many there are, up to the names of workers and tasks.
        steps: how many were taken.
        depth: of the state farthest from the beginning.
        seconds: how long it took.
        complete: whether every reachable state was seen.
        violation: what must not have happened, None if nothing was found.
        trace: how it came to that, step by step.
        alone: the states with one worker left, that worker being the first.
    """

    states: int = 0
    steps: int = 0
    depth: int = 0
    seconds: float = 0.0
    complete: bool = False
    violation: str | None = None
    trace: list[str] = field(default_factory=list)
    alone: set[State] = field(default_factory=set)

    def __str__(self) -> str:
        seen = f"{self.states:,} states, {self.steps:,} steps, depth {self.depth}, {self.seconds:.1f} s"
        if self.violation is None:
            return f"{seen}: {'complete, nothing wrong' if self.complete else 'cut off, nothing wrong so far'}"
        story = "\n".join(f"  {number:2}. {label}" for number, label in enumerate(self.trace, 1))
        return f"{seen}: {self.violation}\n{story}"


def of_mutant(mutant: Mutant) -> Model:
    """The protocol with something left out: one task is enough to see what comes of it."""
    return Model(
        frozenset({mutant}),
        tasks=(0,),
        expiry=mutant is Mutant.NO_REFRESH,
        outdated=mutant is Mutant.NO_COMPARISON,
    )


def explore(model: Model, *, limit: int | None = None, lemma: bool = True) -> Found:
    """Visit every state that can be reached, until something is wrong.

    Args:
        model: what to explore.
        limit: the most states to visit; None for all.
        lemma: whether each state is held against the lemma too, not only each commit against safety.
    """
    began = time.monotonic()
    found = Found()
    start = model.canonical(model.initial())
    before: dict[State, State | None] = {start: None}
    front = [start]

    def over(
        *, last: tuple[State, Step | None] | None = None, complete: bool = False, violation: str | None = None
    ) -> Found:
        found.states, found.seconds = len(before), time.monotonic() - began
        found.complete, found.violation = complete, violation
        if last is not None:
            found.trace, found.violation = _told(model, before, *last, violation or "")
        return found

    while front:
        following: list[State] = []
        for state in front:
            if lemma:
                broken = model.broken_lemma(state)
                if broken is not None:
                    return over(last=(state, None), violation=broken)
                _collect_alone(model, state, found.alone)
            for step in model.steps(state):
                found.steps += 1
                if step.violation is not None:
                    return over(last=(state, step), violation=step.violation)
                if step.after == state:
                    continue
                after = model.canonical(step.after)
                if after not in before:
                    before[after] = state
                    following.append(after)
            if limit is not None and len(before) > limit:
                return over()
        front = following
        found.depth += bool(front)
    return over(complete=True)


def _told(
    model: Model, before: dict[State, State | None], state: State, step: Step | None, violation: str
) -> tuple[list[str], str]:
    """The steps to a state and what is wrong there, with the same names for the same workers and tasks all along."""
    path = [state]
    while (earlier := before[path[-1]]) is not None:
        path.append(earlier)
    path.reverse()
    at, labels = model.initial(), []
    for wanted in path[1:]:
        at, label = next((each.after, each.label) for each in model.steps(at) if model.canonical(each.after) == wanted)
        labels.append(label)
    if step is None:
        return labels, model.broken_lemma(at) or violation
    target = model.canonical(step.after)
    for each in model.steps(at):
        if each.violation is not None and model.canonical(each.after) == target:
            return [*labels, f"{each.label}: {each.violation}"], each.violation
    raise AssertionError("a trace is made of the steps that were taken")


def _collect_alone(model: Model, state: State, alone: set[State]) -> None:
    """Add the state for each worker that is the only one left in it: every other id has no process behind it."""
    if model.identity(state[2 + NOBODY]).holder is not Holder.NONE:
        return
    held = [worker for worker in WORKERS if model.identity(state[2 + worker]).holder is not Holder.NONE]
    for worker in held or WORKERS:
        if len(held) <= 1:
            alone.add(model.canonical(model.renamed_first(state, worker), fixed=1))


def liveness(model: Model, alone: Iterable[State]) -> tuple[int, list[State]]:
    """States from which the first worker, alone, cannot commit further for some task.

    Nothing is relied on that need not happen: no request of a process that is gone arrives, no other worker comes back.
    Brokers write their markers, transactions time out, and executors are this worker's own.

    Returns:
        how many states were looked at, and those that are stuck.
    """
    sources: dict[State, list[State]] = {}
    moving: tuple[set[State], set[State]] = (set(), set())
    front = list(alone)
    seen = set(front)
    while front:
        state = front.pop()
        for step in model.steps(state):
            if step.late or (step.actor is not None and step.actor != 0):
                continue
            after = model.canonical(step.after, fixed=1)
            for task in TASKS:
                if (step.progress or 0) >> task & 1:
                    moving[task].add(state)
            sources.setdefault(after, []).append(state)
            if after not in seen:
                seen.add(after)
                front.append(after)
    stuck: list[State] = []
    for task in model.tasks:
        able = set(moving[task])
        back = list(able)
        while back:
            for state in sources.get(back.pop(), ()):
                if state not in able:
                    able.add(state)
                    back.append(state)
        stuck += [state for state in seen if state not in able]
    return len(seen), stuck


def main() -> int:
    """Explore the whole protocol, then each mutant, and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutants", action="store_true", help="show what is wrong with each mutant instead")
    parser.add_argument("--deep", action="store_true", help="tell transactions that only began from pending ones")
    parser.add_argument("--limit", type=int, help="the most states to visit")
    options = parser.parse_args()
    if options.mutants:
        for mutant in Mutant:
            found = explore(of_mutant(mutant), lemma=False)
            print(f"{mutant.name}: {mutant.value}\n{found}\n")
        return 0
    model = Model(fine=options.deep)
    found = explore(model, limit=options.limit)
    print(found, flush=True)
    if found.violation is not None:
        return 1
    began = time.monotonic()
    looked, stuck = liveness(model, found.alone)
    print(f"{looked:,} states with one worker left, {time.monotonic() - began:.1f} s: {len(stuck)} stuck")
    return bool(stuck)


if __name__ == "__main__":
    sys.exit(main())
