"""Throttling by the brokers: how long they make a producer wait because of a quota."""

from __future__ import annotations

import time

from confluent_kafka import ThrottleEvent

__all__ = ("Throttling",)


class Throttling:
    """The times for which brokers have throttled the worker's producers. Only the worker's loop may use it.

    Attributes:
        total_s: the sum of all times, in seconds.
        longest_s: the longest time since the last `reset`, in seconds.
    """

    def __init__(self) -> None:
        self.total_s: float = 0.0
        self.longest_s: float = 0.0
        self._until = 0.0

    def note(self, event: ThrottleEvent) -> None:
        """Record that a broker delays the producer; its `throttle_cb`."""
        self.total_s += event.throttle_time
        self.longest_s = max(self.longest_s, event.throttle_time)
        self._until = max(self._until, time.monotonic() + event.throttle_time)

    def reset(self) -> None:
        """Begin a new longest time."""
        self.longest_s = 0.0

    @property
    def left_s(self) -> float:
        """How long a broker will still delay requests, in seconds."""
        return max(0.0, self._until - time.monotonic())
