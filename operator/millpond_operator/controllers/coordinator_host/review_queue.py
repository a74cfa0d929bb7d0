"""The queue for token reviews: limited in total and by sender, with turns between the senders."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ("ReviewQueue", "ReviewTurn")


class ReviewQueue:
    """Gives out turns round-robin, so that a sender of many tokens does not delay others.

    Args:
        at_once: the number of concurrent turns.
        per_sender: the limit of waiting places of one sender.
        most: the limit of waiting places in total.
    """

    def __init__(self, at_once: int, per_sender: int, most: int) -> None:
        self._free = at_once
        self._per_sender = per_sender
        self._most = most
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """The waiting places by sender; the first sender is next."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, sender: str) -> ReviewTurn | None:
        """Take a place in the queue at once; return None when the queue is full for the sender."""
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
        """End a turn and let the next one begin."""
        while self._waiting:
            sender, queue = next(iter(self._waiting.items()))
            del self._waiting[sender]
            turn = queue.popleft()
            self._count -= 1
            if queue:
                self._waiting[sender] = queue  # at the end of the round
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class ReviewTurn:
    """A place in the queue. Enter it as a context, once, to wait for its turn."""

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
