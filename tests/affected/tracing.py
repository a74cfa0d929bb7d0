"""Which functions of the repository a piece of a test run calls.

Python 3.12 and newer tell each code object once (`sys.monitoring`); in Python 3.11 each call is traced, which makes
tests twice as slow.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.affected.record import Block
from tests.affected.tree import Tree

__all__ = ("Tracer",)

_TOOL = 4
"""The number of this tool: it is none of those that Python names."""


class Tracer:
    """Tells which blocks are executed, each to the innermost context.

    Args:
        root: the root of the repository.
        tree: the files that are executed.
        outermost: gets what is executed in no other context.
    """

    def __init__(self, root: Path, tree: Tree, outermost: set[Block]) -> None:
        self._root = f"{root}{os.sep}"
        self._tree = tree
        self._called: set[CodeType] = set()
        self._contexts: list[tuple[set[Block], str]] = [(outermost, "")]
        self._traces = False
        self._blocks: dict[CodeType, Block | None] = {}

    @property
    def reader(self) -> str:
        """Who reads a file that is read now."""
        return self._contexts[-1][1]

    def start(self) -> None:
        """Begin to trace, if that has not begun."""
        if self._traces:
            return
        self._traces = True
        called = self._called.add
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring

            def begins(code: CodeType, _offset: int) -> object:
                called(code)
                return monitoring.DISABLE

            monitoring.use_tool_id(_TOOL, "millpond tests")
            monitoring.register_callback(_TOOL, monitoring.events.PY_START, begins)
            monitoring.set_events(_TOOL, monitoring.events.PY_START)
        else:

            def traced(frame: FrameType, _event: str, _argument: object) -> None:
                called(frame.f_code)

            threading.settrace(traced)
            sys.settrace(traced)

    def stop(self) -> None:
        """Trace no more."""
        if not self._traces:
            return
        self._traces = False
        if sys.version_info >= (3, 12):
            sys.monitoring.free_tool_id(_TOOL)
        else:
            threading.settrace(None)  # type: ignore[arg-type]
            sys.settrace(None)
        self._empty()

    @contextmanager
    def context(self, executed: set[Block], reader: str) -> Iterator[None]:
        """Add what the block executes to a set."""
        self._empty()
        self._contexts.append((executed, reader))
        try:
            yield
        finally:
            self._empty()
            self._contexts.pop()

    def follow_caches(self, once: dict[str, set[Block]]) -> None:
        """Let cached functions run in a context of their own, since only their first caller runs them."""
        original = functools.lru_cache

        def lru_cache(maxsize: Any = 128, typed: bool = False) -> Any:
            if callable(maxsize):
                return original(128, typed)(self._followed(maxsize, once))
            return lambda function: original(maxsize, typed)(self._followed(function, once))

        functools.lru_cache = lru_cache  # type: ignore[assignment]
        functools.cache = lru_cache(None)  # type: ignore[assignment]

    def _followed(self, function: Callable[..., Any], once: dict[str, set[Block]]) -> Callable[..., Any]:
        block = self._block(function.__code__) if hasattr(function, "__code__") else None
        if block is None:
            return function
        path = block[0]

        @functools.wraps(function)
        def followed(*arguments: Any, **named: Any) -> Any:
            with self.context(once[path], path):
                return function(*arguments, **named)

        return followed

    def _empty(self) -> None:
        """Give what was called since the last time to the innermost context."""
        codes = self._called.copy()
        self._called.difference_update(codes)
        known = self._blocks
        executed = self._contexts[-1][0]
        for code in codes:
            block = known[code] if code in known else known.setdefault(code, self._block(code))
            if block is not None:
                executed.add(block)
        if self._traces and sys.version_info >= (3, 12):
            sys.monitoring.restart_events()

    def path(self, name: str) -> str | None:
        """Return the path of a Python file from the root, if it is one of the repository."""
        path = name.removeprefix(self._root).replace(os.sep, "/")
        return path if name.startswith(self._root) and path in self._tree.sources else None

    def _block(self, code: CodeType) -> Block | None:
        """Return the block of some code, if it is one of the repository."""
        path = self.path(code.co_filename)
        return None if path is None else (path, self._tree.sources[path].block_at(code.co_firstlineno))
