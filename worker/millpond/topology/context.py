"""The protocols between the logical graph and the runtime, with the parts of a task that a node can use.

A topology is only a description. The runtime *binds* it once per task: the `Body` of every processor node returns the
function of that task, which calls the functions of its children. So a record goes through plain nested calls. Rarely
used parts of a record (headers, topic, offset) are in the one mutable `TaskContext`, never in an object per record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from millpond.drops import Drop
from millpond.serdes import Serde

from .user_metrics import TaskMetrics

__all__ = (
    "Body",
    "Cancellable",
    "Forward",
    "Headers",
    "NodeContext",
    "RecordContext",
    "StreamForward",
    "TableForward",
    "TaskContext",
    "TaskId",
)

Headers: TypeAlias = list[tuple[str, bytes | None]]

StreamForward: TypeAlias = Callable[[Any, Any, int], None]
"""f(key, value, timestamp in epoch ms): a record on a stream edge."""

TableForward: TypeAlias = Callable[[Any, Any, Any, int], None]
"""f(key, new, old, timestamp in epoch ms): a change on a table edge; `old` is valid only if a child needs it."""

Forward: TypeAlias = Callable[..., None]
"""One of the two; the kind of an edge is fixed when the topology is built."""


class TaskId(NamedTuple):
    """The id of a task: one sub-topology and one partition number of its source topics. Its text is `0_3`."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


class RecordContext(NamedTuple):
    """The source position of the current record, with its timestamp and headers.

    A punctuation has no source record: `topic` is None and `offset` is -1.
    """

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    """Epoch ms."""
    headers: Headers | None


@runtime_checkable
class Cancellable(Protocol):
    """A scheduled punctuation that can be stopped."""

    def cancel(self) -> None:
        """Stop the punctuation; a second call changes nothing."""


class TaskContext(Protocol):
    """The context that the nodes of one task share. The task changes it with each record."""

    @property
    def task_id(self) -> TaskId:
        """The task's id."""

    @property
    def application_id(self) -> str:
        """The application's id, the prefix of its internal topics."""

    headers: Headers | None
    """The headers of forwarded records. A node that assigns them restores the old ones after its forward."""

    timestamp: int
    """Time of the current record or punctuation, epoch ms. A node that assigns it restores the old one afterwards."""

    origin: Any
    """The source position, assigned by a node that forwards a record it held back, and restored after its forward."""

    released: bool
    """Whether a record that waited without its source position is being forwarded: what fails then is not the current
    record. A node that assigns it restores the old value after its forward."""

    latest: bool
    """Whether the change that is being forwarded is the latest of its key (KIP-914): false only for late updates of
    versioned stores. A node that assigns it restores the old value after its forward."""

    @property
    def topic(self) -> str | None:
        """The real name of the current record's topic; None in punctuations."""

    @property
    def partition(self) -> int:
        """The current record's partition; in punctuations, the task's."""

    @property
    def offset(self) -> int:
        """The current record's offset; -1 in punctuations."""

    @property
    def stream_time(self) -> int:
        """The highest timestamp that the task has processed, epoch ms; -1 if it has processed none."""

    @property
    def config(self) -> Mapping[str, object]:
        """The application's settings by name."""

    @property
    def metrics(self) -> TaskMetrics:
        """The metrics that the task's processors record."""

    @property
    def key_serde(self) -> Serde[Any] | None:
        """The default serde of keys; None without one."""

    @property
    def value_serde(self) -> Serde[Any] | None:
        """The default serde of values; None without one."""

    def state_dir(self) -> Path:
        """Return the task's directory for files of the application.

        Raises:
            TopologyError: there is none here.
        """

    def now_ms(self) -> int:
        """Return wall-clock time in epoch ms."""

    def request_commit(self) -> None:
        """Commit after the current record."""


class NodeContext(Protocol):
    """The interface for a body that is bound for one node of one task. Closures keep its parts in locals."""

    @property
    def name(self) -> str:
        """The node's name."""

    @property
    def task(self) -> TaskContext:
        """The task this node belongs to."""

    @property
    def forward(self) -> Forward:
        """A function that calls all children: a single child's own function; without children, it does nothing."""

    def child(self, name: str) -> Forward:
        """Return the function of one child, by its node name.

        Raises:
            TopologyError: the node has no such child.
        """

    def store(self, name: str) -> Any:
        """Return the task's instance of a store that is connected to this node, or a global store.

        Raises:
            TopologyError: the store is not connected to this node.
        """

    def is_read_only(self, store: str) -> bool:
        """Return whether this node may only read a store, because the processor of a topic fills it."""

    def key_serde(self, serde: Serde[Any] | None, topic: str) -> Serde[Any]:
        """Return a serde, or `default.key.serde` for None, as it writes the keys of a topic.

        Raises:
            TopologyError: there is neither of them.
        """

    def value_serde(self, serde: Serde[Any] | None, topic: str) -> Serde[Any]:
        """Return a serde, or `default.value.serde` for None, as it writes the values of a topic; see `key_serde`."""

    def on_init(self, callback: Callable[[], None]) -> None:
        """Call `callback` when all nodes are bound; parents before children."""

    def failed(self, error: Exception, key: Any, value: Any, timestamp: int) -> None:
        """Give an error of user code to the processing exception handler (KIP-1033). Call it inside `except`.

        It returns if the handler answers CONTINUE; the caller drops the record then.

        Raises:
            ProcessingFailed: the handler answered FAIL.
            MillpondError: `error` itself, if it is one that user code cannot cause (state, ownership, broker).
        """

    def dropped(self, reason: Drop, *, counted: bool = True) -> None:
        """Count the current record under a reason, which is logged once per period.

        Args:
            reason: the reason.
            counted: whether Kafka Streams counts it in `dropped-records`, too; the metric of reasons has it always.
        """

    def late(self, start: int, end: int, closes: int, stream_time: int) -> None:
        """Count the current record as `dropped`, since it came after its window had closed. Times are epoch ms.

        Args:
            start: the start of the window.
            end: its end.
            closes: the stream time at which it closed.
            stream_time: the stream time of the operator.
        """

    def unjoined(self, join: str, late_ms: int) -> None:
        """Count the current record as late for a join of two streams, which may lack its results.

        Kafka Streams does not count it as dropped: the record was processed, but it came after partners had left the
        join's windows and grace, or would not be kept for partners that come later.

        Args:
            join: the name of the join.
            late_ms: a grace that is longer by more than this keeps such records, and their partners.
        """

    def schedule(
        self,
        interval_ms: int,
        wall_clock: bool,  # noqa: FBT001 - between an interval and a callback
        callback: Callable[[int], None],
        start_ms: int | None = None,
    ) -> Cancellable:
        """Call `callback(now_ms)` every `interval_ms` of stream time or wall-clock time, from a start on if given."""

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the task closes."""

    def on_batch_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the task has processed the records at hand, before punctuations and commits.

        It forwards what the node holds back, so that nothing is held over a commit. It is also called after
        punctuations and flushes of caches, and often without a record; nodes nearer to the sources come first.
        """

    def holds_back(self, store: str, waiting: Callable[[], tuple[int, int, int] | None]) -> None:
        """Say that this node holds back final results until stream time has moved on; a log line tells of a pause.

        Args:
            store: the store that has them.
            waiting: returns how many wait, the stream time at which the first one is sent, and the stream time now,
                both in epoch ms; None if none wait. It is called once when the input has been quiet for long.
        """

    def remember(self, name: str, value: Callable[[], int]) -> int | None:
        """Keep one integer of this node across restarts and moves of the task.

        Each commit writes `value()` into the metadata of the task's offsets, so it belongs to exactly these offsets.

        Returns:
            the last committed value, or None without one.
        """

    def share(self, key: str, value: Callable[[], int]) -> int | None:
        """Keep one integer as `remember` does, under the key that Kafka Streams uses in its own metadata (KIP-825).

        So an application continues with it after a move from Java.

        Returns:
            the last committed value, or None without one.
        """


class Body(Protocol):
    """The logic of a processor node. It is immutable, and all tasks share it.

    A body that reads the source position of the current record has the class attribute `reads_origin = True`: then
    caches above it keep the source positions of the changes that they hold back.
    """

    def bind(self, node: NodeContext) -> Forward:
        """Return the function that one task calls for each record. Called once per task, children first."""
