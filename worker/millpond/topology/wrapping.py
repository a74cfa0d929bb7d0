"""The processor wrapper (KIP-1112): user code around every processor and every operator of the DSL.

An operator of the DSL is a function without an object per record. Only a topology with a wrapper runs its operators as
processors, with records; any other one pays nothing for this.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from millpond.checks import kind_of
from millpond.errors import TopologyError

from .context import Body, Forward, NodeContext
from .headers import NO_HEADERS, RecordHeaders, check_headers
from .processor import Change, FixedKeyProcessor, Processor, Record
from .processor_body import ProcessorBody, supplied_stores
from .suppliers import check_supplier

__all__ = ("ProcessorWrapper", "check_wrapper", "wrapped_body")

AnySupplier = Callable[[], Any]


class ProcessorWrapper:
    """The base class of wrappers of processors (KIP-1112). Override one or both methods.

    A wrapper is given to `StreamsBuilder` or `Topology`. It gets the supplier of each processor, and of each operator
    of the DSL as a processor, and returns a supplier whose processors call the original ones. Builders of stores in
    the attribute `stores` of a returned supplier are added and connected, besides those of the original one.

    Example:
        >>> import millpond as mp
        >>> class Logged(mp.Processor):
        ...     def __init__(self, name, inner):
        ...         self.name, self.inner = name, inner
        ...     def init(self, context):
        ...         self.inner.init(context)
        ...     def process(self, record):
        ...         print(self.name, record.key)
        ...         self.inner.process(record)
        ...     def close(self):
        ...         self.inner.close()
        >>> class Logging(mp.ProcessorWrapper):
        ...     def wrap_processor_supplier(self, name, supplier):
        ...         return lambda: Logged(name, supplier())
        >>> builder = mp.StreamsBuilder(processor_wrapper=Logging())
    """

    def wrap_processor_supplier(
        self, name: str, supplier: Callable[[], Processor[Any, Any, Any, Any]]
    ) -> Callable[[], Processor[Any, Any, Any, Any]]:
        """Return the supplier to use in place of `supplier`, which makes the processors of node `name`.

        Records of a table's node have a `Change` as their value.
        """
        return supplier

    def wrap_fixed_key_processor_supplier(
        self, name: str, supplier: Callable[[], FixedKeyProcessor[Any, Any, Any]]
    ) -> Callable[[], FixedKeyProcessor[Any, Any, Any]]:
        """Return the supplier to use in place of `supplier`, which makes the fixed-key processors of node `name`."""
        return supplier


def check_wrapper(what: str, given: object) -> ProcessorWrapper | None:
    """Return `given`, if it can be a wrapper or is None.

    Raises:
        TopologyError: it is something else, such as the class of a wrapper.
    """
    if given is None or isinstance(given, ProcessorWrapper):
        return given
    if isinstance(given, type) and issubclass(given, ProcessorWrapper):
        raise TopologyError(f"{what} was given the class {given.__name__} as its processor_wrapper; give an instance.")
    raise TopologyError(
        f"{what} needs an instance of a subclass of mp.ProcessorWrapper as its processor_wrapper, not {kind_of(given)}."
    )


def wrapped_body(
    wrapper: ProcessorWrapper, name: str, body: Body, *, from_table: bool, table: bool
) -> tuple[Body, tuple[Any, ...]]:
    """Return the body of a node with the processors of a wrapper, and the builders of stores that the wrapper adds.

    Args:
        wrapper: the wrapper.
        name: the node's name.
        body: the body of a user's processor, or of an operator.
        from_table: whether the node gets changes of a table.
        table: whether it sends changes of a table.

    Raises:
        TopologyError: the wrapper does not return a supplier.
    """
    supplier: Any = body.supplier if isinstance(body, ProcessorBody) else _OperatorSupplier(body, from_table, table)
    kind: Any = supplier if isinstance(supplier, type) else None
    if kind is None:
        kind = Processor if isinstance(supplier, _OperatorSupplier) else type(supplier())
    fixed_key = issubclass(kind, FixedKeyProcessor)
    method = wrapper.wrap_fixed_key_processor_supplier if fixed_key else wrapper.wrap_processor_supplier
    made: Any = method(name, supplier)
    check_supplier(f"{type(wrapper).__name__}.{method.__name__}() for '{name}'", made)
    if isinstance(body, ProcessorBody):
        return ProcessorBody(made), supplied_stores(made)
    return _WrappedOperator(made, from_table, table), supplied_stores(made)


_node: ContextVar[NodeContext] = ContextVar("node")
"""The node that is being bound, for the operator that a wrapped supplier makes meanwhile."""


@dataclass(frozen=True)
class _WrappedOperator(ProcessorBody):
    """The body of a wrapped operator."""

    from_table: bool = False
    table: bool = False

    def bind(self, node: NodeContext) -> Forward:
        token = _node.set(node)
        try:
            return self._bind(node, from_table=self.from_table, table=self.table)
        finally:
            _node.reset(token)


@dataclass(frozen=True)
class _OperatorSupplier:
    """A supplier of processors that run an operator."""

    body: Body
    from_table: bool
    table: bool

    def __call__(self) -> Processor[Any, Any, Any, Any]:
        return _Operator(self)


class _Operator(Processor[Any, Any, Any, Any]):
    """A processor that runs an operator of the DSL: it forwards by the context that a wrapper may have changed."""

    def __init__(self, supplier: _OperatorSupplier) -> None:
        node = _node.get(None)
        if node is None:
            raise TopologyError(
                "the processor of an operator can only be made by the supplier that a ProcessorWrapper returns, when "
                "a task starts."
            )
        self._node = node
        self._supplier = supplier
        self._process: Forward = _nothing

    def init(self, context: Any) -> None:
        self.context = context
        self._process = self._supplier.body.bind(_OperatorNode(self._node, context, table=self._supplier.table))

    def process(self, record: Record[Any, Any]) -> None:
        task = self._node.task
        before, headers = task.headers, None if record.headers is NO_HEADERS else record.headers
        task.headers = headers if headers is None or type(headers) is RecordHeaders else check_headers(headers)
        try:
            if self._supplier.from_table:
                new, old = record.value
                self._process(record.key, new, old, record.timestamp)
            else:
                self._process(record.key, record.value, record.timestamp)
        finally:
            task.headers = before


def _nothing(*_record: Any) -> None:
    """Do nothing: an operator that a wrapper has not initialised."""


class _OperatorNode:
    """The node of a wrapped operator: what it forwards goes through the context of its processor."""

    def __init__(self, node: NodeContext, context: Any, *, table: bool) -> None:
        self._node = node
        self._context = context
        self._table = table
        self.name = node.name
        self.task = node.task
        self.store = node.store
        self.is_read_only = node.is_read_only
        self.key_serde = node.key_serde
        self.value_serde = node.value_serde
        self.failed = node.failed
        self.dropped = node.dropped
        self.late = node.late
        self.unjoined = node.unjoined
        self.schedule = node.schedule
        self.on_close = node.on_close
        self.on_batch_end = node.on_batch_end
        self.holds_back = node.holds_back
        self.remember = node.remember
        self.share = node.share
        self.forward: Forward = self._sending(None)

    def child(self, name: str) -> Forward:
        self._node.child(name)  # it exists
        return self._sending(name)

    def on_init(self, callback: Callable[[], None]) -> None:
        callback()  # the nodes are bound when processors are initialised, parents before children

    def _sending(self, child: str | None) -> Forward:
        context, task = self._context, self.task

        def send(key: Any, value: Any, timestamp: int) -> None:
            headers = task.headers
            context.forward(Record(key, value, timestamp, RecordHeaders(headers) if headers else NO_HEADERS), child)

        if not self._table:
            return send
        return lambda key, new, old, timestamp: send(key, Change(new, old), timestamp)
