"""The deletion of processed records from repartition topics, and what it says when it fails."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from millpond.runtime.kafka.purging import Purges
from millpond.runtime.missing_rights import Access


class _Client:
    """An admin client whose deletions end with these outcomes, None for success."""

    def __init__(self, *codes: int | None) -> None:
        self._codes = list(codes)

    def delete_records(self, wanted: list[Any]) -> dict[Any, Future[Any]]:
        future: Future[Any] = Future()
        code = self._codes.pop(0)
        if code is None:
            future.set_result(None)
        else:
            future.set_exception(KafkaException(KafkaError(code)))
        return dict.fromkeys(map(str, wanted), future)


@pytest.mark.parametrize(
    ("code", "replaced", "warnings"),
    [(None, 0, 0), (KafkaError._TIMED_OUT, 2, 0), (KafkaError.TOPIC_AUTHORIZATION_FAILED, 0, 1)],
    ids=["deleted", "no answer", "no right"],
)
def test_missing_right_is_told_once_and_silence_replaces_the_client(
    code: int | None, replaced: int, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a word, repartition topics would grow for ever."""
    silent: list[int] = []
    client: Any = _Client(code, code, code)
    purges = Purges(lambda: silent.append(1), Access("User:alice"))
    for offset in range(1, 4):
        assert purges.send(lambda: client, {("app-words-repartition", 0): offset})
    assert len(silent) == replaced
    assert caplog.text.count("the topics grow") == warnings
    assert caplog.text.count("User:alice lacks Delete on topic 'app-words-repartition'") == warnings
