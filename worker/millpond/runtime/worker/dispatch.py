"""Passes polled records to tasks, global stores and restorations, and handles the consumer's events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import groupby

from confluent_kafka import Message

from millpond.errors import BrokerError
from millpond.runtime import error_codes
from millpond.runtime.commit.pipeline import CommitFailed
from millpond.runtime.error_codes import Kind, kind_of
from millpond.runtime.missing_rights import Access
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.tasks.executor import TaskExecutor

__all__ = ("Dispatcher",)

log: logging.Logger = logging.getLogger(__name__)

_topic = Message.topic
_partition = Message.partition
_error = Message.error


class Dispatcher:
    """The dispatcher of polled messages to tasks, global stores and restorations.

    Args:
        executor: holds the tasks, global stores and restorations.
        on_unknown_topic: called when a topic may have been deleted.
        access: names user and group in errors about missing rights.
    """

    def __init__(self, executor: TaskExecutor, on_unknown_topic: Callable[[], None], access: Access) -> None:
        self._executor = executor
        self._access = access
        self._on_unknown_topic = on_unknown_topic

    def dispatch(self, messages: list[Message]) -> None:
        """Deliver the result of one poll of the inputs: records first, then events of the client.

        Raises:
            BrokerError: a partition cannot be read.
            CommitFailed: the partition no longer contains the position.
            MillpondError: a handler returned FAIL.
        """
        self._split(messages, self._deliver, self._event)

    def copied(self, messages: list[Message]) -> None:
        """Deliver the result of one poll of the changelogs; raises as `dispatch`."""
        self._split(messages, self._executor.reader.records, self._copy_event)

    def _split(
        self,
        messages: list[Message],
        deliver: Callable[[Partition, Sequence[Message]], None],
        on_event: Callable[[Message], None],
    ) -> None:
        events: list[Message] = []
        if any(map(_error, messages)):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        for topic, of_topic in groupby(messages, _topic):
            for number, of_partition in groupby(of_topic, _partition):
                deliver(Partition(topic or "", number or 0), list(of_partition))
        for message in events:
            on_event(message)

    def _deliver(self, partition: Partition, messages: Sequence[Message]) -> None:
        task = self._executor.by_input.get(partition)
        if task is not None:
            task.add(partition.topic, messages)
            return
        self._executor.globals.apply(partition, messages)
        # Other records belong to a task that was dropped a moment ago.

    def _copy_event(self, message: Message) -> None:
        error = message.error()
        code = None if error is None else error.code()
        partition = Partition(message.topic() or "", message.partition() or 0)
        if code == error_codes.PARTITION_EOF:
            self._executor.reader.reached_end(partition, int(message.offset() or 0))
        elif code != error_codes.AUTO_OFFSET_RESET or not self._executor.reopen(partition):
            self._event(message)

    def _event(self, message: Message) -> None:
        error = message.error()
        assert error is not None
        code, kind = error.code(), kind_of(error)
        partition = Partition(message.topic() or "", message.partition() or 0)
        if code == error_codes.PARTITION_EOF:
            self._reached_end(partition, int(message.offset() or 0))
        elif kind is Kind.MISSING:
            # The topic was deleted, or it is so new that the broker does not know it yet.
            self._on_unknown_topic()
        elif kind is Kind.FORBIDDEN:
            topics = [partition.topic] if partition.topic else ()
            what = partition.topic or "the committed offsets"
            raise BrokerError(f"cannot read {what}: {error.str()}. {self._access.cure(error, topics)}")
        elif code == error_codes.AUTO_OFFSET_RESET:
            # Retention has deleted the position; going back finds where the partition begins now.
            updater = self._executor.globals.of_topic(partition.topic)
            if updater is not None:
                self._executor.globals.rebuild(updater, "no longer has the position")
            raise CommitFailed(f"{partition} no longer contains the worker's position: {error.str()}")
        elif kind in (Kind.UNREADABLE, Kind.RECORD):
            # The client would continue after the records that it cannot read.
            raise BrokerError(f"records of {partition} cannot be read, and none of them is committed: {error.str()}.")
        else:
            log.warning("partition %s: the consumer reports an error: %s", partition, error.str())

    def _reached_end(self, partition: Partition, offset: int) -> None:
        self._executor.globals.reached_end(partition, offset)
        task = self._executor.by_input.get(partition)
        if task is not None and task.inputs[partition.topic].reached_end(offset):
            # Past transaction markers. It is committed, as in Kafka Streams: the lag that others compute ends at 0.
            task.commit_needed = True
