"""The delay of the first assignment."""

from __future__ import annotations

from millpond_operator.coordinator.engine.startup_barrier import StartupBarrier


def test_former_owners_get_time_once_the_first_returns():
    """A stopped application starts again: tasks are not assigned before their owners return or 2 s are over."""
    gathering = StartupBarrier(500)
    gathering.expect(["w0", "w1", "w2"])
    gathering.joined("w1", 0)
    assert not gathering.over(1_900)
    gathering.joined("w0", 1_000)
    gathering.joined("w2", 1_100)
    assert not gathering.over(1_500)
    assert gathering.over(1_600)
    late = StartupBarrier(500)
    late.expect(["w0", "w1"])
    late.joined("w1", 0)
    assert not late.over(1_999)
    assert late.over(2_000)
