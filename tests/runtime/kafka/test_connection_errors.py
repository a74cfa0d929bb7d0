"""Which of several errors of a connection tells a user why Kafka does not answer."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from millpond.errors import BrokerError
from millpond.runtime.kafka.admin import KafkaAdmin, _more_telling

CLOSED = "Disconnected: SSL connection closed by peer"
HANDSHAKE = f"SSL handshake failed: {CLOSED}: connecting to a PLAINTEXT broker listener?"
OTHER = "Connection reset by peer"


@pytest.mark.parametrize("texts", list(permutations((CLOSED, HANDSHAKE, OTHER))))
def test_how_a_handshake_failed_is_told_whenever_it_comes(texts: tuple[str, ...]) -> None:
    """Of others the first one stays: a changed text would look like news."""
    told = texts[0]
    for each in texts[1:]:
        told = _more_telling(told, each)
    assert told == HANDSHAKE
    assert _more_telling(CLOSED, OTHER) == CLOSED


def test_wrong_password_is_not_told_as_silence(caplog: pytest.LogCaptureFixture) -> None:
    """The first line about it already says what to check."""
    cluster = KafkaAdmin({"bootstrap.servers": "kafka:1"}, patience=timedelta(seconds=0.2), stopping=lambda: False)

    def reject(_: float) -> None:
        cluster._note_error(KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error"))

    def list_topics(timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, f"no answer in {timeout} s"))

    client: Any = SimpleNamespace(poll=reject, list_topics=list_topics)
    cluster._admin = client
    with pytest.raises(BrokerError, match="rejects this application's credentials"):
        cluster.topics()
    assert "rejects this application's credentials (SASL authentication error)" in caplog.records[0].message
    assert "does not answer" not in caplog.text
