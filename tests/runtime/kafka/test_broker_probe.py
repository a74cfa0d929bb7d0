"""What follows from a check whether each broker answers, with a client that answers as it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millpond.runtime import error_codes
from millpond.runtime.kafka import broker_probe
from millpond.runtime.kafka.broker_probe import BrokerProbe
from millpond.runtime.kafka.leading_brokers import BrokerCheck

_BROKERS = (1, 2, 3)
ASKED_AT = 10.0


class _Cluster:
    """Three brokers, each of which leads one partition of a topic, as a client sees them.

    Attributes:
        silent: the brokers that do not answer requests for end offsets.
        informs: the broker that answers requests for metadata; None for none.
        looks: called with each of these requests.
        clients: how many clients were made.
    """

    def __init__(self) -> None:
        self.silent: set[int] = set()
        self.informs: int | None = 1
        self.clients = 0
        self.looks: Callable[[], object] = lambda: None

    def client(self, _settings: Mapping[str, Any], logger: object) -> _Cluster:
        """Return another client."""
        self.clients += 1
        return self

    def list_topics(self, _topic: str | None = None, timeout: float = 0.0) -> Any:
        """As an admin client."""
        self.looks()
        if self.informs is None:
            raise KafkaException(KafkaError(error_codes.TRANSPORT))
        partitions = {broker: SimpleNamespace(leader=broker) for broker in _BROKERS}
        topics = {"orders": SimpleNamespace(error=None, partitions=partitions)}
        return SimpleNamespace(topics=topics, orig_broker_id=self.informs)

    def list_offsets(self, asked: Mapping[TopicPartition, Any], **_: object) -> dict[TopicPartition, Future[Any]]:
        """As an admin client."""
        found: dict[TopicPartition, Future[Any]] = {}
        for each in asked:
            found[each] = answer = Future()
            if each.partition in self.silent:
                answer.set_exception(KafkaException(KafkaError(error_codes.TIMED_OUT)))
            else:
                answer.set_result(SimpleNamespace(offset=7))
        return found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> _Cluster:
    """Three brokers that all answer."""
    made = _Cluster()
    monkeypatch.setattr(broker_probe, "AdminClient", made.client)
    return made


def _probe() -> BrokerProbe:
    return BrokerProbe({}, lambda: ["orders"], {}, lambda: ASKED_AT)


def test_a_broker_that_does_not_answer_is_told_from_the_others(cluster: _Cluster) -> None:
    probe = _probe()
    assert probe.each_answers(1.0).answers == {1: True, 2: True, 3: True}
    cluster.silent = {2}
    assert probe.each_answers(1.0) == BrokerCheck(ASKED_AT, {1: True, 2: False, 3: True})


def test_a_check_in_which_a_broker_that_does_answer_seems_silent_proves_nothing(cluster: _Cluster) -> None:
    """The client was too slow on a busy machine, so the other brokers may answer as well."""
    probe = _probe()
    probe.each_answers(1.0)
    cluster.silent = {1, 2}
    assert probe.each_answers(1.0) == BrokerCheck(ASKED_AT, {1: False, 2: False, 3: True}, clear=False)
    cluster.informs = None
    assert probe.each_answers(1.0) == BrokerCheck(ASKED_AT, {1: False, 2: False, 3: True})


def test_brokers_are_asked_after_their_leaders_are_known(cluster: _Cluster) -> None:
    """An answer counts from right before its question: the requests before it may take long."""
    now = [10.0]
    probe = BrokerProbe({}, lambda: ["orders"], {}, lambda: now[0])
    cluster.looks = lambda: now.append(now.pop() + 5.0)
    assert probe.each_answers(1.0).asked_at == 15.0


def test_a_client_is_replaced_after_three_failed_checks_in_a_row(cluster: _Cluster) -> None:
    """A new one connects to all brokers first; an old one may not find a broker again that was down."""
    probe = _probe()
    for silent, clients in (({2}, 1), ({2}, 1), (set[int](), 1), ({2}, 1), ({2}, 1), ({2}, 2), ({2}, 2)):
        cluster.silent = silent
        probe.each_answers(1.0)
        assert cluster.clients == clients
