"""What the consumer brings in, and whom it is for: a task, a global store, a changelog being restored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import groupby

from confluent_kafka import KafkaError, Message

from millpond.errors import BrokerError
from millpond.runtime.commit.pipeline import CommitFailed
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.tasks.executor import TaskExecutor

__all__ = ("GONE", "Dispatcher")

log: logging.Logger = logging.getLogger(__name__)

#: A topic may be gone, or be too new for a broker to know it.
GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})

_UNREADABLE = frozenset(
    {
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError.INVALID_MSG,
        KafkaError.MSG_SIZE_TOO_LARGE,
    }
)
_FORBIDDEN = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED})

_topic = Message.topic
_partition = Message.partition
_error = Message.error


class Dispatcher:
    """Hands polled messages to whom they are for."""

    def __init__(self, executor: TaskExecutor, on_doubt: Callable[[], None]) -> None:
        """Begin.

        Args:
            executor: has the tasks, the global stores and the restorations.
            on_doubt: told when a topic may be gone.
        """
        self._executor = executor
        self._on_doubt = on_doubt

    def dispatch(self, messages: list[Message]) -> None:
        """Deliver what one poll returned: records first, then what the client says of partitions.

        Raises:
            BrokerError: a partition cannot be read.
            CommitFailed: the position in a partition is gone.
            MillpondError: a handler said FAIL.
        """
        self._split(messages, self._deliver, self._event)

    def copied(self, messages: list[Message]) -> None:
        """Deliver what one poll returned for changelogs; raises as `dispatch`."""
        self._split(messages, self._executor.reader.records, self._copy_event)

    def _split(
        self,
        messages: list[Message],
        deliver: Callable[[Partition, Sequence[Message]], None],
        tell: Callable[[Message], None],
    ) -> None:
        events: list[Message] = []
        if any(map(_error, messages)):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        for topic, of_topic in groupby(messages, _topic):
            for number, of_partition in groupby(of_topic, _partition):
                deliver(Partition(topic or "", number or 0), list(of_partition))
        for message in events:
            tell(message)

    def _deliver(self, partition: Partition, messages: Sequence[Message]) -> None:
        task = self._executor.by_input.get(partition)
        if task is not None:
            task.add(partition.topic, messages)
            return
        self._executor.globals.apply(partition, messages)
        # What is left is of a task that was let go of a moment ago.

    def _copy_event(self, message: Message) -> None:
        error = message.error()
        code = None if error is None else error.code()
        partition = Partition(message.topic() or "", message.partition() or 0)
        if code == KafkaError._PARTITION_EOF:
            self._executor.reader.reached_end(partition, int(message.offset() or 0))
        elif code != KafkaError._AUTO_OFFSET_RESET or not self._executor.reopen(partition):
            self._event(message)

    def _event(self, message: Message) -> None:
        error = message.error()
        assert error is not None
        code = error.code()
        partition = Partition(message.topic() or "", message.partition() or 0)
        if code == KafkaError._PARTITION_EOF:
            self._reached_end(partition, int(message.offset() or 0))
        elif code in GONE:
            self._on_doubt()
        elif code in _FORBIDDEN:
            raise BrokerError(f"no permission to read {partition}: {error.str()}.")
        elif code == KafkaError._AUTO_OFFSET_RESET:
            # Retention was faster than this application; going back finds where the partition begins now.
            updater = self._executor.globals.of_topic(partition.topic)
            if updater is not None:
                self._executor.globals.rebuild(updater, "does not have the position any more")
            raise CommitFailed(f"the position in {partition} is not in the topic any more: {error.str()}")
        elif code in _UNREADABLE:
            # The client goes on after what it cannot read.
            raise BrokerError(f"records of {partition} cannot be read: {error.str()}. Nothing of them is committed.")
        else:
            log.warning("the consumer reports for %s: %s", partition, error.str())

    def _reached_end(self, partition: Partition, offset: int) -> None:
        self._executor.globals.reached_end(partition, offset)
        task = self._executor.by_input.get(partition)
        if task is not None:
            task.inputs[partition.topic].reached_end(offset)
