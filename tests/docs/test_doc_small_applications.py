"""The examples of docs/small-applications.md run."""

from __future__ import annotations

from .examples import run_examples


def test_the_examples_of_small_applications_run():
    """The order is priced, counted and shown."""
    _, printed = run_examples("docs/small-applications.md", {})
    assert printed == "a has 1 orders\n"
