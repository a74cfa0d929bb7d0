"""Daemon threads for what waits for a broker, each with a consumer of its own.

The client lets one call at a time into a consumer: a thread that waits for committed offsets would hold up every other
one that uses the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

from confluent_kafka import Consumer

from .replaceable_consumer import close_aside

__all__ = ("ConsumerThreads",)

T = TypeVar("T")

_Job = Callable[[], None]


class ConsumerThreads:
    """A few threads that are started when there is something to do.

    Args:
        name: of the threads.
        most: how many.
        make_consumer: makes a thread's consumer, when it first asks for it.
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

    def run(self, job: Callable[[], T]) -> Future[T]:
        """Run a function in one of the threads."""
        answer: Future[T] = Future()

        def work() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(job())
                except BaseException as error:
                    answer.set_exception(error)

        with self._lock:
            if self._closed:
                answer.cancel()
                return answer
            if self._idle:
                self._idle -= 1
            elif self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._jobs.put(work)
        return answer

    def consumer(self) -> Consumer:
        """The consumer of the thread that asks, which must be one of these."""
        found: Consumer | None = getattr(self._local, "consumer", None)
        if found is None:
            found = self._local.consumer = self._make_consumer()
        return found

    def forget_consumer(self) -> None:
        """The consumer of the thread that asks gives no answer: the next question goes to a new one (`lifelines.py`)."""
        found: Consumer | None = getattr(self._local, "consumer", None)
        if found is not None:
            self._local.consumer = None
            close_aside(found)

    def close(self) -> None:
        """Begin nothing more; each thread ends when it is through with what it does."""
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
