"""The examples of other pages than the guides run."""

from __future__ import annotations

import millpond as mp
from millpond.testing import TopologyTestDriver

from .examples import run_examples


def test_the_examples_of_batches_run():
    """Scores and prices come out with the keys of their records."""
    names, _ = run_examples("docs/batches.md", {})
    with TopologyTestDriver(names["builder"].build()) as driver:
        driver.create_input_topic("texts", key=mp.String, value=mp.String).pipe_input("a", "x" * 50)
        scores = driver.create_output_topic("scores", key=mp.String, value=mp.Double)
        assert scores.read_key_value() == ("a", 0.5)
        driver.create_input_topic("orders", key=mp.String, value=mp.String).pipe_input("b", "tea")
        prices = driver.create_output_topic("prices", key=mp.String, value=mp.String)
        assert prices.read_key_values_to_list() == [("b", "tea:"), ("b", "3.00")]


def test_the_examples_of_small_applications_run():
    """The order is priced, counted and shown."""
    _, printed = run_examples("docs/small-applications.md", {})
    assert printed == "a has 1 orders\n"


def test_the_tests_of_testing_applications_pass() -> None:
    """Each function of the page that pytest would run is run."""
    names, _ = run_examples("docs/testing-applications.md", {})
    tests = [function for name, function in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()
