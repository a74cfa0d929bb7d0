"""Faults in changelogs: one is deleted, restored as the workers' error says, or rejects records."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from millpond.runtime.kafka.clients import transactional_id
from tests.chaos.applications import APPLICATION
from tests.chaos.stage import Stage
from tests.support import kafka
from tests.support.kafka import Row, alter_topic, create_topic, delete_topics, eventually, read, topic_names

__all__ = ("admit_records", "expected", "lose_and_restore", "reject_records")

_DELETED = "was deleted, but the committed offsets still exist"
_REJECTED = "was rejected: its record for changelog"
#: Smaller than a batch with one record, but larger than transaction markers, which a topic must accept: the broker
#: would retry them for ever, and block the transactional id. And the default of a topic.
_LIMIT, _NO_LIMIT = "80", "1048588"
_LIMITING = "max.message.bytes"
_ENDED_S, _REFUSED_S, _GONE_S, _FENCED_S = 60.0, 60.0, 60.0, 60.0
_TICK_S = 0.05


def expected(why: str) -> bool:
    """Return whether a worker should end for this reason."""
    return _DELETED in why or _REJECTED in why


def reject_records(stage: Stage, store: str) -> None:
    """Let the broker reject all records of a changelog."""
    alter_topic(stage.address, stage.changelog(store), **{_LIMITING: _LIMIT})


def admit_records(stage: Stage, store: str) -> None:
    """Let the broker accept records of the changelog again."""
    alter_topic(stage.address, stage.changelog(store), **{_LIMITING: _NO_LIMIT})


def lose_and_restore(stage: Stage, store: str, wrong: Callable[[str], None]) -> None:
    """Delete a changelog while all workers are down, check that none of them starts, and restore the changelog.

    Args:
        stage: the processes; its workers run again at the end, with empty disks.
        store: the store of the changelog.
        wrong: called with a text if a worker started anyway.
    """
    wanted = {name: worker.start_at for name, worker in stage.workers.items() if worker.wanted}
    _end_workers(stage)
    _fence(stage)
    topic = stage.changelog(store)
    rows, config = read(stage.address, topic), _config(stage.address, topic)
    delete_topics(stage.address, [topic])
    eventually(lambda: topic not in topic_names(stage.address), f"{topic} is deleted", _GONE_S)
    _check_refusals(stage, wrong)
    _end_workers(stage)
    create_topic(stage.address, topic, stage.application.partitions, config)
    _write(stage.address, topic, rows)
    for name in stage.names:
        shutil.rmtree(stage.state_of(name), ignore_errors=True)
    for name, start_at in wanted.items():
        stage.workers[name].want(start_at)


def _end_workers(stage: Stage) -> None:
    for worker in stage.workers.values():
        worker.wanted = False
        worker.resume(worker.process)
        worker.terminate()
    deadline = time.monotonic() + _ENDED_S
    while any(worker.running for worker in stage.workers.values()):
        stage.supervise()
        if time.monotonic() > deadline:
            for worker in stage.workers.values():
                worker.kill()
        time.sleep(_TICK_S)
    stage.supervise()


def _fence(stage: Stage) -> None:
    """Abort open transactions of killed workers, so that all committed records can be read."""
    for name in stage.names:
        id = transactional_id(APPLICATION, name)
        Producer({"bootstrap.servers": stage.address, "transactional.id": id}, logger=kafka.log).init_transactions(
            _FENCED_S
        )


def _check_refusals(stage: Stage, wrong: Callable[[str], None]) -> None:
    waiting = set(stage.usual)
    for name in waiting:
        stage.workers[name].want()
    deadline = time.monotonic() + _REFUSED_S
    while waiting:
        waiting -= {exit.who for exit in stage.supervise() if _DELETED in exit.why}
        if time.monotonic() > deadline:
            wrong(f"{', '.join(sorted(waiting))} did not refuse to start without a changelog")
            return
        time.sleep(_TICK_S)


def _config(address: str, topic: str) -> dict[str, str]:
    """Return the configuration of the topic."""
    client = AdminClient({"bootstrap.servers": address}, logger=kafka.log)
    (found,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entries = found.result(_GONE_S).items()
    return {name: str(entry.value) for name, entry in entries if not entry.is_default and name != _LIMITING}


def _write(address: str, topic: str, rows: list[Row]) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5}, logger=kafka.log)
    for row in rows:
        while True:
            try:
                producer.produce(
                    topic, row.value, row.key, row.partition, timestamp=row.timestamp, headers=list(row.headers)
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert not producer.flush(_GONE_S), f"{topic} was not restored"
