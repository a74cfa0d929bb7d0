"""Work beside a test, in a thread of its own."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

__all__ = ("Beside",)


class Beside(ABC):
    """Works in a thread of its own as long as the `with` block lasts.

    An error that ends the thread is raised at the end of the block: what died early has watched nothing since.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(1, type(self).__name__.lower())
        self._work: Future[None]

    def __enter__(self) -> Self:
        self._work = self._pool.submit(self._run)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()
        self._end()
        if kind is None:
            self._work.result()

    @abstractmethod
    def _run(self) -> None:
        """Work until `_over` is set."""

    def _end(self) -> None:  # noqa: B027 - most have nothing to do
        """Called after the thread has ended."""
