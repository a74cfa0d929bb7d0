"""A fixed order for the coroutines, resources and connections that kopf and aiohttp keep in sets.

The order of such a set follows from memory addresses and from the process's hash seed, so it differs between processes.
Neither library has a public hook for the order. Only simulations patch their internals; the operator uses kopf's public
names.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, MutableSet
from typing import Any
from unittest import mock

import aiohttp
from kopf._cogs.clients import scanning
from kopf._core.reactor import orchestration

__all__ = ("fixed_order",)

_READ = ("_read_old_api", "_read_new_apis", "_read_version")
_plain_init_connector = aiohttp.BaseConnector.__init__
_spawn_missing_watchers = orchestration.spawn_missing_watchers


@contextlib.contextmanager
def fixed_order() -> Iterator[None]:
    """Make kopf and aiohttp act in the same order in each process."""
    with contextlib.ExitStack() as stack:
        for name in _READ:
            stack.enter_context(mock.patch.object(scanning, name, _as_task(getattr(scanning, name))))
        stack.enter_context(mock.patch.object(orchestration, "spawn_missing_watchers", _spawn_in_order))
        stack.enter_context(mock.patch.object(aiohttp.BaseConnector, "__init__", _init_connector))
        yield


def _as_task(read: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., asyncio.Task[Any]]:
    """Read in a task: the hash of a virtual loop's task is its number, the hash of a coroutine is its address."""

    def start(**options: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(read(**options))

    return start


async def _spawn_in_order(
    *, watched_resources: Iterable[Any], watched_namespaces: Iterable[Any], **options: Any
) -> None:
    await _spawn_missing_watchers(
        watched_resources=sorted(watched_resources, key=lambda each: (each.group, each.version, each.plural)),
        watched_namespaces=sorted(watched_namespaces, key=lambda each: each or ""),
        **options,
    )


def _init_connector(self: Any, *args: Any, **options: Any) -> None:
    _plain_init_connector(self, *args, **options)
    self._acquired = _OrderedSet()  # closing a connector closes these, one after the other


class _OrderedSet(MutableSet[Any]):
    """A set in insertion order."""

    def __init__(self) -> None:
        self._elements: dict[Any, None] = {}

    def __contains__(self, element: object) -> bool:
        return element in self._elements

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def add(self, element: Any) -> None:
        self._elements[element] = None

    def discard(self, element: Any) -> None:
        self._elements.pop(element, None)
