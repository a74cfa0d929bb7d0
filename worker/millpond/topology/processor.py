"""The Processor API: arbitrary processing with stores, punctuation and explicit forwarding."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from millpond.checks import check_function, kind_of, nearest
from millpond.errors import TopologyError

from .context import Cancellable, Headers, RecordContext, TaskId
from .headers import NO_HEADERS, check_headers
from .nodes import StoreBuilder

__all__ = (
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

K = TypeVar("K")
V = TypeVar("V")
KIn = TypeVar("KIn")
VIn = TypeVar("VIn")
KOut = TypeVar("KOut")
VOut = TypeVar("VOut")


class PunctuationType(enum.Enum):
    """Which clock drives a punctuation."""

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


class Record(msgspec.Struct, Generic[K, V], frozen=True, gc=False):
    """A record between processors. Immutable: `with_…` gives a changed copy."""

    key: K
    value: V
    timestamp: int
    """Epoch ms, not negative."""
    headers: Headers = NO_HEADERS
    """Never None in a record that a processor is given. Not changed in place: give `with_headers` a new list."""

    def __post_init__(self) -> None:
        timestamp = self.timestamp
        if timestamp.__class__ is not int or timestamp < 0:
            _check_timestamp(timestamp)

    def with_key(self, key: KOut) -> Record[KOut, V]:
        """The same record under another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: VOut) -> Record[K, VOut]:
        """The same record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        """The same record at another time, epoch ms.

        Raises:
            TopologyError: the timestamp is negative.
        """
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers | None) -> Record[K, V]:
        """The same record with other headers; None is none.

        Raises:
            TopologyError: they are no list of pairs of a name and bytes or None.
        """
        return Record(self.key, self.value, self.timestamp, NO_HEADERS if headers is None else check_headers(headers))


class FixedKeyRecord(msgspec.Struct, Generic[K, V], frozen=True, gc=False):
    """A record whose key cannot be changed, so that the data stay where they are partitioned."""

    key: K
    value: V
    timestamp: int
    headers: Headers = NO_HEADERS

    def __post_init__(self) -> None:
        timestamp = self.timestamp
        if timestamp.__class__ is not int or timestamp < 0:
            _check_timestamp(timestamp)

    def with_value(self, value: VOut) -> FixedKeyRecord[K, VOut]:
        """The same record with another value."""
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord[K, V]:
        """The same record at another time, epoch ms.

        Raises:
            TopologyError: the timestamp is negative.
        """
        return FixedKeyRecord(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers | None) -> FixedKeyRecord[K, V]:
        """The same record with other headers; None is none.

        Raises:
            TopologyError: they are no list of pairs of a name and bytes or None.
        """
        return FixedKeyRecord(
            self.key, self.value, self.timestamp, NO_HEADERS if headers is None else check_headers(headers)
        )


class ReceivedRecord(FixedKeyRecord[Any, Any], frozen=True, gc=False):
    """A record that a FixedKeyProcessor is given, or a changed copy of one: only these have keys that it may forward."""

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
    """What both kinds of processors may ask of their task."""

    @property
    def task_id(self) -> TaskId:
        """Which task the processor runs in."""

    @property
    def application_id(self) -> str:
        """The application's id."""

    @property
    def config(self) -> Mapping[str, object]:
        """The application's settings by name."""

    def schedule(self, interval: timedelta, kind: PunctuationType, callback: Callable[[int], None]) -> Cancellable:
        """Call `callback(now_ms)` every `interval`.

        Stream-time punctuations are aligned to 0 and fire first as soon as stream time is known; wall-clock ones
        fire first one interval from now. Firings that were missed are not made up for.

        Raises:
            TopologyError: the interval is shorter than a millisecond.
        """

    def commit(self) -> None:
        """Ask for a commit as soon as the record at hand is through."""

    def get_state_store(self, name: str) -> Any:
        """A store connected to this processor, or a global store, which can only be read.

        Raises:
            TopologyError: the store is not connected to this processor.
        """

    def record_metadata(self) -> RecordContext | None:
        """Where the record at hand came from; None inside punctuators."""

    def current_system_time_ms(self) -> int:
        """Wall-clock time, epoch ms."""

    def current_stream_time_ms(self) -> int:
        """Highest timestamp the task has processed, epoch ms; -1 when unknown."""


class ProcessorContext(_Context, Protocol[KOut, VOut]):
    """What a processor may do."""

    def forward(self, record: Record[KOut, VOut], child: str | None = None) -> None:
        """Send a record to all children, or to the one called `child`.

        Raises:
            TopologyError: there is no such child.
        """


class FixedKeyProcessorContext(_Context, Protocol[K, VOut]):
    """What a processor may do that must keep the key."""

    def forward(self, record: FixedKeyRecord[K, VOut], child: str | None = None) -> None:
        """Send a record to all children, or to the one called `child`.

        Raises:
            TopologyError: there is no such child, or the record is not one that the processor was given, nor a copy of
                one that `with_value`, `with_timestamp` or `with_headers` made.
        """


_METHODS = {"init": ("self", "context"), "process": ("self", "record"), "close": ("self",)}


def _check_methods(cls: type) -> None:
    """Refuse a processor's class whose methods cannot be called as they will be."""
    for name, arguments in _METHODS.items():
        method = inspect.getattr_static(cls, name)
        if inspect.isfunction(method):
            cure = f"write def {name}({', '.join(arguments)})"
            check_function(f"Processor {cls.__name__}", method, *arguments, cure=cure)


def check_process(cls: type) -> None:
    """Refuse a processor's class that does not say what it does with a record.

    Raises:
        TopologyError: it has no `process` of its own.
    """
    if getattr(cls, "process", None) in (Processor.process, FixedKeyProcessor.process):
        near = nearest("process", [name for name in vars(cls) if name not in _METHODS])
        meant = f" in place of {near}" if near else ""
        raise TopologyError(f"Processor {cls.__name__} has no process(); write def process(self, record){meant}.")


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """Processes records one at a time. A supplier makes one instance per task.

    Making a subclass raises TopologyError when `init`, `process` or `close` take other arguments or are `async def`.
    """

    #: Builders of the stores this processor brings along; they are added to the topology and connected to it.
    stores: ClassVar[Iterable[StoreBuilder]] = ()

    context: ProcessorContext[KOut, VOut]
    """Set before `init` is called."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _check_methods(cls)

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Called once, before the first record; `self.context` is the same context."""
        self.context = context

    def process(self, record: Record[KIn, VIn]) -> None:
        """Called for each record."""
        raise NotImplementedError(f"{type(self).__name__} needs a process() method")

    def close(self) -> None:
        """Called once, when the task closes; stores are still open."""


class FixedKeyProcessor(Generic[K, VIn, VOut]):
    """Processes records one at a time and keeps their keys. A supplier makes one instance per task.

    Making a subclass raises TopologyError when `init`, `process` or `close` take other arguments or are `async def`.
    """

    #: Builders of the stores this processor brings along; they are added to the topology and connected to it.
    stores: ClassVar[Iterable[StoreBuilder]] = ()

    context: FixedKeyProcessorContext[K, VOut]
    """Set before `init` is called."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _check_methods(cls)

    def init(self, context: FixedKeyProcessorContext[K, VOut]) -> None:
        """Called once, before the first record; `self.context` is the same context."""
        self.context = context

    def process(self, record: FixedKeyRecord[K, VIn]) -> None:
        """Called for each record."""
        raise NotImplementedError(f"{type(self).__name__} needs a process() method")

    def close(self) -> None:
        """Called once, when the task closes; stores are still open."""


#: Makes a processor; often the class itself. What it has in an attribute `stores` is connected automatically.
ProcessorSupplier: TypeAlias = Callable[[], Processor[KIn, VIn, KOut, VOut]]
#: Makes a fixed-key processor; often the class itself.
FixedKeyProcessorSupplier: TypeAlias = Callable[[], FixedKeyProcessor[K, VIn, VOut]]
