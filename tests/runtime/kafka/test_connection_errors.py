"""Which of several errors of a connection tells a user why Kafka does not answer."""

from __future__ import annotations

from itertools import permutations

import pytest

from millpond.runtime.kafka.admin import _more_telling

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
