"""Checks that a supplier makes a processor of the right kind, and a new one each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.errors import TopologyError
from millpond.topology.processor import FixedKeyProcessor, Processor

__all__ = ("check_supply",)


def check_supply(name: str, supplier: Callable[[], Any], *, fixed_key: bool = False) -> None:
    """Call the supplier of a processor twice, as Kafka Streams does. A class is not called: it makes new ones.

    Args:
        name: of the processor's node.
        supplier: what was given.
        fixed_key: whether a FixedKeyProcessor is needed, because the stream is not repartitioned after it.

    Raises:
        TopologyError: it makes the same processor twice, which tasks would share, or one that may change keys.
    """
    if isinstance(supplier, type):
        kind = supplier
    else:
        made = supplier()
        if made is supplier() and isinstance(made, Processor | FixedKeyProcessor):
            raise TopologyError(
                f"The supplier of processor '{name}' makes the same {type(made).__name__} each time it is called; every task "
                "needs its own: make a new one in the function, or give the class."
            )
        kind = type(made)
    if fixed_key and issubclass(kind, Processor):
        raise TopologyError(
            f"Processor '{name}' is a {kind.__name__}, which may change keys; derive it from FixedKeyProcessor, or use "
            "process(), whose result is repartitioned where that is needed."
        )
