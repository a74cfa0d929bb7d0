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
    """A new one is answered at once; the silent one would be waited for until its connection is closed."""
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
    assert replaced == [_SILENCE_S]


def test_a_late_answer_to_a_known_reader_is_confirmed_by_a_new_one(clock: _Clock) -> None:
    """Its broker may have been frozen, and answers with offsets of the past; a new client finds the successor."""
    answers = [(0.01, 7), (0.24, 8), (0.26, 8), (0.4, 9), (0.01, 9)]
    replaced: list[float] = []

    def committed(_wanted: object, timeout: float) -> list[TopicPartition]:
        late_s, offset = answers.pop(0)
        clock.now += late_s
        return [TopicPartition("in", 0, offset)]

    made: list[Any] = [SimpleNamespace(committed=committed, poll=lambda _: None)]

    def forget() -> None:
        replaced.append(round(clock.now, 2))
        made.append(SimpleNamespace(committed=committed, poll=lambda _: None))

    store = takeover.OffsetStore(lambda: made[-1], forget, lambda: made[-1], lambda: False, 120.0)
    row = Partition("in", 0)
    assert [store.read([row])[row].offset for _ in range(4)] == [7, 8, 9, 9]
    assert replaced == [0.51], "the third answer was late; the new client was slow because it had to connect"


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

    assert cluster.ask(request, "the ends") < _SILENCE_S + 1
    assert len(asked) == 2
