"""What people do to changelogs: they delete one, restore it as the refusal of the workers says, or limit its records."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from millpond.runtime.kafka.clients import transactional_id
from tests.chaos.application import PARTITIONS
from tests.chaos.stage import APPLICATION, Stage
from tests.support.kafka import Row, alter_topic, create_topic, delete_topics, eventually, read, topic_names

__all__ = ("admit_records", "expected", "lose_and_restore", "reject_records")

_DELETED = "was deleted, but the committed offsets still exist"
_REJECTED = "was rejected: its record for changelog"
#: Below a batch with one record, and just above the markers of transactions, which a topic has to take: the broker would
#: try to write one for ever, and let nobody have the transactional id. And what a topic takes by default.
_LIMIT, _NO_LIMIT = "80", "1048588"
_LIMITING = "max.message.bytes"
_ENDED_S, _REFUSED_S, _GONE_S, _FENCED_S = 60.0, 60.0, 30.0, 30.0
_TICK_S = 0.05


def expected(why: str) -> bool:
    """Whether a worker that ended for this reason did what it should."""
    return _DELETED in why or _REJECTED in why


def reject_records(stage: Stage, store: str) -> None:
    """Let the broker take no record of a changelog."""
    alter_topic(stage.address, stage.changelog(store), **{_LIMITING: _LIMIT})


def admit_records(stage: Stage, store: str) -> None:
    """Let the broker take them again."""
    alter_topic(stage.address, stage.changelog(store), **{_LIMITING: _NO_LIMIT})


def lose_and_restore(stage: Stage, store: str, wrong: Callable[[str], None]) -> None:
    """Delete a changelog while all workers are down, see that each refuses to go on, and restore it with its content.

    Args:
        stage: where; its workers run again at the end, on empty disks.
        store: whose changelog.
        wrong: told of a worker that did not refuse.
    """
    wanted = {name: worker.start_at for name, worker in stage.workers.items() if worker.wanted}
    _end_workers(stage)
    _fence(stage)
    topic = stage.changelog(store)
    rows, config = read(stage.address, topic), _config(stage.address, topic)
    delete_topics(stage.address, [topic])
    eventually(lambda: topic not in topic_names(stage.address), f"{topic} is deleted", _GONE_S)
    _see_refusals(stage, wrong)
    _end_workers(stage)
    create_topic(stage.address, topic, PARTITIONS, config)
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
    """End what transactions killed workers left open: all that is committed can be read then."""
    for name in stage.names:
        id = transactional_id(APPLICATION, name)
        Producer({"bootstrap.servers": stage.address, "transactional.id": id}).init_transactions(_FENCED_S)


def _see_refusals(stage: Stage, wrong: Callable[[str], None]) -> None:
    waiting = set(stage.usual)
    for name in waiting:
        stage.workers[name].want()
    deadline = time.monotonic() + _REFUSED_S
    while waiting:
        waiting -= {exit.who for exit in stage.supervise() if _DELETED in exit.why}
        if time.monotonic() > deadline:
            wrong(f"{', '.join(sorted(waiting))} did not refuse to go on without a changelog")
            return
        time.sleep(_TICK_S)


def _config(address: str, topic: str) -> dict[str, str]:
    """What the topic was made with."""
    client = AdminClient({"bootstrap.servers": address})
    (found,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entries = found.result(_GONE_S).items()
    return {name: str(entry.value) for name, entry in entries if not entry.is_default and name != _LIMITING}


def _write(address: str, topic: str, rows: list[Row]) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5})
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
