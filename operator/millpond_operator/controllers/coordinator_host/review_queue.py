"""Who waits for a review of a token: bounded in total and by sender, and one sender after the other."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ("ReviewQueue", "ReviewTurn")


class ReviewQueue:
    """Gives out turns. Whoever sends much waits for its own; others are served in between.

    Args:
        at_once: how many have a turn at the same time.
        per_sender: how many of one sender may wait.
        most: how many may wait in total.
    """

    def __init__(self, at_once: int, per_sender: int, most: int) -> None:
        self._free = at_once
        self._per_sender = per_sender
        self._most = most
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By sender; the first one is next."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, sender: str) -> ReviewTurn | None:
        """Take a place, which counts from now on; None when the sender may not wait for another turn."""
        if self._free:
            self._free -= 1
            return ReviewTurn(self, None)
        if self._count >= self._most or len(self._waiting.get(sender, ())) >= self._per_sender:
            return None
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(sender, deque()).append(mine)
        self._count += 1
        return ReviewTurn(self, mine)

    def pass_on(self) -> None:
        """A turn is over: the next one begins."""
        while self._waiting:
            sender, queue = next(iter(self._waiting.items()))
            del self._waiting[sender]
            turn = queue.popleft()
            self._count -= 1
            if queue:
                self._waiting[sender] = queue  # last again
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class ReviewTurn:
    """A place in the queue, and then a turn: enter it as a context, once."""

    def __init__(self, queue: ReviewQueue, granted: asyncio.Future[None] | None) -> None:
        self._queue = queue
        self._granted = granted

    async def __aenter__(self) -> None:
        """Wait for the turn."""
        if self._granted is None:
            return
        try:
            await self._granted
        except asyncio.CancelledError:
            if not self._granted.cancelled():
                self._queue.pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._queue.pass_on()
