"""The bodies of map_values_async and process_async: coroutines for the records that a task has at hand.

The calls for one key run one after the other, those for different keys together, up to a limit. Results are forwarded
in the order of the records, when all calls of the batch have ended: so nothing is in flight when the task commits.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from millpond.checks import kind_of
from millpond.topology import FixedKeyRecord, Forward, NodeContext, Record, StreamForward
from millpond.topology.headers import NO_HEADERS, RecordHeaders

from .event_loop import run_in_loop
from .held import HeldRecord, HeldRecords

__all__ = ("MapValuesAsync", "ProcessAsync")

#: More records of one batch are not held: their results would only take memory.
_MAX_HELD = 10_000


class _Outcome(NamedTuple):
    """The end of one call."""

    result: Any
    error: BaseException | None
    """The exception that it raised; None if it returned. SystemExit is raised in the task: in the loop of the calls it
    would end only the loop, and the task would wait for ever."""


@dataclass(frozen=True)
class _Calls:
    """The calls of one step."""

    max_concurrency: int
    timeout_s: float | None
    """The time of one call; None for no limit."""

    async def run(self, call: Callable[[HeldRecord], Awaitable[Any]], records: Sequence[HeldRecord]) -> list[_Outcome]:
        """Return the outcome of each record's call."""
        results = [_Outcome(None, RuntimeError("the call did not end"))] * len(records)
        free = asyncio.Semaphore(self.max_concurrency)
        keys: dict[Any, list[int]] = defaultdict(list)
        for number, record in enumerate(records):
            keys[_identity(record.key, number)].append(number)

        async def one_key(numbers: list[int]) -> None:
            for number in numbers:
                async with free:
                    results[number] = await self._result(call, records[number])

        async with asyncio.TaskGroup() as group:
            for numbers in keys.values():
                group.create_task(one_key(numbers))
        return results

    async def _result(self, call: Callable[[HeldRecord], Awaitable[Any]], record: HeldRecord) -> _Outcome:
        limit = asyncio.timeout(self.timeout_s)
        try:
            async with limit:
                return _Outcome(await call(record), None)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return _Outcome(None, RuntimeError("the call was cancelled"))
        except TimeoutError as error:
            late = limit.expired()
            return _Outcome(None, TimeoutError(f"the call took longer than {self.timeout_s:g} s") if late else error)
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - user code raises anything
            return _Outcome(None, error)


def _identity(key: Any, number: int) -> Any:
    """Return a key by which equal keys are found; records without a key have no order to keep."""
    if key is None:
        return number, None
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return type(key), key


def _bind(
    calls: _Calls,
    node: NodeContext,
    call: Callable[[HeldRecord], Awaitable[Any]],
    send: Callable[[HeldRecords, HeldRecord, Any], None],
) -> StreamForward:
    held = HeldRecords(node)

    def end() -> None:
        records = held.take()
        if not records:
            return
        outcomes = run_in_loop(calls.run(call, records), f"node '{node.name}' of task {node.task.task_id}")
        for record, outcome in zip(records, outcomes, strict=True):
            if isinstance(outcome.error, Exception):
                held.failed(record, outcome.error)
            elif outcome.error is not None:
                raise outcome.error
            else:
                send(held, record, outcome.result)

    def hold(key: Any, value: Any, timestamp: int) -> None:
        if held.add(key, value, timestamp) >= _MAX_HELD:
            end()

    node.on_batch_end(end)
    return hold


@dataclass(frozen=True)
class MapValuesAsync:
    """A body that replaces the value by the result of `await mapper(value)`, or `await mapper(key, value)`."""

    mapper: Callable[..., Awaitable[Any]]
    with_key: bool
    max_concurrency: int
    timeout_s: float | None
    reads_origin: ClassVar[bool] = True

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        mapper, forward = self.mapper, node.forward

        def call(record: HeldRecord) -> Awaitable[Any]:
            return mapper(record.key, record.value) if self.with_key else mapper(record.value)

        def send(held: HeldRecords, record: HeldRecord, result: Any) -> None:
            held.run(record, forward, record.key, result, record.timestamp)

        return _bind(_Calls(self.max_concurrency, self.timeout_s), node, call, send)


@dataclass(frozen=True)
class ProcessAsync:
    """A body that forwards the records that `await function(record)` returns."""

    function: Callable[[Any], Awaitable[Any]]
    max_concurrency: int
    timeout_s: float | None
    reads_origin: ClassVar[bool] = True

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        function, forward, task = self.function, node.forward, node.task

        async def call(record: HeldRecord) -> list[Any]:
            headers = RecordHeaders(record.headers) if record.headers else NO_HEADERS
            return _records(await function(Record(record.key, record.value, record.timestamp, headers)))

        def forward_with_headers(record: Any) -> None:
            before, task.headers = task.headers, record.headers or None
            try:
                forward(record.key, record.value, record.timestamp)
            finally:
                task.headers = before

        def send(held: HeldRecords, record: HeldRecord, result: list[Any]) -> None:
            sending: Forward = forward_with_headers
            for each in result:
                held.run(record, sending, each)

        return _bind(_Calls(self.max_concurrency, self.timeout_s), node, call, send)


def _records(result: Any) -> list[Any]:
    found = [] if result is None else [result] if isinstance(result, Record) else result
    if not isinstance(found, Iterable):
        raise TypeError(f"process_async() needs a record or an iterable of records, not {kind_of(result)}")
    records = list(found)
    for record in records:
        if not isinstance(record, Record | FixedKeyRecord):
            raise TypeError(f"process_async() needs a record or an iterable of records, which has {kind_of(record)}")
    return records
