"""Checks of suppliers: each call must make a new processor of the right kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.checks import check_function, kind_of
from millpond.errors import TopologyError

from .processor import FixedKeyProcessor, Processor, check_process

__all__ = ("check_supplier", "check_supply")


def check_supplier(what: str, supplier: object) -> None:
    """Check that a supplier can make processors.

    Args:
        what: the method that takes the supplier, for messages.
        supplier: what the user gave.

    Raises:
        TopologyError: the supplier is a processor or a class without process(), or cannot be called without arguments.
    """
    if isinstance(supplier, Processor | FixedKeyProcessor):
        raise TopologyError(
            f"{what} was given an instance of {type(supplier).__name__}; give the class or a "
            "function that makes a new one, because every task needs its own."
        )
    if isinstance(supplier, type) and not issubclass(supplier, Processor | FixedKeyProcessor):
        raise TopologyError(f"{what} needs a Processor's class, not {kind_of(supplier)}; derive it from mp.Processor.")
    if not callable(supplier):
        raise TopologyError(
            f"{what} was given {kind_of(supplier)} as a supplier, which cannot be called; give a Processor's class."
        )
    check_function(
        f"{what}'s supplier", supplier, cure="give a function that makes one, such as lambda: Count(limit=3)"
    )
    if isinstance(supplier, type):
        check_process(supplier)


def check_supply(name: str, supplier: Callable[[], Any], *, fixed_key: bool = False) -> None:
    """Check the processors of a supplier, by calling it twice, as Kafka Streams does. A class is not called.

    Args:
        name: the processor's node.
        supplier: what the user gave.
        fixed_key: whether a FixedKeyProcessor is needed.

    Raises:
        TopologyError: the supplier makes the same processor twice, or a processor that may change keys.
    """
    if isinstance(supplier, type):
        kind = supplier
    else:
        made = supplier()
        if made is supplier() and isinstance(made, Processor | FixedKeyProcessor):
            raise TopologyError(
                f"The supplier of processor '{name}' makes the same {type(made).__name__} each time it is called, but "
                "every task needs its own; make a new one in the function, or give the class."
            )
        kind = type(made)
    if fixed_key and issubclass(kind, Processor):
        raise TopologyError(
            f"Processor '{name}' is a {kind.__name__}, which may change keys; derive it from FixedKeyProcessor, or use "
            "process(), whose result is repartitioned if needed."
        )
