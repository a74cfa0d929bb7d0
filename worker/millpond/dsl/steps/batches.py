"""The part of KStream beyond Kafka Streams: steps over the records that a task has at hand."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from millpond.calls import checked
from millpond.checks import check_function, kind_of
from millpond.dsl.operators.batches.asynchronous import MapValuesAsync, ProcessAsync
from millpond.dsl.operators.batches.formats import BatchFormat, batch_format
from millpond.dsl.operators.batches.mapping import MapBatches
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.topology import FixedKeyRecord, Record

if TYPE_CHECKING:
    from millpond.dsl.kstream import KStream

__all__ = ("BatchSteps",)

K = TypeVar("K")
V = TypeVar("V")
KR = TypeVar("KR")
VR = TypeVar("VR")

_MAX_ROWS = 1_000_000
_MAX_CONCURRENCY = 10_000


@checked
class BatchSteps(Generic[K, V]):
    """The steps of a stream that take several records together. Kafka Streams has none of them."""

    @overload
    def map_batches(
        self,
        mapper: Callable[[list[V]], Sequence[VR]],
        *,
        batch: Literal["values"] = "values",
        max_rows: int = 1_000,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def map_batches(
        self,
        mapper: Callable[[list[FixedKeyRecord[K, V]]], Sequence[VR]],
        *,
        batch: Literal["records"],
        max_rows: int = 1_000,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def map_batches(
        self,
        mapper: Callable[[Any], Any],
        *,
        batch: Literal["arrow", "pandas"],
        max_rows: int = 1_000,
        value: Serde[VR],
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def map_batches(
        self,
        mapper: Callable[[Any], Any],
        *,
        batch: BatchFormat = "values",
        max_rows: int = 1_000,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Replace the values of the records that a task has at hand by the rows of `mapper(batch)`.

        The rows of the result belong to those of the batch, in order; keys, timestamps and headers are kept. A batch
        has the records of one task between two polls, at most `max_rows`; it never waits for more, and is complete
        before each commit. If the function raises, it is called again for each row alone, and the rows that fail then
        go to the processing exception handler: so it should have no effects of its own.

        Args:
            mapper: f(batch) -> one value for each row.
            batch: `values`: a list of values; `records`: a list of records; `arrow`: a `pyarrow.Table`; `pandas`: a
                `pandas.DataFrame`. A table has a column for each field of the values' type, which their serde says, or
                the column `value`; and the columns `_key` and `_timestamp`. Rows of a table as the result are dicts.
            max_rows: the most rows of a batch.
            value: serde of the results.
            name: name of the node.

        Example:
            >>> lengths = lines.map_batches(lambda batch: [len(line) for line in batch], value=mp.Long)
            >>> lengths.to("lengths")
        """
        check_function("map_batches()", mapper, "batch")
        if type(max_rows) is not int or not 1 <= max_rows <= _MAX_ROWS:
            raise TopologyError(f"map_batches() needs max_rows= from 1 to {_MAX_ROWS:,}, not {kind_of(max_rows)}.")
        own: Any = self
        form = batch_format(batch, own._key, own._value)  # noqa: SLF001 - a part of KStream
        body = MapBatches(mapper, form.batch, form.rows, max_rows)
        stream: KStream[K, Any] = own._next(body, "KSTREAM-MAPBATCHES-", name, own._key, value)  # noqa: SLF001 - a part of KStream
        return stream

    @overload
    def map_values_async(
        self,
        mapper: Callable[[V], Awaitable[VR]],
        *,
        with_key: Literal[False] = False,
        max_concurrency: int = 64,
        timeout: timedelta | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def map_values_async(
        self,
        mapper: Callable[[K, V], Awaitable[VR]],
        *,
        with_key: Literal[True],
        max_concurrency: int = 64,
        timeout: timedelta | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def map_values_async(  # noqa: PLR0913 - options are keywords
        self,
        mapper: Callable[..., Awaitable[Any]],
        *,
        with_key: bool = False,
        max_concurrency: int = 64,
        timeout: timedelta | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Replace each value by the result of a coroutine, such as a call of a service.

        The calls for the records that a task has at hand run together; those for one key one after the other. Results
        are forwarded in the order of the records, and no call is in flight when the task commits. A call that raises,
        or takes too long, goes to the processing exception handler with its record. After a failure of the worker,
        records are processed again: results are committed once, but a service may be called twice.

        Args:
            mapper: `async def` f(value), or f(key, value) with `with_key`. All of them run in one event loop.
            with_key: whether the function gets the key first.
            max_concurrency: the most calls of one task at the same time.
            timeout: the longest time of one call; None for no limit.
            value: serde of the results.
            name: name of the node.

        Example:
            >>> async def translate(line: str) -> str:
            ...     return line.upper()
            >>> lines.map_values_async(translate, max_concurrency=16, value=mp.String).to("translated")
        """
        what = "map_values_async()"
        _check_async(what, mapper, *(("key", "value") if with_key else ("value",)))
        body = MapValuesAsync(mapper, with_key, _concurrency(what, max_concurrency), _seconds(what, timeout))
        own: Any = self
        stream: KStream[K, Any] = own._next(body, "KSTREAM-MAPVALUES-ASYNC-", name, own._key, value)  # noqa: SLF001 - a part of KStream
        return stream

    def process_async(  # noqa: PLR0913 - options are keywords
        self,
        function: Callable[[Record[K, V]], Awaitable[Record[KR, VR] | Iterable[Record[KR, VR]] | None]],
        *,
        max_concurrency: int = 64,
        timeout: timedelta | None = None,
        key: Serde[KR] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Replace each record by the records that a coroutine returns: none, one or several, also with other keys.

        See `map_values_async`. The function has no stores; `process()` has.

        Args:
            function: `async def` f(record) -> a record, an iterable of records, or None.
            max_concurrency: the most calls of one task at the same time.
            timeout: the longest time of one call; None for no limit.
            key: serde of the keys of the results.
            value: serde of the values of the results.
            name: name of the node.

        Example:
            >>> async def score(record: mp.Record[str, str]) -> mp.Record[str, int]:
            ...     return record.with_value(len(record.value))
            >>> lines.process_async(score, key=mp.String, value=mp.Long).to("scores")
        """
        what = "process_async()"
        _check_async(what, function, "record")
        body = ProcessAsync(function, _concurrency(what, max_concurrency), _seconds(what, timeout))
        own: Any = self
        stream: KStream[KR, VR] = own._next(body, "KSTREAM-PROCESS-ASYNC-", name, key, value, rekeyed=True)  # noqa: SLF001 - a part of KStream
        return stream


def _check_async(what: str, function: Any, *arguments: str) -> None:
    called = getattr(type(function), "__call__", None)  # noqa: B004 - an object whose call is an async def
    if not callable(function):
        raise TopologyError(f"{what} needs an async def of ({', '.join(arguments)}), not {kind_of(function)}.")
    if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(called):
        raise TopologyError(
            f"{what} is given {kind_of(function)}, which is not an async def; write async def, or use "
            f"{what.replace('_async', '')}."
        )
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        raise TopologyError(
            f"{what} calls {kind_of(function)} with ({', '.join(arguments)}), which it does not take; give it "
            f"{len(arguments)} parameter{'s' if len(arguments) > 1 else ''}."
        ) from None


def _concurrency(what: str, given: object) -> int:
    if type(given) is not int or not 1 <= given <= _MAX_CONCURRENCY:
        raise TopologyError(f"{what} needs max_concurrency= from 1 to {_MAX_CONCURRENCY:,}, not {kind_of(given)}.")
    return given


def _seconds(what: str, timeout: object) -> float | None:
    if timeout is None:
        return None
    if not isinstance(timeout, timedelta) or timeout <= timedelta():
        raise TopologyError(f"{what} needs a positive timedelta as its timeout, not {kind_of(timeout)}.")
    return timeout.total_seconds()
