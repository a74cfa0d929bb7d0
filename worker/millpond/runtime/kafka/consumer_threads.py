"""Daemon threads for blocking requests to brokers, each with its own consumer.

A consumer allows one call at a time: a thread that waits for committed offsets would block all others that use the same
consumer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

from confluent_kafka import Consumer, KafkaException

from millpond.errors import MillpondError

from .replaceable_consumer import close_in_background

__all__ = ("ConsumerThreads",)

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

_Job = Callable[[], None]


class ConsumerThreads:
    """A pool of threads, which start with the first jobs.

    Args:
        name: prefix of the threads' names.
        most: the maximum number of threads.
        make_consumer: makes the consumer of a thread, at its first use.
    """

    def __init__(self, name: str, most: int, make_consumer: Callable[[], Consumer]) -> None:
        self._name = name
        self._most = most
        self._make_consumer = make_consumer
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._closed = False
        self._local = threading.local()

    def run(self, job: Callable[[], T], *, again: bool = True) -> Future[T]:
        """Run a function in one of the threads. After `close`, the future is cancelled.

        Args:
            job: the function.
            again: whether to run it once more, with a new consumer, after an error that is neither one of Kafka nor
                one of millpond's own: the worker ends by such an error.
        """
        future: Future[T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._twice(job) if again else job())
                except BaseException as error:  # noqa: BLE001 - the caller of `result` gets it
                    future.set_exception(error)

        with self._lock:
            if self._closed:
                future.cancel()
                return future
            if self._idle:
                self._idle -= 1
            elif self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._jobs.put(work)
        return future

    def consumer(self) -> Consumer:
        """Return the consumer of the calling thread, which must be one of this pool."""
        found: Consumer | None = getattr(self._local, "consumer", None)
        if found is None:
            found = self._local.consumer = self._make_consumer()
        return found

    def forget_consumer(self) -> None:
        """Replace the consumer of the calling thread at its next use, since it got no answer (see `reconnect.py`)."""
        found: Consumer | None = getattr(self._local, "consumer", None)
        if found is not None:
            self._local.consumer = None
            close_in_background(found)

    def _twice(self, job: Callable[[], T]) -> T:
        try:
            return job()
        except (KafkaException, MillpondError):
            raise
        except Exception as error:
            log.warning("%s: a request failed unexpectedly (%r); trying it anew", self._name, error, exc_info=True)
        self.forget_consumer()
        return job()

    def close(self) -> None:
        """Accept no more jobs. Each thread ends after its current job; nothing waits for that."""
        with self._lock:
            self._closed = True
            threads = self._threads
        for _ in range(threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                if self._closed:
                    break
                self._idle += 1
        consumer: Consumer | None = getattr(self._local, "consumer", None)
        if consumer is not None:
            consumer.close()
