"""Mistakes of new users: each is told at the earliest moment, in a sentence with cause and cure, as in the docs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.mistakes.page import PAGE, page
from tests.mistakes.running import said_by
from tests.mistakes.table import MISTAKES, Mistake, Moment

WITHOUT_A_BROKER = [mistake for mistake in MISTAKES if mistake.moment not in (Moment.BROKER, Moment.APPLY)]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "200")
    for name in list(os.environ):
        if name.startswith("MILLPOND_") and not name.startswith(("MILLPOND_TEST", "MILLPOND_CACHE")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("mistake", WITHOUT_A_BROKER, ids=lambda each: each.title.replace(" ", "-"))
def test_a_mistake_is_told_at_once_with_cause_and_cure(
    mistake: Mistake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mistake is made for real: moment and words are those of the table."""
    assert said_by(mistake, tmp_path, capsys) == (mistake.moment, mistake.says)


def test_the_table_has_forty_mistakes_of_different_names() -> None:
    """The number is what was promised; the titles are headings of a page."""
    assert len({mistake.title for mistake in MISTAKES}) == len(MISTAKES) >= 40


def test_the_page_is_written_from_the_table() -> None:
    """After a change of the table: python -m tests.mistakes --write."""
    assert PAGE.read_text(encoding="utf-8") == page()
