"""The requests of a lookup while a client is silent, on a clock of the test."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millpond.runtime.kafka import admin
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.ownership import takeover

_SILENCE_S = 2.0
"""For so long a request waits for its first client."""


class _Clock:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait_in_vain(self, seconds: float) -> None:
        self.now += seconds
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    made = _Clock()
    for module in (admin, takeover):
        monkeypatch.setattr(module, "time", made)
    return made


def test_a_silent_reader_of_offsets_is_replaced_after_two_seconds(clock: _Clock) -> None:
    """A new one is answered at once, and another one confirms it half a second later: a broker may have been frozen.

    The silent one would be waited for until its connection is closed.
    """
    replaced: list[float] = []

    def committed(_wanted: object, timeout: float) -> list[TopicPartition]:
        if not replaced:
            clock.wait_in_vain(timeout)
        return [TopicPartition("in", 0, 7)]

    consumer: Any = SimpleNamespace(committed=committed, poll=lambda _: None)
    store = takeover.OffsetStore(
        lambda: consumer, lambda: replaced.append(clock.now), lambda: consumer, lambda: False, 120.0
    )
    assert store.read([Partition("in", 0)])[Partition("in", 0)].offset == 7
    assert replaced == [_SILENCE_S, clock.now - 0.5]
    assert clock.now < _SILENCE_S + 0.6


def test_a_silent_admin_client_is_replaced_after_two_seconds(clock: _Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests for the ends of changelogs go to a new one."""
    monkeypatch.setattr(admin, "answers", lambda *_: True)
    cluster = admin.KafkaAdmin(
        {"bootstrap.servers": "127.0.0.1:1"}, patience=timedelta(minutes=2), stopping=lambda: False
    )
    asked: list[Any] = []

    def request(client: Any, timeout: float) -> float:
        asked.append(client)
        if client is asked[0]:
            clock.wait_in_vain(timeout)
        return clock.now

    assert cluster._retry(request, "the ends") < _SILENCE_S + 1
    assert len(asked) == 2
