"""The Processor API (KIP-820): user-defined processing with stores, punctuations and explicit forwarding."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, overload

import msgspec

from millpond.checks import check_function, kind_of, nearest
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.times import epoch_ms, moment

from .context import Cancellable, Headers, RecordContext, TaskId
from .headers import NO_HEADERS, check_headers
from .nodes import StoreBuilder
from .user_metrics import ProcessorMetrics

__all__ = (
    "Change",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyProcessorSupplier",
    "FixedKeyRecord",
    "Processor",
    "ProcessorContext",
    "ProcessorSupplier",
    "PunctuationType",
    "ReceivedRecord",
    "Record",
    "check_process",
)

K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
KIn_contra = TypeVar("KIn_contra", contravariant=True)
VIn_contra = TypeVar("VIn_contra", contravariant=True)
KOut_contra = TypeVar("KOut_contra", contravariant=True)
VOut_contra = TypeVar("VOut_contra", contravariant=True)
KIn = TypeVar("KIn")
VIn = TypeVar("VIn")
KOut = TypeVar("KOut")
VOut = TypeVar("VOut")
K = TypeVar("K")
S = TypeVar("S")


class PunctuationType(enum.Enum):
    """The clock of a punctuation."""

    STREAM_TIME = "stream time"
    WALL_CLOCK_TIME = "wall-clock time"


def _check_timestamp(timestamp: object) -> None:
    if not isinstance(timestamp, int):
        raise TopologyError(f"The timestamp of a record is epoch milliseconds as an int, not {kind_of(timestamp)}.")
    if timestamp < 0:
        raise TopologyError(
            f"A record cannot have the negative timestamp {timestamp}; use epoch milliseconds, or the incoming "
            "record's with_value() to keep its timestamp."
        )


class Record(msgspec.Struct, Generic[K_co, V_co], frozen=True, gc=False):
    """A record between processors. It is immutable; `with_…` returns a changed copy."""

    key: K_co
    value: V_co
    timestamp: int
    """Epoch ms, not negative."""
    headers: Headers = NO_HEADERS
    """(name, bytes or None) pairs, never None. The list cannot be changed in place; `with_headers` takes a new one."""

    def __post_init__(self) -> None:
        timestamp = self.timestamp
        if timestamp.__class__ is not int or timestamp < 0:
            _check_timestamp(timestamp)

    @property
    def time(self) -> datetime:
        """`timestamp` as a datetime in UTC."""
        return moment(self.timestamp)

    def with_key(self, key: KOut) -> Record[KOut, V_co]:
        """Return the same record with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: VOut) -> Record[K_co, VOut]:
        """Return the same record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K_co, V_co]:
        """Return the same record with another timestamp, epoch ms.

        Raises:
            TopologyError: the timestamp is negative.
        """
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers | None) -> Record[K_co, V_co]:
        """Return the same record with other headers; None is an empty list.

        Raises:
            TopologyError: the headers are not a list of pairs of a name and bytes or None.
        """
        return Record(self.key, self.value, self.timestamp, NO_HEADERS if headers is None else check_headers(headers))


class Change(NamedTuple):
    """A change of a table's row, the value of a record between nodes of tables, as a `ProcessorWrapper` sees it."""

    new: Any
    """The new value; None if the row is deleted."""
    old: Any
    """The old value; None if there was none, or if no node below needs it."""


class FixedKeyRecord(msgspec.Struct, Generic[K_co, V_co], frozen=True, gc=False):
    """A record whose key cannot be changed, so that it stays in its partition."""

    key: K_co
    value: V_co
    timestamp: int
    headers: Headers = NO_HEADERS

    def __post_init__(self) -> None:
        timestamp = self.timestamp
        if timestamp.__class__ is not int or timestamp < 0:
            _check_timestamp(timestamp)

    @property
    def time(self) -> datetime:
        """`timestamp` as a datetime in UTC."""
        return moment(self.timestamp)

    def with_value(self, value: VOut) -> FixedKeyRecord[K_co, VOut]:
        """Return the same record with another value."""
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord[K_co, V_co]:
        """Return the same record with another timestamp, epoch ms.

        Raises:
            TopologyError: the timestamp is negative.
        """
        return FixedKeyRecord(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers | None) -> FixedKeyRecord[K_co, V_co]:
        """Return the same record with other headers; None is an empty list.

        Raises:
            TopologyError: the headers are not a list of pairs of a name and bytes or None.
        """
        return FixedKeyRecord(
            self.key, self.value, self.timestamp, NO_HEADERS if headers is None else check_headers(headers)
        )


class ReceivedRecord(FixedKeyRecord[Any, Any], frozen=True, gc=False):
    """A record that a FixedKeyProcessor may forward: one that it got, or a changed copy of one."""

    def with_value(self, value: Any) -> ReceivedRecord:
        """See `FixedKeyRecord`."""
        return ReceivedRecord(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> ReceivedRecord:
        """See `FixedKeyRecord`."""
        return ReceivedRecord(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers | None) -> ReceivedRecord:
        """See `FixedKeyRecord`."""
        return ReceivedRecord(
            self.key, self.value, self.timestamp, NO_HEADERS if headers is None else check_headers(headers)
        )


class _Context(Protocol):
    """The interface that both kinds of processors get."""

    @property
    def task_id(self) -> TaskId:
        """The id of the task that the processor runs in."""

    @property
    def application_id(self) -> str:
        """The application's id."""

    @property
    def config(self) -> Mapping[str, object]:
        """The application's settings by name."""

    @property
    def key_serde(self) -> Serde[Any] | None:
        """The default serde of keys, `default.key.serde`; None without one."""

    @property
    def value_serde(self) -> Serde[Any] | None:
        """The default serde of values, `default.value.serde`; None without one."""

    @property
    def state_dir(self) -> Path:
        """The task's own directory, for files such as a temporary index. It is made if it does not exist.

        What is in it is no state: it does not move with the task, and is not restored.
        """

    @property
    def metrics(self) -> ProcessorMetrics:
        """Metrics of the application's own, which the worker shows on `/metrics`."""

    def app_configs(self) -> dict[str, object]:
        """Return the application's settings by name, as a new dictionary; secrets stay hidden."""

    def app_configs_with_prefix(self, prefix: str) -> dict[str, object]:
        """Return the settings whose names begin with a prefix, by their names without it, such as `app.`."""

    def schedule(
        self,
        interval: timedelta,
        kind: PunctuationType,
        callback: Callable[[int], None],
        *,
        start: datetime | None = None,
    ) -> Cancellable:
        """Call a function at intervals of stream time or wall-clock time.

        Args:
            interval: at least 1 ms. In stream time, punctuations are due at multiples of the interval since the epoch,
                and the first with the first record; a restart or a move of the task repeats none. In wall-clock time,
                the first is due one interval from now. Missed punctuations are skipped.
            kind: the clock.
            callback: f(now in epoch ms); it may forward records and use stores. In stream time, now is the timestamp of
                the record that made it due, which is processed before the call.
            start: the moment of the first punctuation, from 1970 on, which the others follow at intervals; after it,
                the next of these moments is the first: with a start at any full hour and an interval of one hour, each
                worker calls at full hours, whenever it was started. Without a time zone, it is in UTC (KIP-1146).

        Returns:
            a handle that cancels the punctuation.

        Raises:
            TopologyError: an argument cannot be used.
        """

    def commit(self) -> None:
        """Ask for a commit after the current record."""

    @overload
    def get_state_store(self, name: str) -> Any: ...
    @overload
    def get_state_store(self, name: str, kind: type[S]) -> S: ...
    def get_state_store(self, name: str, kind: Any = None) -> Any:
        """Return a store that is connected to this processor, or a global store, which can only be read.

        Args:
            name: the store's name.
            kind: the store's class, such as `mp.KeyValueStore[str, int]`: type checkers know its methods then, and a
                store of another class is an error. None accepts every store.

        Raises:
            TopologyError: the store is not connected to this processor, or is of another class.
        """

    def record_metadata(self) -> RecordContext | None:
        """Return the source position of the current record; None in punctuations."""

    def current_system_time_ms(self) -> int:
        """Return wall-clock time in epoch ms."""

    def current_stream_time_ms(self) -> int:
        """Return the highest timestamp that the task has processed, in epoch ms; -1 if it has processed none."""


class ProcessorContext(_Context, Protocol[KOut_contra, VOut_contra]):
    """The interface for a Processor: forwards records, gives access to stores, schedules punctuations."""

    def forward(self, record: Record[KOut_contra, VOut_contra], child: str | None = None) -> None:
        """Send a record to all children, or to the one named `child`.

        Raises:
            TopologyError: the child does not exist.
        """


class FixedKeyProcessorContext(_Context, Protocol[KOut_contra, VOut_contra]):
    """The interface for a FixedKeyProcessor, which forwards only records that keep their keys."""

    def forward(self, record: FixedKeyRecord[KOut_contra, VOut_contra], child: str | None = None) -> None:
        """Send a record to all children, or to the one named `child`.

        Raises:
            TopologyError: the child does not exist, or the record is neither one that the processor got nor a copy of
                one by `with_value`, `with_timestamp` or `with_headers`.
        """


def punctuation_start(start: object, what: str) -> int | None:
    """Return the start of a schedule in epoch milliseconds; None without one.

    Args:
        start: what the user gave.
        what: who gave it, with a verb, for the message.

    Raises:
        TopologyError: it is no moment from 1970 on.
    """
    if start is None:
        return None
    if not isinstance(start, datetime):
        raise TopologyError(f"{what} with {kind_of(start)} as its start; give a datetime.")
    if (start_ms := epoch_ms(start)) < 0:
        raise TopologyError(f"{what} with a start of {start}; give a datetime of 1970 or later.")
    return start_ms


_METHODS = {"init": ("self", "context"), "process": ("self", "record"), "close": ("self",)}


def _check_methods(cls: type) -> None:
    """Check that the methods of a processor's class take the arguments that the runtime passes."""
    for name, arguments in _METHODS.items():
        method = inspect.getattr_static(cls, name)
        if inspect.isfunction(method):
            cure = f"write def {name}({', '.join(arguments)})"
            check_function(f"Processor {cls.__name__}", method, *arguments, cure=cure)


def check_process(cls: type) -> None:
    """Check that a processor's class has a method `process`.

    Raises:
        TopologyError: the class has no `process` of its own.
    """
    if getattr(cls, "process", None) in (Processor.process, FixedKeyProcessor.process):
        near = nearest("process", [name for name in vars(cls) if name not in _METHODS])
        meant = f" in place of {near}" if near else ""
        raise TopologyError(f"Processor {cls.__name__} has no process(); write def process(self, record){meant}.")


class Processor(Generic[KIn_contra, VIn_contra, KOut, VOut]):
    """A processor of records, one at a time. A supplier makes one instance per task.

    Defining a subclass raises TopologyError if `init`, `process` or `close` take other arguments or are `async def`.
    """

    stores: ClassVar[Sequence[StoreBuilder]] = ()
    """Builders of stores that are added to the topology and connected to this processor (KIP-401)."""

    context: ProcessorContext[KOut, VOut]
    """Set before `init` is called."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _check_methods(cls)

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Prepare for records; called once, before the first record. `self.context` is this context already."""
        self.context = context

    def process(self, record: Record[KIn_contra, VIn_contra]) -> None:
        """Process a record; called for each record."""
        raise NotImplementedError(f"{type(self).__name__} needs a process() method")

    def close(self) -> None:
        """Release resources; called once, when the task closes. Stores are still open."""


class FixedKeyProcessor(Generic[KIn_contra, VIn_contra, VOut]):
    """A processor of records, one at a time, that keeps their keys. A supplier makes one instance per task.

    Defining a subclass raises TopologyError if `init`, `process` or `close` take other arguments or are `async def`.
    """

    stores: ClassVar[Sequence[StoreBuilder]] = ()
    """Builders of stores that are added to the topology and connected to this processor (KIP-401)."""

    context: FixedKeyProcessorContext[KIn_contra, VOut]
    """Set before `init` is called."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _check_methods(cls)

    def init(self, context: FixedKeyProcessorContext[KIn_contra, VOut]) -> None:
        """Prepare for records; called once, before the first record. `self.context` is this context already."""
        self.context = context

    def process(self, record: FixedKeyRecord[KIn_contra, VIn_contra]) -> None:
        """Process a record; called for each record."""
        raise NotImplementedError(f"{type(self).__name__} needs a process() method")

    def close(self) -> None:
        """Release resources; called once, when the task closes. Stores are still open."""


ProcessorSupplier: TypeAlias = Callable[[], Processor[KIn, VIn, KOut, VOut]]
"""f() -> a new Processor; often the class itself. Builders in its attribute `stores` are added and connected."""

FixedKeyProcessorSupplier: TypeAlias = Callable[[], FixedKeyProcessor[K, VIn, VOut]]
"""f() -> a new FixedKeyProcessor; often the class itself. Builders in its attribute `stores` are added too."""
