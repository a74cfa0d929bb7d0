"""Stored cases have the original's results: those that once differed, and situations written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.differential import stored
from tests.differential.comparing import difference
from tests.differential.original import Original
from tests.differential.ours.answers import answer
from tests.differential.ours.topologies import OPERATORS

FILES = stored.files()


@pytest.mark.parametrize("file", FILES, ids=stored.name_of)
def test_a_stored_case_has_the_results_of_the_original(file: Path) -> None:
    """Outputs, stores, changelogs, internal topics and the description are those that the original gave."""
    case = stored.read(file)
    theirs = json.loads(stored.answer_of(file).read_text())
    assert difference(case, theirs, answer(case)) is None


@pytest.mark.share(200)
@pytest.mark.parametrize("file", FILES, ids=stored.name_of)
def test_a_stored_case_has_the_same_results_from_disk(file: Path) -> None:
    """Nothing changes if no store remembers what is committed, and each read of it goes to RocksDB."""
    case = stored.read(file)
    theirs = json.loads(stored.answer_of(file).read_text())
    assert difference(case, theirs, answer({**case, "pressure": True})) is None


def test_stored_cases_use_operators_that_are_there() -> None:
    """No stored case names an operator that neither side knows."""
    unknown = {step["op"] for file in FILES for step in stored.read(file)["steps"]} - OPERATORS.keys()
    assert not unknown


def test_every_situation_is_described() -> None:
    """A case written by hand says in one sentence which situation it has."""
    described = [
        stored.read(file).get("situation", "") for file in FILES if file.is_relative_to(stored.HERE / "situations")
    ]
    assert all(text.endswith(".") for text in described)


@pytest.mark.slow
def test_stored_answers_are_those_of_the_original(original: Original) -> None:
    """The answers beside the cases are what Kafka Streams gives today."""
    cases = [stored.read(file) for file in FILES]
    answers = [json.loads(stored.answer_of(file).read_text()) for file in FILES]
    assert original.answers(cases) == answers
