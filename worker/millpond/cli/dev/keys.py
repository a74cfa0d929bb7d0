"""The keys in the session's own terminal; `KEYS` in `actions` lists them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import termios
import tty
from collections.abc import AsyncIterator

from millpond.cli.session import Session

from .actions import KEYS, Key, perform
from .remote import CommandFailed
from .supervisor import Fleet

__all__ = ("Keyboard", "listening")

log: logging.Logger = logging.getLogger("millpond.cli")


class Keyboard:
    """The handler of pressed keys, which performs their actions.

    Args:
        fleet: the session's workers.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._pending: Key | None = None
        """A pressed key that waits for the digit of a worker."""

    def press(self, char: str) -> None:
        """Handle one pressed key. A key without an action is ignored, and cancels a pending action."""
        pending, self._pending = self._pending, None
        if pending is not None and char.isdecimal():
            self._perform(pending, f"w{char}")
            return
        key = KEYS.get(char)
        if key is None:
            return
        if key.takes_worker:
            self._pending = key
        else:
            self._perform(key)

    def _perform(self, key: Key, worker: str = "") -> None:
        try:
            log.debug("%s", perform(self._fleet, key.command(self._fleet, worker)))
        except CommandFailed as error:
            log.warning("%s", error)


@contextlib.asynccontextmanager
async def listening(fleet: Fleet, session: Session) -> AsyncIterator[None]:
    """Handle keys while the block runs, if standard input is a terminal."""
    if not (session.live and sys.stdin.isatty()):
        yield
        return
    keyboard = Keyboard(fleet)
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read() -> None:
        for char in os.read(descriptor, 64).decode(errors="replace"):
            keyboard.press(char)

    tty.setcbreak(descriptor)  # Ctrl-C remains a signal
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
