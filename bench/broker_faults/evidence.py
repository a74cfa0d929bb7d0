"""What is wrong in the topics of a run, with offsets: records of the input that came twice, results that did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.failover.records import expected_count, parse
from tests.support import kafka


def input_faults(bootstrap: str, topic: str) -> list[str]:
    """Return a sentence for each record of the input that does not follow the one before it."""
    return [
        f"input {partition}@{offset}: record {number} follows {before}"
        for partition, offset, number, before in _numbers(
            (row.partition, row.offset, int(_text(row).split()[0])) for row in kafka.read(bootstrap, topic)
        )
    ]


def result_faults(bootstrap: str, topic: str, file: Path) -> list[str]:
    """Return a sentence for each result that does not follow the one before it, or whose count is wrong.

    Args:
        bootstrap: addresses of brokers.
        topic: the output topic.
        file: gets all results, one line each: partition, offset and value.
    """
    rows = kafka.read(bootstrap, topic)
    file.write_text("".join(f"{row.partition}\t{row.offset}\t{_text(row)}\n" for row in rows))
    found = [(row.partition, row.offset, parse(row.partition, _text(row).encode(), 0)) for row in rows]
    wrong = [
        f"result {partition}@{offset}: record {number} follows {before}"
        for partition, offset, number, before in _numbers((part, at, result.number) for part, at, result in found)
    ]
    wrong += [
        f"result {partition}@{offset}: record {result.number} has count {result.total}, "
        f"expected {expected_count(result.number)} ({result.owner})"
        for partition, offset, result in found
        if result.total != expected_count(result.number)
    ]
    return wrong


def _numbers(rows: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int, int]]:
    last: dict[int, int] = {}
    for partition, offset, number in rows:
        before = last.get(partition, -1)
        if number != before + 1:
            yield partition, offset, number, before
        last[partition] = number


def _text(row: kafka.Row) -> str:
    assert row.value is not None
    return row.value.decode()
