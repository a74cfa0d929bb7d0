"""The bench of batches compares equal results."""

from __future__ import annotations

from bench.batches import rows


def test_all_steps_are_measured_and_have_the_same_results() -> None:
    """A batch pays the cost of a call once, and a service is asked for many records at a time."""
    table = rows(records=200, turn=100, call_us=200, service_ms=1)
    assert [row.factor for row in table if row.step.startswith("map_values, ")] == [1.0, 1.0]
    batches = next(row for row in table if row.step == "map_batches")
    assert batches.factor > 2
    assert table[-1].step == "map_values_async, 64 calls"
