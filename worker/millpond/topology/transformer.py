"""The interface of what maps a table's values with stores: Kafka Streams' ValueTransformerWithKey."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Never, Protocol, TypeAlias, TypeVar

from millpond.checks import check_function, kind_of, nearest
from millpond.errors import TopologyError

from .context import NodeContext, RecordContext
from .nodes import StoreBuilder
from .processor import _Context
from .processor_body import _ProcessorContext

__all__ = (
    "TransformerContext",
    "ValueTransformerContext",
    "ValueTransformerWithKey",
    "ValueTransformerWithKeySupplier",
    "check_transformer_supplier",
)

K = TypeVar("K")
V = TypeVar("V")
VR = TypeVar("VR")

_METHODS = {"init": ("self", "context"), "transform": ("self", "key", "value"), "close": ("self",)}


class ValueTransformerContext(_Context, Protocol):
    """The interface for a ValueTransformerWithKey: that of a processor, except that it cannot forward."""


class ValueTransformerWithKey(Generic[K, V, VR]):
    """A function of a table's rows that may use stores. A supplier makes one instance per task and use of the table.

    The result has to depend on key, value and stores only: without a store of its own the table has no rows, and they
    are computed again when a join or a change downstream needs them.

    Defining a subclass raises TopologyError if its methods take other arguments or are `async def`.
    """

    stores: ClassVar[Sequence[StoreBuilder]] = ()
    """Builders of stores that are added to the topology and connected to this transformer (KIP-401)."""

    context: ValueTransformerContext
    """Set before `init` is called."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, arguments in _METHODS.items():
            method = inspect.getattr_static(cls, name)
            if inspect.isfunction(method):
                cure = f"write def {name}({', '.join(arguments)})"
                check_function(f"Transformer {cls.__name__}", method, *arguments, cure=cure)

    def init(self, context: ValueTransformerContext) -> None:
        """Prepare for rows; called once, before the first. `self.context` is this context already."""
        self.context = context

    def transform(self, key: K, value: V | None) -> VR | None:
        """Return the new value of a row. It is also called with None, for rows that are deleted or do not exist."""
        raise NotImplementedError(f"{type(self).__name__} needs a transform() method")

    def close(self) -> None:
        """Release resources; called once, when the task closes. Stores are still open."""


ValueTransformerWithKeySupplier: TypeAlias = Callable[[], ValueTransformerWithKey[K, V, VR]]
"""f() -> a new ValueTransformerWithKey; often the class itself. Builders in its attribute `stores` are added too."""


class TransformerContext(_ProcessorContext):
    """The context of a transformer in one node of one task."""

    def __init__(self, node: NodeContext) -> None:
        super().__init__(node)
        self.looked_up: RecordContext | None = None
        """While a join looks a row up: what is known of the row."""

    def forward(self, record: object, child: str | None = None) -> Never:
        """Reject the call.

        Raises:
            TopologyError: always.
        """
        raise TopologyError(
            f"The transformer of '{self._node.name}' cannot forward records, since its table has the row that "
            "transform() returns; return it, or use to_stream() and process()."
        )

    def record_metadata(self) -> RecordContext | None:
        """Return the source position of the current record; of a row that is looked up only the timestamp is known."""
        return super().record_metadata() if self.looked_up is None else self.looked_up


def check_transformer_supplier(what: str, supplier: Any) -> None:
    """Check that a supplier can make transformers, by calling it twice. A class is not called.

    Args:
        what: the method that takes the supplier, for messages.
        supplier: what the user gave.

    Raises:
        TopologyError: the supplier is a transformer or another object, or makes the same one twice.
    """
    if isinstance(supplier, ValueTransformerWithKey):
        raise TopologyError(
            f"{what} was given an instance of {type(supplier).__name__}; give the class or a function that makes a new "
            "one, because every task needs its own."
        )
    if isinstance(supplier, type) and not issubclass(supplier, ValueTransformerWithKey):
        raise TopologyError(
            f"{what} needs a transformer's class, not {kind_of(supplier)}; derive it from mp.ValueTransformerWithKey."
        )
    if not callable(supplier):
        raise TopologyError(
            f"{what} was given {kind_of(supplier)} as a supplier, which cannot be called; give a transformer's class."
        )
    check_function(
        f"{what}'s supplier", supplier, cure="give a function that makes one, such as lambda: Rate(currency='EUR')"
    )
    made = None if isinstance(supplier, type) else supplier()
    kind = supplier if isinstance(supplier, type) else type(made)
    if not issubclass(kind, ValueTransformerWithKey):
        raise TopologyError(
            f"The supplier that {what} was given made {kind_of(made)}; make a ValueTransformerWithKey, or use "
            "map_values() for a function."
        )
    if kind.transform is ValueTransformerWithKey.transform:
        near = nearest("transform", [name for name in vars(kind) if name not in _METHODS])
        meant = f" in place of {near}" if near else ""
        raise TopologyError(
            f"Transformer {kind.__name__} has no transform(); write def transform(self, key, value){meant}."
        )
    if made is not None and made is supplier():
        raise TopologyError(
            f"The supplier that {what} was given makes the same {kind.__name__} each time it is called, but every task "
            "needs its own; make a new one in the function, or give the class."
        )
