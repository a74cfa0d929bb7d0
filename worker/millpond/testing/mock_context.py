"""The MockProcessorContext: a context for one processor, without a topology, a task or a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from millpond import topology
from millpond.checks import check_function, kind_of
from millpond.errors import TopologyError
from millpond.runtime.config.model import Config
from millpond.runtime.processing.context import TaskContext
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.handlers import Handlers
from millpond.serdes import Serde
from millpond.state import MemoryBackend
from millpond.state.builders import StoreBuilder
from millpond.topology import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Headers,
    Processor,
    PunctuationType,
    Record,
    RecordContext,
    TaskId,
)
from millpond.topology.app_configs import with_prefix
from millpond.topology.processor import punctuation_start
from millpond.topology.store_kinds import check_kind
from millpond.topology.user_metrics import ProcessorMetrics, UserMetrics

__all__ = ("CapturedForward", "CapturedPunctuator", "MockProcessorContext")

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")
P = TypeVar("P", bound=Processor[Any, Any, Any, Any] | FixedKeyProcessor[Any, Any, Any])

_FIRST_TASK = TaskId(0, 0)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class CapturedForward(Generic[K, V]):
    """A record that a processor has forwarded."""

    record: Record[K, V] | FixedKeyRecord[K, V]
    """The record."""
    child_name: str | None = None
    """The child it was sent to; None for all children."""


@dataclass(eq=False)
class CapturedPunctuator:
    """A punctuation that a processor has scheduled. It is called only by the test: `scheduled.punctuator(now_ms)`."""

    interval: timedelta
    """The interval."""
    kind: PunctuationType
    """The clock."""
    punctuator: Callable[[int], None]
    """The processor's function of the time in epoch ms."""
    cancelled: bool = False
    """Whether the processor has cancelled it."""
    start: datetime | None = None
    """The moment of the first one, if the processor has given it."""

    def cancel(self) -> None:
        """Cancel the punctuation."""
        self.cancelled = True


class MockProcessorContext(Generic[K, V]):
    """A context that keeps what a processor forwards, schedules and commits, and lets the test set everything else.

    For processors that are tested alone. It has no clock and calls no punctuation; the `TopologyTestDriver` runs
    processors with both. Type parameters: key and value of forwarded records.

    Args:
        config: settings by name, as in a configuration file, or a `Config`. `bootstrap.servers` is not needed.
        task_id: the id of the task.
        state_dir: the directory of the task's own files; None if the processor has none.

    Raises:
        ConfigError: a setting cannot be used.

    Example:
        >>> import millpond as mp
        >>> class Shout(mp.Processor[str, str, str, str]):
        ...     def process(self, record):
        ...         self.context.forward(record.with_value(record.value.upper()))
        >>> context = mp.testing.MockProcessorContext[str, str]()
        >>> shout = context.init(Shout())
        >>> shout.process(mp.Record("a", "hello", 0))
        >>> [forward.record.value for forward in context.forwarded()]
        ['HELLO']
    """

    def __init__(
        self,
        config: Mapping[str, object] | Config | None = None,
        *,
        task_id: TaskId = _FIRST_TASK,
        state_dir: Path | None = None,
    ) -> None:
        if not isinstance(config, Config):
            config = Config.of({"application.id": "mock-application", **(config or {})}, required=())
        self._config = config
        self._settings = config.as_mapping()
        self._metrics = UserMetrics(config.metrics_recording_level)
        self._task = TaskContext(
            task_id,
            config.application_id,
            self._settings,
            [],
            key_serde=config.default_key_serde,
            value_serde=config.default_value_serde,
            directory=None if state_dir is None else lambda _task: state_dir,
            metrics=self._metrics,
        )
        self._backend = MemoryBackend()
        self._stores: dict[str, Any] = {}
        self._metadata: RecordContext | None = None
        self._system_time: int | None = None
        self._stream_time: int | None = None
        self._forwards: list[CapturedForward[K, V]] = []
        self._punctuators: list[CapturedPunctuator] = []
        self._committed = False

    # What the processor sees

    @property
    def task_id(self) -> TaskId:
        """The id of the task."""
        return self._task.task_id

    @property
    def application_id(self) -> str:
        """The application's id; `mock-application` if no configuration names one."""
        return self._task.application_id

    @property
    def config(self) -> Mapping[str, object]:
        """The application's settings by name."""
        return self._settings

    @property
    def key_serde(self) -> Serde[Any] | None:
        """The default serde of keys in the configuration; None without one."""
        return self._task.key_serde

    @property
    def value_serde(self) -> Serde[Any] | None:
        """The default serde of values in the configuration; None without one."""
        return self._task.value_serde

    @property
    def state_dir(self) -> Path:
        """The directory that the test has given.

        Raises:
            TopologyError: the test has given none.
        """
        return self._task.state_dir()

    @property
    def metrics(self) -> ProcessorMetrics:
        """The metrics that the processor records. The test gets the same instruments by the same names."""
        return self._task.metrics.of_node("processor")

    def app_configs(self) -> dict[str, object]:
        """Return the settings by name."""
        return dict(self._settings)

    def app_configs_with_prefix(self, prefix: str) -> dict[str, object]:
        """Return the settings whose names begin with a prefix, by their names without it."""
        return with_prefix(self._settings, prefix)

    def forward(self, record: Record[K, V] | FixedKeyRecord[K, V], child: str | None = None) -> None:
        """Keep a record that the processor forwards.

        Raises:
            TopologyError: it is not a record.
        """
        if not isinstance(record, Record | FixedKeyRecord):
            raise TopologyError(f"a processor has to forward a record, not {kind_of(record)}.")
        self._forwards.append(CapturedForward(record, child))

    def schedule(
        self,
        interval: timedelta,
        kind: PunctuationType,
        callback: Callable[[int], None],
        *,
        start: datetime | None = None,
    ) -> CapturedPunctuator:
        """Keep a punctuation that the processor schedules.

        Raises:
            TopologyError: an argument cannot be used.
        """
        if not isinstance(interval, timedelta) or interval < _MILLISECOND:
            raise TopologyError(
                "a punctuation needs a timedelta of at least a millisecond as its interval, not "
                f"{interval if isinstance(interval, timedelta) else kind_of(interval)}."
            )
        if not isinstance(kind, PunctuationType):
            raise TopologyError(f"a punctuation needs a PunctuationType as its clock, not {kind_of(kind)}.")
        check_function("schedule()", callback, "now_ms")
        punctuation_start(start, "schedule() is called")
        captured = CapturedPunctuator(interval, kind, callback, start=start)
        self._punctuators.append(captured)
        return captured

    def commit(self) -> None:
        """Keep that the processor has asked for a commit."""
        self._committed = True

    @overload
    def get_state_store(self, name: str) -> Any: ...
    @overload
    def get_state_store(self, name: str, kind: type[S]) -> S: ...
    def get_state_store(self, name: str, kind: Any = None) -> Any:
        """Return a store that the test has added.

        Raises:
            TopologyError: the test has added no such store, or one of another class than `kind`.
        """
        try:
            store = self._stores[name]
        except KeyError:
            raise TopologyError(
                f"the processor uses store '{name}', which the context does not have; give its builder to "
                "add_state_store() first."
            ) from None
        if kind is not None:
            check_kind("the processor", name, store, kind)
        return store

    def record_metadata(self) -> RecordContext | None:
        """Return what the test has set with `set_record_metadata`; None before that, as in punctuations."""
        return self._metadata

    def current_system_time_ms(self) -> int:
        """Return the wall-clock time that the test has set, in epoch ms.

        Raises:
            TopologyError: the test has set none.
        """
        return _set(self._system_time, "wall-clock time", "set_current_system_time_ms()")

    def current_stream_time_ms(self) -> int:
        """Return the stream time that the test has set, in epoch ms.

        Raises:
            TopologyError: the test has set none.
        """
        return _set(self._stream_time, "stream time", "set_current_stream_time_ms()")

    # What the test sets

    def init(self, processor: P) -> P:
        """Give this context to a processor and call its `init`, as a task does; return the processor."""
        processor.context = self
        processor.init(self)
        return processor

    def set_record_metadata(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        timestamp: int = -1,
        headers: Headers | None = None,
    ) -> None:
        """Set the source position of the current record, and its timestamp (epoch ms) and headers."""
        self._metadata = RecordContext(topic, partition, offset, timestamp, headers)

    def reset_record_metadata(self) -> None:
        """Let `record_metadata()` return None, as in punctuations."""
        self._metadata = None

    def set_current_system_time_ms(self, now_ms: int) -> None:
        """Set the wall-clock time, in epoch ms."""
        self._system_time = now_ms

    def set_current_stream_time_ms(self, stream_time_ms: int) -> None:
        """Set the stream time, in epoch ms."""
        self._stream_time = stream_time_ms

    def add_state_store(self, builder: topology.StoreBuilder) -> Any:
        """Build a store in memory, with the default serdes of the configuration where the builder has none.

        Nothing is written to its changelog, and nothing is cached.

        Returns:
            the store, to be filled and read by the test.

        Raises:
            TopologyError: the argument is not a store builder, or the store has no serde.
        """
        if not isinstance(builder, StoreBuilder):
            raise TopologyError(
                f"add_state_store() needs a store builder, such as mp.KeyValueStoreBuilder(…), not {kind_of(builder)}."
            )
        config = self._config
        environment = Environment(
            application_id=config.application_id,
            handlers=Handlers(
                config.deserialization_exception_handler,
                config.processing_exception_handler,
                config.production_exception_handler,
                None,
            ),
            default_key=config.default_key_serde,
            default_value=config.default_value_serde,
            cache_bytes=0,
        )
        store = environment.complete(builder).build(self.task_id.partition, self._backend)
        store.attach(self._task)
        self._stores[builder.name] = store.of_user
        return store.of_user

    # What the test reads

    def forwarded(self, child: str | None = None) -> list[CapturedForward[K, V]]:
        """Return the forwarded records, in their order.

        Args:
            child: only records that reach this child: those sent to it, or to all children.
        """
        return [each for each in self._forwards if child is None or each.child_name in (None, child)]

    def reset_forwards(self) -> None:
        """Forget the forwarded records."""
        self._forwards.clear()

    def scheduled_punctuators(self) -> list[CapturedPunctuator]:
        """Return the scheduled punctuations, cancelled ones included."""
        return list(self._punctuators)

    def committed(self) -> bool:
        """Return whether the processor has asked for a commit."""
        return self._committed

    def reset_commit(self) -> None:
        """Forget that the processor has asked for a commit."""
        self._committed = False


def _set(value: int | None, what: str, method: str) -> int:
    if value is None:
        raise TopologyError(f"the processor reads the {what}, which the test has not set; call {method} first.")
    return value
