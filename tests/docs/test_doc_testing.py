"""The examples of docs/testing-applications.md run."""

from __future__ import annotations

from .examples import run_examples


def test_the_tests_of_the_page_pass() -> None:
    """Each function of the page that pytest would run is run."""
    names, _ = run_examples("docs/testing-applications.md", {})
    tests = [function for name, function in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()
