"""The ownership protocol, explored completely: what never happens, what stays possible, what each rule is for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ownership.checker import explore, liveness, of_mutant
from tests.ownership.model import Model, Mutant
from tests.ownership.states import State, Step

#: Where each mutant must end; a shortest trace tells how.
_TWICE = "from an offset from which another commit went on already"
_FOREIGN = "which the last commit had made"
_LACKING = "from state that lacks what its predecessor committed"
_ENDS = {
    Mutant.LAST_STABLE_OFFSET: _LACKING,
    Mutant.NO_REFRESH: _TWICE,
    Mutant.DUPLICATES: _TWICE,
}
FIRST_STATES = 20_000


class _WithoutTakeOver(Model):
    """Executors claim only unowned tasks."""

    def steps(self, state: State) -> Iterator[Step]:
        for step in super().steps(state):
            if not (step.label.startswith("an executor") and "reads" in step.label and "nobody's" not in step.label):
                yield step


@pytest.mark.slow
def test_first_steps_of_two_tasks_keep_their_commits_in_one_chain() -> None:
    """Three workers, two tasks, the states that take the fewest steps. `make nightly` explores all states."""
    model = Model(fine=False)
    found = explore(model, limit=FIRST_STATES)
    print(found)
    assert found.violation is None, str(found)
    assert found.states > FIRST_STATES
    assert found.depth > 10
    _, stuck = liveness(model, found.alone)
    assert not stuck


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_commits_form_one_chain_without_dead_ends() -> None:
    """Three workers, two tasks, every order: commits of a task form one chain, and no state is a dead end."""
    model = Model(fine=False)
    found = explore(model)
    print(found)
    assert found.complete, str(found)
    assert found.states > 100_000
    looked, stuck = liveness(model, found.alone)
    print(f"{looked:,} states with one worker left")
    assert looked > 10_000
    assert not stuck


def test_one_task_is_explored_with_every_stage_of_a_transaction() -> None:
    """With one task, transactions that only began are told from pending ones too, and nothing is wrong either."""
    found = explore(Model(tasks=(0,)))
    print(found)
    assert found.complete, str(found)


@pytest.mark.slow
def test_answers_of_an_earlier_coordinator_change_nothing() -> None:
    """Whoever continues from offsets of the past commits nothing, and nobody waits for him for ever."""
    model = Model(tasks=(0,), expiry=False, fine=False, outdated=True)
    found = explore(model)
    print(found)
    assert found.complete, str(found)
    _, stuck = liveness(model, found.alone)
    assert not stuck


@pytest.mark.share(3)
@pytest.mark.parametrize("mutant", Mutant, ids=lambda each: each.name.lower())
def test_dropping_any_rule_breaks_the_protocol(mutant: Mutant) -> None:
    """Without one of the rules some commit is wrong, and a shortest trace shows how it comes to that."""
    found = explore(of_mutant(mutant), lemma=False)
    print(f"{mutant.value}\n{found}")
    assert found.violation is not None
    assert _ENDS.get(mutant, _FOREIGN) in found.violation
    assert found.trace[-1].endswith(found.violation)
    assert len(found.trace) <= 20


def test_without_take_over_a_dead_owner_blocks_its_tasks() -> None:
    """The search for dead ends finds them: tasks of dead owners, without take-over."""
    model = _WithoutTakeOver(tasks=(0,), expiry=False)
    found = explore(model)
    assert found.complete, str(found)
    _, stuck = liveness(model, found.alone)
    assert any(state[0] in {1, 2} for state in stuck)
