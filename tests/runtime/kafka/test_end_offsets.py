"""Periodic requests for end offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from millpond.runtime.kafka.end_offsets import EndOffsets
from millpond.runtime.offsets.metadata import Partition

LOG = Partition("log", 0)


class Source:
    """Answers with the next of its outcomes."""

    def __init__(self, *outcomes: int | Exception) -> None:
        self._outcomes = list(outcomes)
        self.without_answer = 0

    def ask_ends(self, partitions: Collection[Partition]) -> Mapping[Partition, Future[Any]]:
        future: Future[Any] = Future()
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(SimpleNamespace(offset=outcome))
        return dict.fromkeys(partitions, future)

    def unanswered(self) -> None:
        self.without_answer += 1


def test_end_that_cannot_be_read_is_asked_for_again() -> None:
    """An unexpected error of the thread that reads it does not end the worker."""
    ends: list[int] = []
    source = Source(RuntimeError("Consumer closed"), 7, 7)
    offsets = EndOffsets(source, 0.0)
    for _ in range(3):
        offsets.poll(lambda: {LOG: lambda _, end: ends.append(end)})
        if ends:
            break
    assert ends == [7]
    assert source.without_answer == 1
