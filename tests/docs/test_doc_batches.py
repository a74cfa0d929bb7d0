"""The examples of docs/batches.md run."""

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
