"""What a node sees of the task that runs it: protocols between the logical graph and the runtime.

A topology only describes. The runtime *binds* it, once per task: every processor node's `Body` is asked for
the function of that task, and gets its children as functions too, so that a record then runs through plain
nested calls. Per-record facts that most nodes never look at (headers, topic, offset) live in the one mutable
`TaskContext`, never in an object per record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

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

#: f(key, value, timestamp_ms): a record on a stream edge.
StreamForward: TypeAlias = Callable[[Any, Any, int], None]
#: f(key, new, old, timestamp_ms): a change on a table edge; `old` means something only when a consumer asked for old values.
TableForward: TypeAlias = Callable[[Any, Any, Any, int], None]
#: Either of the two; which one an edge carries is fixed when the topology is built.
Forward: TypeAlias = Callable[..., None]


class TaskId(NamedTuple):
    """Names a task: one sub-topology over one partition number of its source topics."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


class RecordContext(NamedTuple):
    """Where the record at hand came from, as topic-name extractors and processors see it.

    `topic` is None and `offset` -1 while no source record is being processed (punctuators).
    """

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers | None


@runtime_checkable
class Cancellable(Protocol):
    """A scheduled punctuation that can be stopped."""

    def cancel(self) -> None:
        """Stop it; stopping it twice does no harm."""


class TaskContext(Protocol):
    """What the nodes of one task share. Mutable, one per task, moved along by the task's loop."""

    @property
    def task_id(self) -> TaskId:
        """Which task."""

    @property
    def application_id(self) -> str:
        """The application's id, the prefix of its internal topics."""

    headers: Headers | None
    """Headers that a forwarded record carries; a node that reassigns them restores them after its forward."""

    timestamp: int
    """Of the record at hand, or of the punctuation, epoch ms; a node that reassigns it restores it afterwards."""

    origin: Any
    """Where the record at hand came from, for a node that forwards what it held back; restored after its forward."""

    @property
    def topic(self) -> str | None:
        """Real topic of the source record at hand; None inside punctuators."""

    @property
    def partition(self) -> int:
        """Partition of the source record at hand; without one, the task's."""

    @property
    def offset(self) -> int:
        """Offset of the source record at hand; -1 without one."""

    @property
    def stream_time(self) -> int:
        """Highest timestamp the task has processed, epoch ms; -1 when unknown."""

    @property
    def config(self) -> Mapping[str, object]:
        """The application's settings by name."""

    def now_ms(self) -> int:
        """Wall-clock time, epoch ms."""

    def request_commit(self) -> None:
        """Commit as soon as the record at hand is through."""


class NodeContext(Protocol):
    """What one node of one task sees while its body is bound. Hoist what you need into locals of the closure."""

    @property
    def name(self) -> str:
        """The node's name."""

    @property
    def task(self) -> TaskContext:
        """The task this node belongs to."""

    @property
    def forward(self) -> Forward:
        """Calls all children; the child itself when there is one, a no-op when there is none."""

    def child(self, name: str) -> Forward:
        """One child by its node name.

        Raises:
            TopologyError: there is no such child.
        """

    def store(self, name: str) -> Any:
        """The task's instance of a store connected to this node, or a global store.

        Raises:
            TopologyError: the store is not connected to this node.
        """

    def is_global(self, store: str) -> bool:
        """Whether a store is filled from its topic in every worker, and not this task's to write."""

    def on_init(self, callback: Callable[[], None]) -> None:
        """Call `callback` when all nodes are bound, parents before children."""

    def failed(self, error: Exception, key: Any, value: Any, timestamp: int) -> None:
        """Report that user code raised: asks the processing handler (KIP-1033). Call it inside `except`.

        Returns when the handler says CONTINUE: drop the record then.

        Raises:
            ProcessingFailed: the handler said FAIL.
            MillpondError: `error` itself, when it is not user code's to cause (state, ownership, broker).
        """

    def dropped(self) -> None:
        """Count the record at hand in `dropped-records`."""

    def schedule(self, interval_ms: int, wall_clock: bool, callback: Callable[[int], None]) -> Cancellable:
        """Call `callback(now_ms)` every `interval_ms` of stream time or wall-clock time."""

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the task closes."""

    def remember(self, name: str, value: Callable[[], int]) -> int | None:
        """Keep one integer of this node across restarts and moves of the task.

        `value()` is read at each commit and goes into the metadata of the task's offsets, so it is exactly as
        old as they are.

        Returns:
            what was committed last, None when nothing was.
        """


class Body(Protocol):
    """What a processor node does. Immutable and shared by all tasks.

    A body that asks its task where the record at hand came from says so in a class attribute `reads_origin = True`:
    caches above it then keep that for what they hold back.
    """

    def bind(self, node: NodeContext) -> Forward:
        """The function of one task. Called once per task, children first."""
