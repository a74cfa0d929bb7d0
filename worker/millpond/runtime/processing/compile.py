"""Compiles a sub-topology, for one task, to nested function calls.

Nodes are bound from the sinks upwards, so every node gets its children as functions: one child is called directly,
several children through a loop. At run time nothing is looked up by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from millpond.drops import Drop
from millpond.errors import BrokerError, OwnershipError, ProcessingFailed, StateError, TopologyError
from millpond.runtime.offsets.metadata import Remembered
from millpond.runtime.offsets.operator_times import value_of
from millpond.serdes import Serde
from millpond.state.formats import RecordContext
from millpond.state.unreadable_rows import UnreadableRow
from millpond.topology import Body, ProcessorNode, SinkNode, SourceNode

from .context import TaskContext
from .drop_log import LateWindow
from .encoding_errors import explain_store_error
from .environment import Environment
from .node_figures import NodeFigures
from .punctuation import PunctuationQueue, Schedule, WallClockQueue
from .quiet_windows import Look
from .sinks import bind_sink

__all__ = ("NodeBinding", "TaskHooks", "compile_graph", "fan_out")

Forward = Callable[..., None]

_NOT_FOR_HANDLERS = (ProcessingFailed, StateError, BrokerError, OwnershipError)


class NodeBinding:
    """One node of one task, from the view of its body while the body is bound (`topology.NodeContext`)."""

    def __init__(  # noqa: PLR0913 - the parts of a task, in one call
        self,
        name: str,
        task: TaskContext,
        children: Mapping[str, Forward],
        stores: Mapping[str, Any],
        environment: Environment,
        hooks: TaskHooks,
        read_only: Collection[str] = (),
        figures: NodeFigures | None = None,
    ) -> None:
        self.name = name
        self.task = task
        self._figures = figures
        forward = fan_out(tuple(children.values()))
        if figures is not None:
            children = {child: figures.sending(function) for child, function in children.items()}
            forward = figures.sending(forward)
        self.forward: Forward = forward
        self._children = children
        self._stores = stores
        self._read_only = read_only
        self.initialisers: list[Callable[[], None]] = []
        self.batch_ends: list[Callable[[], None]] = []
        self._environment = environment
        self._handlers = environment.handlers
        self._hooks = hooks

    def child(self, name: str) -> Forward:
        """Return the child `name`.

        Raises:
            TopologyError: the node has no such child.
        """
        try:
            return self._children[name]
        except KeyError:
            known = ", ".join(sorted(self._children)) or "none"
            raise TopologyError(f"node '{self.name}' has no child '{name}'; its children: {known}.") from None

    def store(self, name: str) -> Any:
        """Return the task's instance of a state store.

        Raises:
            TopologyError: the store is not connected to this node.
        """
        try:
            return self._stores[name]
        except KeyError:
            raise TopologyError(
                f"processor '{self.name}' is not connected to store '{name}': connect it, for example with "
                f"stores=['{name}'] where the processor is added."
            ) from None

    def is_read_only(self, store: str) -> bool:
        """Return whether only another processor may write to a store: it is global, or a read-only one."""
        return store in self._read_only

    def key_serde(self, serde: Serde[Any] | None, topic: str) -> Serde[Any]:
        """Return a serde, or the default one, for the keys of a topic; raises as `Environment.key_serde`."""
        return self._environment.key_serde(serde, self.name, topic)

    def value_serde(self, serde: Serde[Any] | None, topic: str) -> Serde[Any]:
        """Return a serde, or the default one, for the values of a topic; raises as `Environment.key_serde`."""
        return self._environment.value_serde(serde, self.name, topic)

    def on_init(self, callback: Callable[[], None]) -> None:
        """Call `callback` when all nodes are bound, parents before children."""
        self.initialisers.append(callback)

    def failed(self, error: Exception, key: Any, value: Any, timestamp: int) -> None:
        """Call the processing handler for an exception of user code. If this returns, the record is dropped.

        Raises:
            ProcessingFailed: the handler returned FAIL.
            MillpondError: `error` itself, if user code cannot be its cause.
        """
        if isinstance(error, _NOT_FOR_HANDLERS):
            raise error
        error = explain_store_error(error, key, self._stores)
        context = self._handlers.describe("Processing", self.name, self.task, (key, value, timestamp))
        if isinstance(error, UnreadableRow):
            if isinstance(self.task.origin, RecordContext):
                error.waited = error.waited or "waiting record"
            if error.waited:
                context = context._replace(dead_letter_topic=None)  # the current record is not the one that is lost
        self._handlers.handle(self._handlers.processing, context, error, self.task)
        if self._figures is not None:
            self._figures.dropped += 1

    def dropped(self, reason: Drop, *, counted: bool = True) -> None:
        """Count a record that an operator dropped; a log line tells of it once per period."""
        self.task.drop(self.name, reason, counted=counted)
        if self._figures is not None:
            self._figures.dropped += 1

    def late(self, start: int, end: int, closes: int, stream_time: int) -> None:
        """Count a record that an operator dropped because its window had closed; see `NodeContext.late`."""
        self.task.drop(self.name, Drop.LATE, LateWindow(start, end, closes, stream_time))
        if self._figures is not None:
            self._figures.dropped += 1

    def unjoined(self, join: str, late_ms: int) -> None:
        """Count a record whose results may be missing in a join; see `NodeContext.unjoined`."""
        self.task.unjoined(join, late_ms)

    def schedule(
        self,
        interval_ms: int,
        wall_clock: bool,  # noqa: FBT001 - the signature of `NodeContext`
        callback: Callable[[int], None],
        start_ms: int | None = None,
    ) -> Schedule:
        """Call `callback(now_ms)` every `interval_ms` of wall-clock or stream time; its errors go to the handler."""
        task = self.task

        def guarded(now_ms: int) -> None:
            before, task.timestamp = task.timestamp, now_ms
            try:
                callback(now_ms)
            except Exception as error:  # noqa: BLE001 - user code
                self.failed(error, None, None, now_ms)
            finally:
                task.timestamp = before

        return self._hooks.schedule(interval_ms, wall_clock, guarded, start_ms)

    def holds_back(self, store: str, waiting: Look) -> None:
        """Tell of the final results that wait in a store, if the input is quiet for long."""
        self._hooks.held_back.append((store, waiting))

    def remember(self, name: str, value: Callable[[], int]) -> int | None:
        """Keep an integer of this node in the task's offset metadata; return the last committed one, or None."""
        return self._hooks.remember(f"{self.name}.{name}", value)

    def share(self, key: str, value: Callable[[], int]) -> int | None:
        """Keep an integer that Kafka Streams commits too, by its key; return the last committed one, or None."""
        return self._hooks.share(key, value)

    def on_batch_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the task has processed the records at hand, before punctuations and commits."""
        self.batch_ends.append(callback)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the task closes."""
        self._hooks.closers.append(callback)


class TaskHooks:
    """The callbacks of a task's nodes: punctuators, `close()`, and integers to keep across restarts.

    Attributes:
        stream_time: punctuators of stream time.
        wall_clock: punctuators of wall-clock time.
        closers: functions to call when the task closes.
        memories: functions that return the integer to commit, by "node.name".
        shared: functions that return the integer to commit, by the key that Kafka Streams uses for it.
        batch_ends: functions to call after the records at hand, parents before children.
        held_back: functions that return the final results that wait, with the name of their store.
        figures: figures of single nodes, parents before children; empty unless they are recorded.
    """

    def __init__(self, task: TaskContext, remembered: Remembered) -> None:
        self._task = task
        self._remembered = remembered
        self.memories: dict[str, Callable[[], int]] = {}
        self.shared: dict[str, Callable[[], int]] = {}
        self.stream_time: PunctuationQueue = PunctuationQueue()
        self.wall_clock: PunctuationQueue = WallClockQueue()
        self.closers: list[Callable[[], None]] = []
        self.batch_ends: list[Callable[[], None]] = []
        self.held_back: list[tuple[str, Look]] = []
        self.figures: list[NodeFigures] = []

    def remember(self, name: str, value: Callable[[], int]) -> int | None:
        """Commit `value()` with each later offset; return the last committed value, None without one."""
        self.memories[name] = value
        return value_of(self._remembered.own, name)

    def share(self, key: str, value: Callable[[], int]) -> int | None:
        """Commit `value()` with each later offset, as Kafka Streams does; return the last committed value, or None."""
        self.shared[key] = value
        return self._remembered.shared.get(key)

    def schedule(
        self,
        interval_ms: int,
        wall_clock: bool,  # noqa: FBT001 - as in `NodeBinding`
        callback: Callable[[int], None],
        start_ms: int | None = None,
    ) -> Schedule:
        """Add a punctuator.

        Without a start, it fires at multiples of the interval in stream time, and else first after one interval.
        """
        queue, now_ms = self.stream_time, self._task.stream_time
        if wall_clock:
            queue, now_ms = self.wall_clock, self._task.now_ms()
        if start_ms is not None:
            return queue.schedule_from(start_ms, interval_ms, now_ms, callback)
        return queue.schedule(now_ms + interval_ms if wall_clock else 0, interval_ms, callback)


def fan_out(children: tuple[Forward, ...]) -> Forward:
    """Return one function that calls all children in order."""
    if not children:
        return _nothing
    if len(children) == 1:
        return children[0]
    if len(children) == 2:
        first, second = children

        # Named arguments, since calls with a tuple of them cost more; tables forward a fourth one.
        def both(key: Any, value: Any, third: Any, *others: Any) -> None:
            if others:
                first(key, value, third, *others)
                second(key, value, third, *others)
            else:
                first(key, value, third)
                second(key, value, third)

        return both

    def each(*record: Any) -> None:
        for child in children:
            child(*record)

    return each


def _nothing(*_record: Any) -> None:
    """Do nothing: the `forward` of a node without children."""


def compile_graph(  # noqa: C901, PLR0913 - one pass over the nodes; its closures share the tables
    sources: Sequence[SourceNode],
    processors: Sequence[ProcessorNode],
    sinks: Sequence[SinkNode],
    stores: Mapping[str, Any],
    global_stores: Mapping[str, Any],
    task: TaskContext,
    environment: Environment,
    remembered: Remembered,
    order: Sequence[str],
) -> tuple[dict[str, Forward], TaskHooks]:
    """Bind every node of a sub-topology for one task, then initialise its processors, parents first.

    Args:
        sources: the source nodes.
        processors: the processors in topological order, parents first.
        sinks: the sink nodes.
        stores: the task's store instances by name; a node can use only those connected to it.
        global_stores: the worker's global stores by name; every node can use them.
        task: the task's context.
        environment: the worker's settings and lookups.
        remembered: the last committed integers of the task's nodes.
        order: names of the nodes in the order in which they were added, in which children get a record.

    Returns:
        The entry function of each source by its node name, and the callbacks of the nodes.
    """
    hooks = TaskHooks(task, remembered)
    children: dict[str, dict[str, Forward]] = {}
    bound: list[NodeBinding] = []

    def connect(name: str, parents: tuple[str, ...], forward: Forward) -> None:
        for parent in parents:
            children.setdefault(parent, {})[name] = forward

    ranks = {name: rank for rank, name in enumerate(order)}

    def children_of(name: str) -> dict[str, Forward]:
        return dict(sorted(children.get(name, {}).items(), key=lambda item: ranks[item[0]]))

    def figures_of(name: str, *, latency: bool = False, stores: bool = False) -> NodeFigures | None:
        if not environment.metrics.records("DEBUG"):
            return None
        latency = latency or name not in children or (stores and environment.metrics.records("TRACE"))
        hooks.figures.append(NodeFigures(name, latency=latency))
        return hooks.figures[-1]

    def counted(forward: Forward, figures: NodeFigures | None) -> Forward:
        return forward if figures is None else figures.counting(forward, task.now_ms)

    reads_origin: set[str] = set()
    for sink in sinks:
        connect(sink.name, sink.parents, counted(bind_sink(sink, task, environment), figures_of(sink.name)))
        if not isinstance(sink.topic, str):
            reads_origin.add(sink.name)
    for node in reversed(processors):
        connected = {**global_stores, **{name: stores[name] for name in node.stores if name in stores}}
        figures = figures_of(node.name, stores=bool(node.stores))
        binding = NodeBinding(
            node.name, task, children_of(node.name), connected, environment, hooks,
            global_stores.keys() | node.read_only, figures,
        )  # fmt: skip
        body: Body = node.body
        below = reads_origin.intersection(children.get(node.name, ()))
        if below or getattr(body, "reads_origin", False):
            reads_origin.add(node.name)
        if below:
            for name in connected.keys() - global_stores.keys():
                connected[name].keep_origins()
        connect(node.name, node.parents, counted(body.bind(binding), figures))
        bound.append(binding)
    for binding in reversed(bound):
        for initialise in binding.initialisers:
            initialise()
    # Collected only now: an operator in a wrapper is bound when its processor is initialised.
    hooks.batch_ends += [end for binding in reversed(bound) for end in binding.batch_ends]
    entries: dict[str, Forward] = {}
    for source in sources:
        entry = fan_out(tuple(children_of(source.name).values()))
        figures = figures_of(source.name, latency=True)
        entries[source.name] = entry if figures is None else figures.counting(figures.sending(entry), task.now_ms)
    hooks.figures.reverse()
    return entries, hooks
