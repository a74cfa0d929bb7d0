"""Threads that wait for brokers beside the loop: errands."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest
from confluent_kafka import Consumer

from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from tests.support.kafka import eventually

MOST = 3
WAIT_S = 20


@pytest.fixture
def errands(request):
    """Errands under a name of their own, closed after the test."""
    made = ConsumerThreads(f"errands-of-{request.node.name}", MOST, lambda: Consumer({"group.id": "never-asked"}))
    yield made
    made.close()


def threads_of(name):
    """The names of the threads that live."""
    return [each.name for each in threading.enumerate() if each.name.startswith(f"errands-of-{name}")]


def test_jobs_run_beside_each_other(errands):
    """As many jobs as there are threads can wait at the same time."""
    together = threading.Barrier(MOST)
    answers = [errands.run(lambda: together.wait(WAIT_S)) for _ in range(MOST)]
    assert sorted(each.result(WAIT_S) for each in answers) == list(range(MOST))


def test_more_jobs_than_threads_wait_for_their_turn(errands):
    """No more threads are started than allowed, and every job is run."""
    answers = [errands.run(lambda number=number: (number, threading.current_thread().name)) for number in range(50)]
    done = [each.result(WAIT_S) for each in answers]
    assert [number for number, _ in done] == list(range(50))
    assert len({name for _, name in done}) <= MOST


def test_waiting_job_does_not_delay_later_ones(errands):
    """While a job waits, later ones find a thread, though an earlier thread had become idle."""
    assert errands.run(lambda: 1).result(WAIT_S) == 1
    released = threading.Event()
    try:
        waiting = errands.run(lambda: released.wait(WAIT_S))
        assert [errands.run(lambda number=number: number).result(WAIT_S) for number in range(10)] == list(range(10))
        assert not waiting.done()
    finally:
        released.set()
    assert waiting.result(WAIT_S)


def test_each_thread_keeps_its_own_consumer(errands):
    """Threads that ask at the same time have different consumers; each has the same one when it asks again."""
    together = threading.Barrier(MOST)
    by_thread = {}

    def ask():
        together.wait(WAIT_S)
        found = errands.consumer()
        assert by_thread.setdefault(threading.get_ident(), found) is found
        assert errands.consumer() is found

    for _ in range(2):
        for each in [errands.run(ask) for _ in range(MOST)]:
            each.result(WAIT_S)
    assert len(by_thread) == len({id(each) for each in by_thread.values()}) == MOST


def test_exception_of_a_job_is_its_result(errands):
    """An error goes to whoever waits for the job, and the thread goes on."""
    for number in range(2 * MOST):
        with pytest.raises(ZeroDivisionError):
            errands.run(lambda: 1 // 0).result(WAIT_S)
        assert errands.run(lambda number=number: number).result(WAIT_S) == number


def test_closing_ends_the_threads_and_closes_their_consumers(errands, request):
    """A thread that is busy finishes its job first; nothing new is begun."""
    consumers = []
    together = threading.Barrier(MOST)
    for each in [
        errands.run(lambda: (together.wait(WAIT_S), consumers.append(errands.consumer()))) for _ in range(MOST)
    ]:
        each.result(WAIT_S)
    began, released = threading.Event(), threading.Event()
    try:
        busy = errands.run(lambda: (began.set(), released.wait(WAIT_S)))
        assert began.wait(WAIT_S)
        errands.close()
        with pytest.raises(CancelledError):
            errands.run(lambda: 1).result(WAIT_S)
        eventually(lambda: len(threads_of(request.node.name)) == 1, "the idle threads end", WAIT_S)
        assert not busy.done()
    finally:
        released.set()
    assert busy.result(WAIT_S)
    eventually(lambda: not threads_of(request.node.name), "the busy thread ends", WAIT_S)
    for consumer in consumers:
        with pytest.raises(RuntimeError):
            consumer.assignment()
