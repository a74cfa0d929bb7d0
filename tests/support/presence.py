"""The reports of running workers in Kafka, which `millpond reset` and others look for."""

from __future__ import annotations

from millpond.runtime.ownership.presence import Presence, decode_presence, presence_group
from tests.support import kafka

__all__ = ("await_report",)


def await_report(bootstrap_servers: str, application_id: str, topic: str, worker: str) -> None:
    """Wait until a worker has reported that it runs: it does some time after it has its tasks, the input `topic`."""

    def reports() -> list[Presence]:
        found = kafka.committed_offsets(bootstrap_servers, presence_group(application_id), topic)
        return [decode_presence(text) for offset, text in found.values() if offset >= 0]

    kafka.eventually(
        lambda: any(each.worker == worker and not each.ended for each in reports()), f"{worker} reported that it runs"
    )
