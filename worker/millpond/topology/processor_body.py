"""The body of user processors, which connects plain calls with the Processor API."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from millpond.checks import check_function, kind_of
from millpond.errors import TopologyError
from millpond.serdes import Serde

from .app_configs import with_prefix
from .context import Cancellable, Forward, NodeContext, RecordContext, TaskId
from .headers import NO_HEADERS, RecordHeaders, check_headers
from .nodes import StoreBuilder
from .processor import (
    Change,
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    PunctuationType,
    ReceivedRecord,
    Record,
    check_process,
    punctuation_start,
)
from .read_only import ReadOnlyStore
from .store_kinds import check_kind
from .user_metrics import ProcessorMetrics

__all__ = ("ProcessorBody", "supplied_stores")

_MILLISECOND = timedelta(milliseconds=1)


def supplied_stores(supplier: object) -> tuple[StoreBuilder, ...]:
    """Return the builders in a supplier's attribute (or method) `stores` (KIP-401)."""
    stores = getattr(supplier, "stores", ())
    given: Iterable[StoreBuilder] = stores() if callable(stores) else stores
    return tuple(given)


@dataclass(frozen=True)
class ProcessorBody:
    """A body that runs one user processor per task."""

    supplier: Callable[[], Processor[Any, Any, Any, Any] | FixedKeyProcessor[Any, Any, Any]]
    reads_origin: ClassVar[bool] = True

    def bind(self, node: NodeContext) -> Forward:
        """Return the function that passes records to the task's processor; the supplier makes a new one.

        Raises:
            TopologyError: the supplier does not make a processor.
        """
        return self._bind(node)

    def _bind(self, node: NodeContext, *, from_table: bool = False, table: bool = False) -> Forward:
        """See `bind`; between tables, the value of a record is a pair of the new and the old value."""
        processor = self.supplier()
        context = _ChangeContext(node) if table else _ProcessorContext(node)
        if isinstance(processor, FixedKeyProcessor):
            context = _FixedKeyContext(node)
            make: Callable[..., Any] = ReceivedRecord
        elif isinstance(processor, Processor):
            make = Record
        else:
            raise TopologyError(
                f"The supplier of processor '{node.name}' made a {type(processor).__name__}; "
                "it has to make a new Processor or FixedKeyProcessor each time it is called."
            )
        check_process(type(processor))
        # Before init(), which may use it, and which a subclass may override without calling the original.
        with contextlib.suppress(AttributeError):  # a class may have slots, or a property of this name
            processor.context = context
        task, failed, process = node.task, node.failed, processor.process

        def init() -> None:
            nonlocal process
            processor.init(context)
            process = processor.process
            node.on_close(processor.close)

        def run(key: Any, value: Any, timestamp: int) -> None:
            headers = task.headers
            before, task.timestamp = task.timestamp, timestamp
            try:
                process(make(key, value, timestamp, RecordHeaders(headers) if headers else NO_HEADERS))
            except Exception as error:  # noqa: BLE001 - user code raises anything
                failed(error, key, value, timestamp)
            finally:
                task.timestamp = before

        node.on_init(init)
        if from_table:
            return lambda key, new, old, timestamp: run(key, Change(new, old), timestamp)
        return run


class _ProcessorContext:
    """The context of the Processor API for a node of one task."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._task = node.task
        self._forward = node.forward

    @property
    def task_id(self) -> TaskId:
        return self._task.task_id

    @property
    def application_id(self) -> str:
        return self._task.application_id

    @property
    def config(self) -> Mapping[str, object]:
        return self._task.config

    @property
    def key_serde(self) -> Serde[Any] | None:
        return self._task.key_serde

    @property
    def value_serde(self) -> Serde[Any] | None:
        return self._task.value_serde

    @property
    def state_dir(self) -> Path:
        return self._task.state_dir()

    @property
    def metrics(self) -> ProcessorMetrics:
        return self._task.metrics.of_node(self._node.name)

    def app_configs(self) -> dict[str, object]:
        return dict(self._task.config)

    def app_configs_with_prefix(self, prefix: str) -> dict[str, object]:
        return with_prefix(self._task.config, prefix)

    def forward(self, record: Any, child: str | None = None) -> None:
        try:
            headers = record.headers
        except AttributeError:
            raise TopologyError(
                f"Processor '{self._node.name}' has to forward a record, not {kind_of(record)}; give forward() one, "
                "such as record.with_value(…)."
            ) from None
        send = self._forward if child is None else self._child(child)
        task = self._task
        before = task.headers
        if headers is NO_HEADERS:
            headers = None
        if headers is before:
            send(record.key, record.value, record.timestamp)
            return
        task.headers = headers if headers is None or type(headers) is RecordHeaders else check_headers(headers)
        try:
            send(record.key, record.value, record.timestamp)
        finally:
            task.headers = before

    def _child(self, name: str) -> Forward:
        return self._node.child(name)

    def schedule(
        self,
        interval: timedelta,
        kind: PunctuationType,
        callback: Callable[[int], None],
        *,
        start: datetime | None = None,
    ) -> Cancellable:
        name = self._node.name
        if not isinstance(interval, timedelta):
            raise TopologyError(
                f"Processor '{name}' schedules a punctuation with {kind_of(interval)} as its interval; give a "
                "timedelta, such as timedelta(seconds=10)."
            )
        if not isinstance(kind, PunctuationType):
            raise TopologyError(
                f"Processor '{name}' schedules a punctuation with {kind_of(kind)} as its clock; give "
                "PunctuationType.STREAM_TIME or PunctuationType.WALL_CLOCK_TIME."
            )
        check_function(f"Processor '{name}'", callback, "now_ms")
        interval_ms = interval // _MILLISECOND
        if interval_ms < 1:
            raise TopologyError(
                f"Processor '{self._node.name}' schedules a punctuation every {interval}; "
                "the interval has to be at least a millisecond."
            )
        start_ms = punctuation_start(start, f"Processor '{name}' schedules a punctuation")
        return self._node.schedule(interval_ms, kind is PunctuationType.WALL_CLOCK_TIME, callback, start_ms)

    def commit(self) -> None:
        self._task.request_commit()

    def get_state_store(self, name: str, kind: Any = None) -> Any:
        found = self._node.store(name)
        store = getattr(found, "of_user", found)
        if kind is not None:
            check_kind(f"Processor '{self._node.name}'", name, store, kind)
        return ReadOnlyStore(getattr(found, "of_reader", store)) if self._node.is_read_only(name) else store

    def record_metadata(self) -> RecordContext | None:
        task = self._task
        if task.topic is None:
            return None
        return RecordContext(task.topic, task.partition, task.offset, task.timestamp, task.headers)

    def current_system_time_ms(self) -> int:
        return self._task.now_ms()

    def current_stream_time_ms(self) -> int:
        return self._task.stream_time


class _ChangeContext(_ProcessorContext):
    """A context that forwards changes of a table, whose records have a pair of new and old value."""

    def __init__(self, node: NodeContext) -> None:
        super().__init__(node)
        self._forward = _unpacking(node.forward)

    def _child(self, name: str) -> Forward:
        return _unpacking(self._node.child(name))


def _unpacking(send: Forward) -> Forward:
    return lambda key, change, timestamp: send(key, *change, timestamp)


class _FixedKeyContext(_ProcessorContext):
    """A context that forwards only records that keep the keys of received ones."""

    def forward(self, record: Any, child: str | None = None) -> None:
        if isinstance(record, Record | FixedKeyRecord) and type(record) is not ReceivedRecord:
            raise TopologyError(
                f"Processor '{self._node.name}' forwards a {type(record).__name__} that it made itself, but a "
                "FixedKeyProcessor keeps the keys of the records that it gets; forward record.with_value(…), or use "
                "process() with a Processor."
            )
        super().forward(record, child)
