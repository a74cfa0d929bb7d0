"""Input of the application with every operator: every value is unique, so a lost or doubled record shows itself."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.chaos.operators.application import GRACE_MS, INPUTS, PARTITIONS, WINDOW_MS
from tests.chaos.sending import Sender

__all__ = ("CLOSING_ROUNDS", "FLUSH", "GLOBALS", "Generator", "Sent", "closing", "draw")

FLUSH = "flush"
"""The beginning of the keys of records that close windows."""
CLOSING_ROUNDS = 3
"""Operators look for closed windows once a second by the wall clock, so the last of several rounds closes them."""
GLOBALS = {letter: f"of-{letter}" for letter in "0a2b4c6d"}
"""The rows of the global table, by key; some of `_LETTERS` have none."""

_LETTERS = "0a2b4c6d8e"
_KEYS = [f"k{number}" for number in range(30)]
_FOREIGN_KEYS = _KEYS[:10]
_WEIGHTS = {"left": 8, "right": 5, "table": 3, "other": 2, "versions": 2}
_JITTER_MS = 2_000
_SPEED = 2
"""Event time passes faster than the clock, so that windows close during short runs."""
_BACK_MS = 4 * 3600 * 1000
_DELETIONS = 0.12


class Sent(NamedTuple):
    """One input record."""

    topic: str
    key: str
    value: str | None
    timestamp: int
    """Epoch milliseconds."""


def draw(pick: random.Random, number: int, now_ms: int) -> Sent:
    """Return the record of this number: its value is a letter, the number in base 36, and a digit."""
    topic = pick.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    key = pick.choice(_FOREIGN_KEYS if topic == "other" else _KEYS)
    value: str | None = f"{pick.choice(_LETTERS)}{_base36(number)}{pick.randrange(10)}"
    if topic not in {"left", "right"} and pick.random() < _DELETIONS:
        value = None
    return Sent(topic, key, value, now_ms - pick.randrange(_JITTER_MS))


def closing(number: int, now_ms: int, round_: int) -> Iterator[tuple[Sent, int]]:
    """Yield records that close all windows, with their partitions."""
    timestamp = now_ms + 2 * WINDOW_MS + 2 * GRACE_MS + round_
    for partition in range(PARTITIONS):
        for topic in ("left", "right"):
            yield Sent(topic, f"{FLUSH}{partition}", f"x{_base36(number)}0", timestamp), partition
            number += 1


def _base36(number: int) -> str:
    text = ""
    for _ in range(4):
        number, digit = divmod(number, 36)
        text = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + text
    return text


class Generator(Sender):
    """Sends records of all inputs with one producer, so that no topic runs ahead of another."""

    def __init__(self, bootstrap_servers: str, seed: int, rate: float) -> None:
        super().__init__(bootstrap_servers, seed, rate, 1)
        self._start_ms = int(time.time() * 1000) - _BACK_MS
        self._number = 0
        self._closed_at: int | None = None
        self._rounds = 0

    def sent_at(self, timestamp: int) -> float:
        """Return when records of this event time were sent, in monotonic seconds."""
        return self._started + (timestamp - self._start_ms) / 1000 / _SPEED

    def close_windows(self) -> None:
        """Send records that close all windows: two for each task of the first sub-topology."""
        if self._closed_at is None:
            self._closed_at = self._now_ms(time.monotonic() - self._started)
        for record, partition in closing(self._number, self._closed_at, self._rounds):
            self._send(record, partition)
        self._rounds += 1
        self._flush()

    def _now_ms(self, elapsed: float) -> int:
        return self._start_ms + int(elapsed * 1000 * _SPEED)

    def _prepare(self) -> None:
        for key, value in GLOBALS.items():
            self._produce(self._producers[0], "global", key, value, self._start_ms)
        self._flush()
        # The task of a global table needs no offset, and its topic is not among the inputs.
        self.ends = {place: end for place, end in self.ends.items() if place[0] in INPUTS}

    def _next(self, elapsed: float) -> None:
        self._send(draw(self._random, self._number, self._now_ms(elapsed)))

    def _send(self, record: Sent, partition: int = -1) -> None:
        self._number += 1
        self.sent += record.topic == "left"
        self._produce(self._producers[0], record.topic, record.key, record.value, record.timestamp, partition)
