"""The presence of running workers, which `millpond reset` reads: offsets of a consumer group of its own.

A worker never joins its consumer group, and an idle one commits nothing for minutes. So every few seconds it commits,
for an input of each active task, the time and its name to the group `<application.id>/workers`, and once more when it
ends. A worker is alive if these offsets change. Owners do not follow from them.
See docs/decisions/0053-presence-of-workers.md.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from millpond.runtime.commit.pipeline import portions
from millpond.runtime.error_codes import Kind, kind_of
from millpond.runtime.kafka.clients import log as client_log
from millpond.runtime.kafka.group_requests import REQUEST_TIMEOUT_S, FutureTimeout, answer
from millpond.runtime.missing_rights import Access
from millpond.runtime.offsets.metadata import Partition, text_of

__all__ = ("PERIOD_S", "Presence", "PresenceReports", "decode_presence", "presence_group")

log: logging.Logger = logging.getLogger(__name__)

#: The time between two reports, in seconds.
PERIOD_S = 3.0
#: The same before the worker has an active task.
_WITHOUT_TASKS_S = 0.2
_TIMEOUT_S = 5.0
_LAST_TIMEOUT_S = 2.0
_TOLERATED = 3
_json = json.JSONDecoder()


class Presence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker reports. Its JSON names are short, since it is written for each task."""

    worker: str = msgspec.field(default="", name="w")
    host: str = msgspec.field(default="", name="h")
    pid: int = msgspec.field(default=0, name="p")
    ended: bool = msgspec.field(default=False, name="end")
    """Whether it is the last report of the process."""

    def __str__(self) -> str:
        where = f" on host '{self.host}'" if self.host else ""
        return f"worker '{self.worker}'{where} (process {self.pid})" if self.worker else "a worker of another version"


def presence_group(application_id: str) -> str:
    """Return the consumer group of the reports. No application has this id: a topic's name must not have a slash."""
    return f"{application_id}/workers"


def decode_presence(text: str | None) -> Presence:
    """Return a report. Text that cannot be read counts as a report of a running worker without a name.

    A client may return text that goes on with other bytes (see `offsets/metadata.py`), so JSON is read up to its end.
    """
    try:
        return msgspec.convert(_json.raw_decode(text or "")[0], Presence)
    except (ValueError, msgspec.ValidationError):
        return Presence()


class PresenceReports:
    """The reports of one worker, made by a thread from `start` to `close`.

    Args:
        application_id: the application.
        worker: the worker's id.
        settings: returns the properties of an admin client.
        inputs: returns an input partition of each active task of the worker; called from the thread.
    """

    def __init__(
        self,
        application_id: str,
        worker: str,
        settings: Callable[[], dict[str, Any]],
        inputs: Callable[[], Collection[Partition]],
    ) -> None:
        self._group = presence_group(application_id)
        self._presence = Presence(worker, socket.gethostname(), os.getpid())
        self._settings = settings
        self._inputs = inputs
        self._client: AdminClient | None = None
        self._failure = ""
        self._failures = 0
        self._reported: set[Partition] = set()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, which reports at once."""
        self._thread = threading.Thread(target=self._run, name="millpond-presence", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Report the end, and wait for the report for a short time. Without a start this does nothing."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(_LAST_TIMEOUT_S)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._closed.wait(pause_s):
            pause_s = PERIOD_S
            try:
                inputs = set(self._inputs())
                self._reported |= inputs
                self._report(self._presence, inputs, _TIMEOUT_S)
            except Exception:
                log.exception("worker %s: cannot report that it runs; reporting again", self._presence.worker)
            else:
                pause_s = PERIOD_S if inputs else _WITHOUT_TASKS_S
        inputs = set(self._inputs())
        inputs |= self._not_taken_over(self._reported - inputs)
        self._report(msgspec.structs.replace(self._presence, ended=True), inputs, _LAST_TIMEOUT_S)

    def _not_taken_over(self, inputs: Collection[Partition]) -> set[Partition]:
        """Return the inputs of tasks given away for which the last report is still this worker's: nobody runs them."""
        if not inputs:
            return set()
        asked = ConsumerGroupTopicPartitions(self._group, [TopicPartition(*each) for each in inputs])
        try:
            answers = self._admin().list_consumer_group_offsets([asked], request_timeout=REQUEST_TIMEOUT_S)
            found = answer(answers[self._group], _LAST_TIMEOUT_S / 2).topic_partitions
        except (KafkaException, FutureTimeout) as error:
            self._client = None
            log.debug("worker %s: cannot read the reports of workers: %r", self._presence.worker, error)
            return set()
        own = [each for each in found if decode_presence(text_of(each)) == self._presence]
        return {Partition(each.topic, each.partition) for each in own}

    def _report(self, presence: Presence, inputs: Collection[Partition], timeout_s: float) -> None:
        if not inputs:
            return
        text = msgspec.json.encode(presence).decode()
        now_ms = int(time.time() * 1000)
        try:
            self._commit((TopicPartition(*each, now_ms, text) for each in sorted(inputs)), timeout_s)
        except (KafkaException, FutureTimeout) as error:
            self._client = None  # it may not find its brokers again, and would send the request after all
            cause, *topics = error.args if isinstance(error, KafkaException) else (None,)
            self._failed(cause, topics)
        else:
            self._failure, self._failures = "", 0

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(self._settings(), logger=client_log)
        return self._client

    def _commit(self, offsets: Iterable[TopicPartition], timeout_s: float) -> None:
        client = self._admin()
        for part in portions(list(offsets)):
            request = [ConsumerGroupTopicPartitions(self._group, part)]
            answers = client.alter_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)
            for each in answer(answers[self._group], timeout_s).topic_partitions:
                if each.error is not None:
                    raise KafkaException(each.error, each.topic)

    def _failed(self, error: KafkaError | None, topics: Collection[str]) -> None:
        cause = "no answer from the broker" if error is None else error.str()
        denied = error if error is not None and kind_of(error) is Kind.FORBIDDEN else None
        self._failures += 1
        # A coordinator that moves or is new rejects a few reports, too; a missing right does not pass.
        if cause == self._failure or (self._failures < _TOLERATED and denied is None):
            return
        self._failure = cause
        log.log(
            logging.INFO if denied is None else logging.WARNING,
            "worker %s: cannot commit to the consumer group '%s' (%s), so `millpond reset` may not see that this "
            "worker runs; retrying every %.0f s%s",
            self._presence.worker, self._group, cause, PERIOD_S,
            "" if denied is None else f". {Access.of(self._settings()).cure(denied, topics, group=self._group)}",
        )  # fmt: skip
