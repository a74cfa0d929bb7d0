"""The bodies of foreach, peek and print."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from millpond.topology import NodeContext, StreamForward

__all__ = ("Peek", "Print")


@dataclass(frozen=True, slots=True)
class Peek:
    """A body that calls `action(key, value)` and forwards the record; a foreach has no children."""

    action: Callable[[Any, Any], object]

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        action, forward, failed = self.action, node.forward, node.failed

        def peek(key: Any, value: Any, timestamp: int) -> None:
            try:
                action(key, value)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            forward(key, value, timestamp)

        return peek


@dataclass(frozen=True, slots=True)
class Print:
    """A body that writes `[label]: key, value` lines, or `[label]: ` and the text of `describe(key, value)`."""

    label: str
    describe: Callable[[Any, Any], str] | None
    file: TextIO | None
    """None: `sys.stdout` at the time of printing, so that tests can capture it."""

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        label, describe, file, failed = self.label, self.describe, self.file, node.failed

        def show(key: Any, value: Any, timestamp: int) -> None:
            try:
                text = f"{key}, {value}" if describe is None else describe(key, value)
                print(f"[{label}]: {text}", file=sys.stdout if file is None else file, flush=True)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)

        return show
