"""The examples of docs/processors.md run."""

from __future__ import annotations

import millpond as mp
from millpond.testing import TopologyTestDriver

from .examples import run_examples


def test_the_examples_of_processors_run():
    """The processor of the first example forwards only values that are higher than all before."""
    names, _ = run_examples("docs/processors.md", {})
    with TopologyTestDriver(names["builder"].build()) as driver:
        topic = driver.create_input_topic("values", key=mp.String, value=mp.Long)
        topic.pipe_key_value_list([("a", 3), ("a", 1), ("b", 2), ("a", 4)])
        results = driver.create_output_topic("highest", key=mp.String, value=mp.Long)
        assert results.read_key_values_to_list() == [("a", 3), ("b", 2), ("a", 4)]
    with TopologyTestDriver(names["topology"]) as driver:
        lines = driver.create_input_topic("lines", key=mp.String, value=mp.String)
        lines.pipe_key_value_list([("a", "one"), ("a", "two")])
        counts = driver.create_output_topic("counts", key=mp.String, value=mp.Long)
        assert counts.read_values_to_list() == [1, 2]
