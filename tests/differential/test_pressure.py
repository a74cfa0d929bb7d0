"""Under pressure, stores read what is committed from RocksDB, and results are the same."""

from __future__ import annotations

from typing import Any

import millpond as mp
from millpond.testing import TopologyTestDriver
from tests.differential.drawing.generator import Generator
from tests.differential.ours.answers import answer
from tests.differential.ours.pressure import PressedDriver
from tests.differential.running import Result
from tests.differential.shrinking import shrink

_COUNTS = 3


def _count(driver_class: type[TopologyTestDriver]) -> tuple[list[Any], int]:
    builder = mp.StreamsBuilder()
    counted = builder.stream("words", key=mp.String, value=mp.String).group_by_key().count(store="counts")
    counted.to_stream().to("out", key=mp.String, value=mp.Long)
    with driver_class(builder.build()) as driver:
        words = driver.create_input_topic("words", key=mp.String, value=mp.String)
        for _ in range(_COUNTS):
            words.pipe_input("mill", "x", timestamp=0)
        found = driver.create_output_topic("out", key=mp.String, value=mp.Long).read_values_to_list()
        return found, sum(store.backend_reads for store in driver._task.stores.values())


def test_every_read_of_a_committed_row_goes_to_the_backend() -> None:
    """A key that is counted three times is read twice, since the store is empty at first; without pressure, never."""
    assert _count(PressedDriver) == ([1, 2, 3], _COUNTS - 1)
    assert _count(TopologyTestDriver) == ([1, 2, 3], 0)


def test_cases_do_not_see_the_rows_of_earlier_cases() -> None:
    """All cases of a process share a database, and each begins with empty stores."""
    case: dict[str, Any] = {
        "config": {"statestore.cache.max.bytes": "0"},
        "pressure": True,
        "steps": [
            {"id": "s1", "op": "StreamsBuilder.stream", "topics": ["in1"]},
            {"id": "s2", "op": "KStream.groupByKey", "of": ["s1"]},
            {"id": "s3", "op": "KGroupedStream.count", "of": ["s2"], "store": {"name": "counts"}},
        ],
        "input": [["in1", "k1", "a", 0], ["in1", "k1", "b", 1]],
    }
    first = answer(case)
    assert first["stores"] == {"counts": ["k1 = 2 @1"]}
    assert answer(case) == first


def test_a_part_of_the_generated_cases_is_under_pressure() -> None:
    """About a quarter is; a difference that is there without pressure, too, is shown without it."""
    generator = Generator(1, Result(1).counts)
    cases = [generator.case() for _ in range(40)]
    pressed = [case for case in cases if case.get("pressure")]
    assert 3 <= len(pressed) <= 20
    assert "pressure" not in shrink(pressed[0], lambda _: True)
    assert "pressure" in shrink(pressed[0], lambda case: bool(case.get("pressure")))
