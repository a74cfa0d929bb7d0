"""Measures what batches and async steps bring, without a broker: one task, records in memory.

    python -m bench.batches [--records 20000] [--turn 1000] [--call-us 20] [--service-ms 2] [--json FILE]

Each row has the same input and the same results. `map_values` calls a function for each record; the function has a cost
per call, as a model or a library has that checks its arguments. `map_batches` pays it once per batch. A service answers
after some milliseconds: `map_values` waits for each answer, `map_values_async` for all of a batch together.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import millpond as mp
from millpond.testing import TopologyTestDriver
from millpond.testing.topics import RawRecord

__all__ = ("Row", "measure", "rows")

_SETTINGS = {"default.key.serde": "String", "default.value.serde": "String"}


class Row(NamedTuple):
    """One measured step."""

    step: str
    seconds: float
    records_per_second: int
    factor: float
    """The rate, as a multiple of that of `map_values` with the same function."""


Step = Callable[[mp.KStream[str, str]], mp.KStream[str, Any]]


def measure(step: Step, records: int, turn: int) -> tuple[float, list[Any]]:
    """Return the seconds that a task takes for its records, and its results in their order.

    Args:
        step: the operator to measure.
        records: the number of records.
        turn: how many of them the task has at hand at a time.
    """
    builder = mp.StreamsBuilder()
    step(builder.stream("in", value=mp.String)).to("out", value=mp.String)
    with TopologyTestDriver(builder.build(), _SETTINGS) as driver:
        task = driver._task  # noqa: SLF001 - turns of many records, which only a worker has otherwise
        seconds = 0.0
        for first in range(0, records, turn):
            for number in range(first, min(first + turn, records)):
                driver._enqueue("in", RawRecord(f"k{number % 97}".encode(), b"%d" % number, number, None))  # noqa: SLF001
            for queue in task.inputs.values():
                queue.at_end = True
            began = time.perf_counter()
            task.process(turn, 0)
            task.flush()
            seconds += time.perf_counter() - began
        results = [row[1] for row in task.outbox]
        task.outbox.clear()
    return seconds, results


def rows(records: int, turn: int, call_us: float, service_ms: float) -> list[Row]:
    """Measure all steps.

    Args:
        records: the number of records; of the service, a tenth.
        turn: how many records a task has at hand at a time.
        call_us: the cost of one call, in microseconds.
        service_ms: the time of the service, in milliseconds.
    """

    def cost() -> None:
        until = time.perf_counter() + call_us / 1_000_000
        while time.perf_counter() < until:
            pass

    def one(value: str) -> str:
        cost()
        return value.upper()

    def many(values: list[str]) -> list[str]:
        cost()
        return [value.upper() for value in values]

    def table(values: Any) -> Any:
        cost()
        return values["value"].str.upper()

    def ask(value: str) -> str:
        time.sleep(service_ms / 1000)
        return value.upper()

    async def ask_async(value: str) -> str:
        await asyncio.sleep(service_ms / 1000)
        return value.upper()

    calls: dict[str, Step] = {
        f"map_values, {call_us:g} us per call": lambda stream: stream.map_values(one),
        "map_batches": lambda stream: stream.map_batches(many),
    }
    if importlib.util.find_spec("pandas") is not None:
        calls["map_batches, pandas"] = lambda stream: stream.map_batches(table, batch="pandas", value=mp.String)
    service: dict[str, Step] = {
        f"map_values, a service of {service_ms:g} ms": lambda stream: stream.map_values(ask),
        "map_values_async, 64 calls": lambda stream: stream.map_values_async(ask_async, max_concurrency=64),
    }
    return [*_compared(calls, records, turn), *_compared(service, max(1, records // 10), turn)]


def _compared(steps: dict[str, Step], records: int, turn: int) -> list[Row]:
    found: list[Row] = []
    expected: list[Any] | None = None
    for name, step in steps.items():
        seconds, results = measure(step, records, turn)
        expected = results if expected is None else expected
        if results != expected:
            raise AssertionError(f"{name} has other results than {next(iter(steps))}")
        rate = records / seconds
        found.append(Row(name, seconds, round(rate), rate / found[0].records_per_second if found else 1.0))
    return found


def main() -> None:
    """Print one table, and write it as JSON on request."""
    parser = argparse.ArgumentParser(prog="python -m bench.batches", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--turn", type=int, default=1_000, help="records that a task has at hand at a time")
    parser.add_argument("--call-us", type=float, default=20.0, help="cost of one call of the function, in microseconds")
    parser.add_argument("--service-ms", type=float, default=2.0, help="time of the service, in milliseconds")
    parser.add_argument("--json", type=Path, help="file for the table as JSON")
    given = parser.parse_args()
    table = rows(given.records, given.turn, given.call_us, given.service_ms)
    print(f"{'step':<42} {'records/s':>12} {'factor':>8}")
    for row in table:
        print(f"{row.step:<42} {row.records_per_second:>12,} {row.factor:>8.1f}")
    if given.json is not None:
        given.json.write_text(json.dumps([row._asdict() for row in table], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
