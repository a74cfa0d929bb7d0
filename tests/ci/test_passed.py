"""Anybody can ask whether a tree has passed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from tests.ci import passed

_RUN = passed.Passed("aaaa", "0123", 1432, datetime(2027, 1, 15, 8, 0, 0, tzinfo=UTC))


def test_runs_of_a_tree_are_found_again(tmp_path, monkeypatch):
    """Each run is a line of one file in the cache folder; those of other trees are not told."""
    monkeypatch.setenv("MILLPOND_CACHE", str(tmp_path / "cache"))
    assert passed.passed("aaaa") == []
    runs = [_RUN, replace(_RUN, tree="bbbb"), replace(_RUN, without=("e2e", "long"))]
    for each in runs:
        passed.add(each)
    assert passed.passed("aaaa") == [runs[0], runs[2]]
    assert passed.passed("bbbb") == [runs[1]]
    assert (tmp_path / "cache/ci-passed").read_text().count("\n") == 3


def test_a_line_can_be_read(tmp_path):
    """A person sees when, which tree, which choices, how long, and what was left out."""
    assert str(_RUN) == "2027-01-15T08:00:00Z tree aaaa choices 0123 1432 s"
    assert str(replace(_RUN, without=("e2e",))) == "2027-01-15T08:00:00Z tree aaaa choices 0123 1432 s without e2e"
