"""The pool of threads for blocking requests to brokers, each with its own consumer."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from millpond.errors import BrokerError
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from tests.support import kafka
from tests.support.kafka import eventually

MOST = 3
WAIT_S = 60


@pytest.fixture
def threads(request):
    """A pool under a name of its own, closed after the test."""
    made = ConsumerThreads(
        f"threads-of-{request.node.name}", MOST, lambda: Consumer({"group.id": "never-asked"}, logger=kafka.log)
    )
    yield made
    made.close()


def threads_of(name):
    """The names of the running threads."""
    return [each.name for each in threading.enumerate() if each.name.startswith(f"threads-of-{name}")]


def test_jobs_run_concurrently(threads):
    """As many jobs as there are threads can block at the same time."""
    together = threading.Barrier(MOST)
    answers = [threads.run(lambda: together.wait(WAIT_S)) for _ in range(MOST)]
    assert sorted(each.result(WAIT_S) for each in answers) == list(range(MOST))


def test_more_jobs_than_threads_wait_for_their_turn(threads):
    """No more threads are started than allowed, and every job runs."""
    answers = [threads.run(lambda number=number: (number, threading.current_thread().name)) for number in range(50)]
    done = [each.result(WAIT_S) for each in answers]
    assert [number for number, _ in done] == list(range(50))
    assert len({name for _, name in done}) <= MOST


def test_waiting_job_does_not_delay_later_ones(threads):
    """While a job blocks, later ones get another thread, even if an earlier thread was idle before."""
    assert threads.run(lambda: 1).result(WAIT_S) == 1
    released = threading.Event()
    try:
        waiting = threads.run(lambda: released.wait(WAIT_S))
        assert [threads.run(lambda number=number: number).result(WAIT_S) for number in range(10)] == list(range(10))
        assert not waiting.done()
    finally:
        released.set()
    assert waiting.result(WAIT_S)


def test_each_thread_keeps_its_own_consumer(threads):
    """Different threads have different consumers; a thread has the same one each time."""
    together = threading.Barrier(MOST)
    by_thread = {}

    def ask():
        together.wait(WAIT_S)
        found = threads.consumer()
        assert by_thread.setdefault(threading.get_ident(), found) is found
        assert threads.consumer() is found

    for _ in range(2):
        for each in [threads.run(ask) for _ in range(MOST)]:
            each.result(WAIT_S)
    assert len(by_thread) == len({id(each) for each in by_thread.values()}) == MOST


def test_exception_of_a_job_is_its_result(threads):
    """The future raises the error, and the thread continues."""
    for number in range(2 * MOST):
        with pytest.raises(ZeroDivisionError):
            threads.run(lambda: 1 // 0).result(WAIT_S)
        assert threads.run(lambda number=number: number).result(WAIT_S) == number


def test_closing_ends_the_threads_and_closes_their_consumers(threads, request):
    """A busy thread finishes its job first; no other job starts."""
    consumers = []
    together = threading.Barrier(MOST)
    for each in [
        threads.run(lambda: (together.wait(WAIT_S), consumers.append(threads.consumer()))) for _ in range(MOST)
    ]:
        each.result(WAIT_S)
    began, released = threading.Event(), threading.Event()
    try:
        busy = threads.run(lambda: (began.set(), released.wait(WAIT_S)))
        assert began.wait(WAIT_S)
        threads.close()
        with pytest.raises(CancelledError):
            threads.run(lambda: 1).result(WAIT_S)
        eventually(lambda: len(threads_of(request.node.name)) == 1, "the idle threads end", WAIT_S)
        assert not busy.done()
    finally:
        released.set()
    assert busy.result(WAIT_S)
    eventually(lambda: not threads_of(request.node.name), "the busy thread ends", WAIT_S)
    for consumer in consumers:
        with pytest.raises(RuntimeError):
            consumer.assignment()


@pytest.mark.parametrize(
    ("error", "again", "calls"),
    [
        (RuntimeError("Consumer closed"), True, 2),
        (RuntimeError("Consumer closed"), False, 1),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), True, 1),
        (BrokerError("no answer"), True, 1),
    ],
)
def test_job_that_fails_unexpectedly_runs_once_more_with_a_new_consumer(threads, error, again, calls):
    """Errors of Kafka and of millpond have causes that their callers know."""
    used = []

    def job():
        used.append(threads.consumer())
        raise error

    with pytest.raises(type(error)):
        threads.run(job, again=again).result(WAIT_S)
    assert len(set(used)) == calls
