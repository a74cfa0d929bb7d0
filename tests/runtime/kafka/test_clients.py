"""The client properties on which the guarantees depend."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.runtime.config.model import Config
from millpond.runtime.kafka import clients


class _Built(dict):
    """A fake client that keeps its properties."""

    def __init__(self, settings: dict[str, Any], **_: Any) -> None:
        super().__init__(settings)


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make no real client."""
    monkeypatch.setattr(clients, "Consumer", _Built)
    monkeypatch.setattr(clients, "Producer", _Built)


def _config(guarantee: str) -> Config:
    return Config.of(
        {"application.id": "app", "bootstrap.servers": "b:1", "worker.id": "w0", "processing.guarantee": guarantee}
    )


@pytest.mark.parametrize(
    ("guarantee", "level"), [("exactly_once", "read_committed"), ("at_least_once", "read_uncommitted")]
)
def test_exactly_once_reads_only_committed_records(guarantee: str, level: str) -> None:
    """For inputs and changelogs: aborted records must be neither counted nor restored."""
    consumer: Any = clients.make_consumer(_config(guarantee), None, print)
    assert consumer["isolation.level"] == level
    assert consumer["enable.auto.commit"] is False
    assert consumer["auto.offset.reset"] == "error"


def test_all_partitions_share_the_memory_for_reading_ahead() -> None:
    """The client counts the consumer's one queue: ten partitions with a limit of 1 MiB fetch 2 MiB, not 10."""
    inputs: Any = clients.make_consumer(_config("exactly_once"), None, print)
    changelogs: Any = clients.make_consumer(_config("exactly_once"), None, print, clients.COPY_AHEAD_KIB)
    assert inputs["queued.max.messages.kbytes"] == clients.READ_AHEAD_KIB
    assert changelogs["queued.max.messages.kbytes"] == clients.COPY_AHEAD_KIB


def test_ownership_lookup_waits_for_pending_offsets() -> None:
    """Only a survey does not, which chooses what to look up."""
    look_up: Any = clients.make_offset_reader(_config("exactly_once"), print)
    survey: Any = clients.make_offset_reader(_config("exactly_once"), print, stable=False)
    assert look_up["isolation.level"] == "read_committed"
    assert survey["isolation.level"] == "read_uncommitted"


def test_producer_has_its_owners_transactional_id() -> None:
    """Another producer with the same id fences it."""
    producer: Any = clients.make_producer(_config("exactly_once"), "w7", print)
    assert producer["transactional.id"] == "app-w7"
    assert producer["enable.idempotence"] is True
    assert producer["partitioner"] == "murmur2_random"


def test_producer_without_transactions_drops_nothing_silently() -> None:
    """With at least once, a record that cannot be delivered is a fatal error, and deliveries have no deadline."""
    producer: Any = clients.make_producer(_config("at_least_once"), None, print)
    assert producer["enable.gapless.guarantee"] is True
    assert producer["message.timeout.ms"] == 0
    assert "transactional.id" not in producer
