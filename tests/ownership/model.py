"""The ownership protocol (docs/decisions/0013-ownership.md) as a state machine that can be explored completely.

`states.py` has what a state holds, and why no more is needed; `checker.py` explores the model.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from tests.ownership.states import (
    IN_FLIGHT,
    NOBODY,
    NOTHING_KNOWN,
    OPEN,
    TASKS,
    UNOWNED,
    WORKERS,
    Content,
    Extra,
    Holder,
    Identity,
    Know,
    Stage,
    State,
    Step,
    after_marker,
    as_aborted,
    as_normal,
    as_settled,
    as_stale,
    forgetting,
    is_pending,
    knowing,
)
from tests.ownership.symmetry import LEAST_RENAMINGS, RENAMINGS, renamed_extras, renamed_identity

__all__ = ("Model", "Mutant")

_NAMES = ("A", "B", "C", "nobody")
_IDS = ("A", "B", "C", "unowned")


class Mutant(enum.Enum):
    """A rule that is left out of the protocol; each must lead to a violation."""

    NO_FENCING = "a take-over that does not initialise the previous owner's id"
    NO_OWNER_CHECK = "a take-over that does not look who the owner is after fencing"
    START_WHEN_TOLD = "a worker that starts when it is told, before the hand-over to it is committed"
    NO_INIT = "a worker that resumes after a failed commit without initialising its id"
    CLAIM_UNDER_OWN_ID = "nobody's tasks claimed under each worker's own id"
    UNSTABLE_READ = "lookups that do not wait for pending offsets"
    LOOK_UP_BEFORE_INIT = "a lookup that began before the worker's id was initialised"
    OLD_ANSWER = "a lookup's answer accepted after a later lookup was begun"
    LAST_STABLE_OFFSET = "state restored to the last stable offset of the changelog"
    NONE_IS_MINE = "a task without an owner counted as the worker's own"
    NO_REFRESH = "offsets that expire while their owner is idle"
    DUPLICATES = "a request of an earlier transaction that arrives in a later one of the same producer epoch"
    NO_COMPARISON = "a commit that does not compare the offsets from which it goes on, where answers may be outdated"
    DROP_WHILE_COMMITTING = "a task dropped and looked up again while a commit of it is on its way"


#: In these the first owner may come about in a wrong way: what follows must show that it was wrong.
_NAMELESS = frozenset({Mutant.NO_OWNER_CHECK, Mutant.START_WHEN_TOLD, Mutant.CLAIM_UNDER_OWN_ID, Mutant.NONE_IS_MINE})


@dataclass
class Model:
    """The protocol, whole or with something left out.

    Attributes:
        mutants: what is left out.
        tasks: which of the tasks there are.
        expiry: whether offsets expire.
        fine: whether a transaction has a stage of its own between its first record and its offsets. It shows only to
            those who read a task's offsets for themselves, and to them an open transaction is aborted first: only
            mutants need it.
        outdated: whether a broker that no longer coordinates the group may answer with committed offsets of the past.
    """

    mutants: frozenset[Mutant] = frozenset()
    tasks: tuple[int, ...] = TASKS
    expiry: bool = True
    fine: bool = True
    outdated: bool = False
    _identities: list[Identity] = field(default_factory=list)
    _numbers: dict[Identity, int] = field(default_factory=dict)
    _moves: dict[tuple[int, ...], tuple[tuple[str, int, bool, bool], ...]] = field(default_factory=dict)
    _twins: dict[int, list[int]] = field(default_factory=dict)

    def initial(self) -> State:
        """Nobody owns anything, nobody runs."""
        none = self.number(Identity())
        return (NOBODY, NOBODY, none, none, none, none, frozenset())

    def number(self, identity: Identity) -> int:
        """The number of an identity."""
        found = self._numbers.get(identity)
        if found is None:
            found = self._numbers[identity] = len(self._identities)
            self._identities.append(identity)
        return found

    def identity(self, number: int) -> Identity:
        """The identity of a number."""
        return self._identities[number]

    # Symmetry

    def canonical(self, state: State, fixed: int = 0) -> State:
        """Return one state for all that differ only in names of tasks and workers; the first `fixed` keep theirs."""
        extras = state[6]
        one, two, three, four = (self._twin(state[2 + at]) for at in (*WORKERS, UNOWNED))
        twins = (one, two, three)
        best: tuple[int, ...] | None = None
        found = extras
        for place, (workers, swapped, (first, second, third)) in LEAST_RENAMINGS[fixed][state[0], state[1]]:
            renamed = (twins[first][place], twins[second][place], twins[third][place], four[place])
            if best is not None and renamed > best:
                continue
            moved = renamed_extras(extras, workers, swapped=swapped) if extras else extras
            if best is None or renamed < best or sorted(moved) < sorted(found):
                best, found = renamed, moved
                owners = (workers[state[1]], workers[state[0]]) if swapped else (workers[state[0]], workers[state[1]])
        assert best is not None
        return (*owners, *best, found)  # type: ignore[return-value]

    def _twin(self, number: int) -> list[int]:
        """The numbers of an identity under every renaming."""
        twins = self._twins.get(number)
        if twins is None:
            twins = self._twins[number] = [
                self.number(renamed_identity(self._identities[number], workers, swapped=swapped))
                for workers, swapped, _ in RENAMINGS
            ]
        return twins

    def renamed_first(self, state: State, worker: int) -> State:
        """The state with `worker` as the first one."""
        for place, (workers, swapped, back) in enumerate(RENAMINGS):
            if workers[worker] == 0 and not swapped:
                ids = [self._twin(state[2 + each])[place] for each in back]
                return (workers[state[0]], workers[state[1]], *ids, self._twin(state[5])[place], frozenset())  # type: ignore[return-value]
        raise AssertionError

    # Steps

    def steps(self, state: State) -> Iterator[Step]:
        """Yield everything that may happen next."""
        owners = state[:2]
        all_ids = [self._identities[number] for number in state[2:6]]
        pending = [[is_pending(each, task) for task in TASKS] for each in all_ids]
        stable = [not any(row[task] for row in pending) for task in TASKS]
        logged = [not any(each.logs[task] for each in all_ids) for task in TASKS]
        lacking = [any(each.logs[task] and each.stage is Stage.COMMITTED for each in all_ids) for task in TASKS]
        seen = (*owners, *stable, *logged, *lacking)
        for at in (*WORKERS, UNOWNED):
            number = state[2 + at]
            misled = self.outdated and any(_is_misled(each) for other, each in enumerate(all_ids) if other != at)
            key = (at, number, misled, *seen)
            moves = self._moves.get(key)
            if moves is None:
                made = self._local(at, self._identities[number], owners, stable, logged, lacking, misled=misled)
                moves = self._moves[key] = tuple(
                    (label, there, own, late)
                    for label, after, own, late in made
                    if (there := self.number(as_normal(after))) != number
                )
            for label, after, own, late in moves:
                replaced = (*state[: 2 + at], after, *state[3 + at :])
                yield Step(label, replaced, actor=at if own else None, late=late)  # type: ignore[arg-type]
            identity = all_ids[at]
            if identity.stage is Stage.COMMITTED and any(identity.contents):
                yield self._marker(state, at)
        if self.expiry:
            yield from self._expiries(state, all_ids, pending)
        if self.mutants:
            yield from self._extras(state, all_ids, pending)

    def _local(
        self,
        at: int,
        identity: Identity,
        owners: tuple[int, ...],
        stable: list[bool],
        logged: list[bool],
        lacking: list[bool],
        *,
        misled: bool = False,
    ) -> Iterator[tuple[str, Identity, bool, bool]]:
        """Steps that change only one identity: label, what it becomes, whether they are its worker's own, and late.

        `misled` is whether another identity goes on from an outdated answer: one at a time is enough.
        """
        holder, knows, stage, contents, logs = identity
        mutants = self.mutants
        name, id_name = _NAMES[at], _IDS[at]
        aborted = as_aborted(identity)

        # Producers come and go.
        nothing = Identity().knows
        lost = aborted._replace(holder=Holder.NONE, knows=nothing)
        if at != UNOWNED and Mutant.LOOK_UP_BEFORE_INIT in mutants and holder is Holder.NONE and knows != nothing:
            yield f"{name} initialises its own id", aborted._replace(holder=Holder.SELF), True, False
        if Mutant.NO_FENCING not in mutants or at == UNOWNED or holder is Holder.SELF or stage is not Stage.NONE:
            yield f"the id of {id_name} is initialised", lost, False, False
        if Mutant.NO_INIT in mutants and holder is Holder.SELF:
            gave_up = identity._replace(holder=Holder.NONE, knows=nothing)
            yield f"{name} gives its commit up, without initialising its id", gave_up, True, False
        if holder is not Holder.NONE:
            gone = identity._replace(holder=Holder.NONE, knows=nothing)
            yield f"{name if holder is Holder.SELF else f'the executor for {id_name}'} crashes", gone, False, True

        # Brokers.
        if stage in OPEN:
            yield f"the transaction of {id_name} times out", lost, False, False
        if stage is Stage.ABORTED:
            over = identity._replace(stage=Stage.NONE, contents=(None, None), logs=(False, False))
            yield f"the transaction of {id_name} is aborted", over, False, False
        if stage is Stage.COMMITTED:
            for task in self.tasks:
                if logs[task]:
                    left = tuple(open_ and each != task for each, open_ in enumerate(logs))
                    written = as_settled(identity._replace(logs=left))
                    yield f"the marker of {id_name} reaches the changelog of {task}", written, False, False

        # The commit in flight; its requests may be late.
        late = holder is Holder.NONE
        own = at != UNOWNED and holder is Holder.SELF
        if stage is Stage.BEGUN:
            yield f"the offsets that {id_name} sent become pending", identity._replace(stage=Stage.PENDING), own, late
        compares = self.outdated and Mutant.NO_COMPARISON not in mutants
        if stage is Stage.PENDING and compares:
            if any(each is not None and (each.stale or owners[task] != at) for task, each in enumerate(contents)):
                yield f"{id_name} finds other offsets committed, and aborts", lost, own, late
            else:
                compared = identity._replace(stage=Stage.COMPARED)
                yield f"{id_name} finds the offsets committed from which it goes on", compared, own, late
        elif stage in {Stage.PENDING, Stage.COMPARED}:
            decided = identity._replace(stage=Stage.COMMITTED)
            if holder is Holder.EXECUTOR:  # it is done
                decided = decided._replace(holder=Holder.NONE, knows=Identity().knows)
            yield f"the transaction of {id_name} is to be committed", as_settled(decided), own, late
        flying = any(know in IN_FLIGHT for know, _ in knows)
        if flying and stage in {Stage.COMMITTED, Stage.NONE}:
            learned = identity._replace(knows=tuple(map(after_marker, knows, contents)))
            yield f"{name} learns that its commit is through", learned, True, False

        # What is found out. A new producer can do so once the transaction that it found is decided.
        open_ = stage in OPEN
        early = Mutant.LOOK_UP_BEFORE_INIT in mutants and open_
        free = holder is Holder.NONE and (
            not open_ or early or mutants & {Mutant.NO_INIT, Mutant.DROP_WHILE_COMMITTING}
        )
        for task in self.tasks:
            know = knows[task][0]
            if know is Know.NOTHING and (stable[task] or Mutant.UNSTABLE_READ in mutants):
                seen = f"reads that {task} is {_whose(owners[task])}"
                who = f"{name}, its id {'not yet ' * early}initialised," if holder is Holder.NONE else name
                if at != UNOWNED and (free or holder is Holder.SELF) and self._counts_as_mine(at, owners[task]):
                    mine = knowing(identity, task, Know.MINE)._replace(holder=Holder.NONE if early else Holder.SELF)
                    yield f"{who} {seen}", mine, True, False
                executes = holder is Holder.EXECUTOR or (free and not early and Mutant.NO_FENCING not in mutants)
                if executes and (owners[task] == at or Mutant.NO_OWNER_CHECK in mutants):
                    read = knowing(identity, task, Know.MINE)._replace(holder=Holder.EXECUTOR)
                    yield f"an executor that has the id of {id_name} {seen}", read, False, False
            if know is Know.NOTHING and self.outdated and not misled:
                yield from self._outdated(at, identity, task, free=free)
            if holder is Holder.SELF and know is Know.MINE:
                if logged[task]:
                    yield f"{name} has restored {task} and runs it", knowing(identity, task, Know.RUNS), True, False
                elif Mutant.LAST_STABLE_OFFSET in mutants:
                    found = Know.INCOMPLETE if lacking[task] else Know.RUNS
                    yield (
                        f"{name} restores {task} to the last stable offset and runs it",
                        knowing(identity, task, found),
                        True,
                        False,
                    )
            dropped = {Know.MINE, Know.RUNS, Know.INCOMPLETE, Know.AHEAD}
            if Mutant.DROP_WHILE_COMMITTING in mutants:
                dropped |= {Know.COMMITTING, Know.LEAVING}
            if holder is Holder.SELF and know in dropped:
                yield f"{name} is told to drop {task}", forgetting(identity, task), True, False

        # A new transaction.
        if stage is Stage.NONE and not flying and holder is not Holder.NONE:
            yield from self._begun(at, identity)

    def _outdated(
        self, at: int, identity: Identity, task: int, *, free: bool
    ) -> Iterator[tuple[str, Identity, bool, bool]]:
        """Answers of a broker that coordinated the group once: it tells whoever asks that the task is still his."""
        said = f"is told by an earlier coordinator that {task} is {_whose(at)}"
        for holder, who in ((Holder.SELF, _NAMES[at]), (Holder.EXECUTOR, f"an executor that has the id of {_IDS[at]}")):
            if (free or identity.holder is holder) and not (holder is Holder.SELF and at == UNOWNED):
                knows = tuple((Know.MINE, True) if each == task else know for each, know in enumerate(identity.knows))
                yield f"{who} {said}", identity._replace(holder=holder, knows=knows), holder is Holder.SELF, False

    def _counts_as_mine(self, at: int, owner: int) -> bool:
        return (
            owner == at
            or Mutant.START_WHEN_TOLD in self.mutants
            or (owner == NOBODY and bool(self.mutants & {Mutant.NONE_IS_MINE, Mutant.CLAIM_UNDER_OWN_ID}))
        )

    def _begun(self, at: int, identity: Identity) -> Iterator[tuple[str, Identity, bool, bool]]:
        """Commits of any of the tasks, each with any next owner; an executor's takes all that it found."""
        executor = identity.holder is Holder.EXECUTOR
        choices: list[list[int | None]] = []
        for know, _ in identity.knows:
            able = know in {Know.MINE, Know.RUNS, Know.INCOMPLETE}
            choices.append([*([] if executor else [None]), *WORKERS] if able else [None])
        for owners in product(*choices):
            if owners == (None, None):
                continue
            knows, contents = list(identity.knows), list(identity.contents)
            said = []
            for task, owner in enumerate(owners):
                if owner is None:
                    continue
                know, stale = knows[task]
                work = know is not Know.MINE
                contents[task] = Content(owner, work, stale, know is Know.INCOMPLETE)
                stays = work and owner == at
                knows[task] = (Know.COMMITTING if stays else Know.LEAVING, stale)
                said.append(f"{'more of ' if work else ''}{task} as {_NAMES[owner]}'s")
            logs = tuple(each is not None and each.work for each in contents)
            stage = Stage.BEGUN if self.fine else Stage.PENDING
            begun = identity._replace(knows=tuple(knows), stage=stage, contents=tuple(contents), logs=logs)
            who = f"the executor for {_IDS[at]}" if executor else _NAMES[at]
            yield f"{who} begins to commit {' and '.join(said)}", begun, not executor, False

    # Steps that change more than one identity

    def _marker(self, state: State, at: int) -> Step:
        """The marker of a committed transaction reaches the offsets: now they are committed."""
        identity = self._identities[state[2 + at]]
        after = self._replace(state, at, as_settled(identity._replace(contents=(None, None))))
        violation, progress = None, 0
        for task, content in enumerate(identity.contents):
            if content is None:
                continue
            violation = violation or self._wrong(_IDS[at], at, state[task], task, content)
            progress |= content.work << task
            after = self._committed(after, at, task, content)
            if Mutant.DUPLICATES in self.mutants and content.work and content.owner == at:
                after = (*after[:6], after[6] | {Extra("duplicate", at, task, True)})
        return Step(f"the marker of {_IDS[at]} commits its offsets", after, violation, progress)

    def _committed(self, state: State, at: int, task: int, content: Content) -> State:
        """An offset is committed: what others know of it is stale if it moved."""
        after = list(state)
        after[task] = content.owner
        if content.work:
            for place in (*WORKERS, UNOWNED):
                after[2 + place] = self.number(as_stale(self._identities[after[2 + place]], task, own=place == at))
            after[6] = frozenset(each._replace(stale=each.stale or each.task == task) for each in state[6])
        return tuple(after)  # type: ignore[return-value]

    def _replace(self, state: State, at: int, identity: Identity) -> State:
        return (*state[: 2 + at], self.number(identity), *state[3 + at :])  # type: ignore[return-value]

    def _expiries(self, state: State, all_ids: list[Identity], pending: list[list[bool]]) -> Iterator[Step]:
        """Offsets expire, and with them the owner: only if he, awake or not, has not committed for days.

        His transactional id expired before that (an assumption), or he would have committed.
        """
        for task in TASKS:
            owner = state[task]
            if owner == NOBODY or any(row[task] for row in pending) or any(each.contents[task] for each in all_ids):
                continue
            if all_ids[owner].knows[task] != NOTHING_KNOWN and Mutant.NO_REFRESH not in self.mutants:
                continue
            after = self._committed(state, NOBODY, task, Content(NOBODY, work=True))
            yield Step(f"the offset of {task} expires", after, late=True)

    def _extras(self, state: State, all_ids: list[Identity], pending: list[list[bool]]) -> Iterator[Step]:
        extras = state[6]
        if Mutant.OLD_ANSWER in self.mutants:
            yield from self._old_answers(state, all_ids, pending)
        if Mutant.DUPLICATES in self.mutants:
            for each in extras:
                identity = all_ids[each.identity]
                content = identity.contents[each.task]
                # The same producer epoch, and offsets of this task were announced to the transaction.
                if identity.holder is Holder.SELF and identity.stage is Stage.PENDING and content is not None:
                    contents = tuple(
                        Content(each.identity, work=True, stale=True) if task == each.task else kept
                        for task, kept in enumerate(identity.contents)
                    )
                    after = self._replace(state, each.identity, identity._replace(contents=contents))
                    yield Step(
                        f"a duplicate of {_NAMES[each.identity]}'s earlier offsets of {each.task} arrives",
                        (*after[:6], extras - {each}),
                    )
                elif identity.holder is not Holder.SELF:
                    yield Step("a duplicate of an older epoch is refused", (*state[:6], extras - {each}))
        if Mutant.NO_FENCING in self.mutants:
            for at, task in product((*WORKERS, UNOWNED), self.tasks):
                if state[task] == at and not any(row[task] for row in pending):
                    read = Extra("reading", at, task, False)
                    if not any(each[:3] == read[:3] for each in extras):
                        label = f"an executor reads that {task} is {_whose(at)}, without initialising the id"
                        yield Step(label, (*state[:6], extras | {read}))
            for each in extras:
                for owner in WORKERS:
                    content = Content(owner, work=False, stale=each.stale)
                    # It has no id to itself, so nothing but its reading says whose the task is.
                    violation = self._wrong("the executor", each.identity, state[each.task], each.task, content)
                    after = self._committed((*state[:6], extras - {each}), UNOWNED, each.task, content)
                    yield Step(f"the executor commits {each.task} as {_NAMES[owner]}'s", after, violation)

    def _old_answers(self, state: State, all_ids: list[Identity], pending: list[list[bool]]) -> Iterator[Step]:
        for at, task in product(WORKERS, self.tasks):
            answer = next((each for each in state[6] if (each.identity, each.task) == (at, task)), None)
            holder, stage = all_ids[at].holder, all_ids[at].stage
            has_id = holder is Holder.SELF or (holder is Holder.NONE and stage not in {Stage.BEGUN, Stage.PENDING})
            asks = has_id and all_ids[at].knows[task] == NOTHING_KNOWN
            if answer is None:
                if asks and state[task] == at and not any(row[task] for row in pending):
                    extras = state[6] | {Extra("answer", at, task, False)}
                    yield Step(
                        f"Kafka reads for {_NAMES[at]} that {task} is its own; the answer is delayed",
                        (*state[:6], extras),
                    )
            elif asks:
                knows = tuple(
                    (Know.MINE, answer.stale) if each == task else know for each, know in enumerate(all_ids[at].knows)
                )
                after = self._replace(state, at, all_ids[at]._replace(holder=Holder.SELF, knows=knows))
                yield Step(f"{_NAMES[at]} accepts the delayed answer about {task}", (*after[:6], state[6] - {answer}))

    # What must hold

    def _wrong(self, name: str, at: int, owner: int, task: int, content: Content) -> str | None:
        """Return why a commit violates the protocol; None if it does not."""
        if content.stale:
            return f"{name} committed {task} from an offset from which another commit went on already"
        if owner != at and not (owner == NOBODY and self.mutants & _NAMELESS):
            return f"{name} committed {task}, which the last commit had made {_whose(owner)}"
        if content.incomplete:
            return f"{name} committed {task} from state that lacks what its predecessor committed"
        return None

    def broken_lemma(self, state: State) -> str | None:
        """Why the state contradicts what the proof rests on; None when it does not.

        Whoever holds an id and knows a task to be its own, or commits it, is whom Kafka names, at the offset committed.
        Where answers may be outdated, that holds once it was compared.
        """
        for at in (*WORKERS, UNOWNED):
            identity = self._identities[state[2 + at]]
            for task in TASKS:
                know, stale = identity.knows[task]
                content = identity.contents[task]
                flying = know in {*IN_FLIGHT, Know.AHEAD}
                if know is not Know.NOTHING and not flying and not self.outdated and (state[task] != at or stale):
                    return (
                        f"{_IDS[at]} thinks it may commit {task}, which is {_whose(state[task])}{' further on' * stale}"
                    )
                uncompared = self.outdated and identity.stage in {Stage.BEGUN, Stage.PENDING}
                if content is None or uncompared or identity.stage is Stage.ABORTED:
                    continue
                if state[task] != at or content.stale:
                    return f"{_IDS[at]} commits {task}, which is {_whose(state[task])}"
        return None


def _is_misled(identity: Identity) -> bool:
    return any(stale for _, stale in identity.knows) or any(each and each.stale for each in identity.contents)


def _whose(owner: int) -> str:
    return f"{_NAMES[owner]}'s"
