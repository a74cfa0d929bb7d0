"""Keys in the session's own terminal: `+` and `-` for one worker more or fewer, `k` or `d` and a digit to kill or drain."""

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

from .remote import CommandFailed
from .supervisor import Fleet

__all__ = ("Keys", "listening")

log: logging.Logger = logging.getLogger("millpond.cli")


class Keys:
    """Turns keys into commands.

    Args:
        fleet: what they command.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._pending = ""

    def press(self, key: str) -> None:
        """A key was pressed; one that means nothing does nothing."""
        pending, self._pending = self._pending, ""
        fleet = self._fleet
        try:
            if key in "kd":
                self._pending = key
            elif key.isdecimal() and pending:
                said = fleet.kill(f"w{key}") if pending == "k" else fleet.drain(f"w{key}")
                log.debug("%s", said)
            elif key in "+-":
                log.debug("%s", fleet.scale(fleet.wanted + (1 if key == "+" else -1)))
        except CommandFailed as error:
            log.warning("%s", error)


@contextlib.asynccontextmanager
async def listening(fleet: Fleet, session: Session) -> AsyncIterator[None]:
    """Take keys while the block runs, if there is a terminal to press them in."""
    if not (session.live and sys.stdin.isatty()):
        yield
        return
    keys = Keys(fleet)
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read() -> None:
        for key in os.read(descriptor, 64).decode(errors="replace"):
            keys.press(key)

    tty.setcbreak(descriptor)  # Ctrl-C still is a signal
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
