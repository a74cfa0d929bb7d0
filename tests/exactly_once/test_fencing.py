"""Workers are fenced, stopped, duplicated or replaced while input flows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from millpond.runtime.kafka.clients import CLIENT_DEFAULTS, transactional_id
from millpond.runtime.ownership.takeover import init_producer
from tests.exactly_once.application import REFUSED
from tests.exactly_once.processes import Application, Run
from tests.exactly_once.truth import Generator, Truth, drain, verify_exactly_once
from tests.support import kafka
from tests.support.kafka import end_offsets, eventually

pytestmark = pytest.mark.timeout(240)

RATE = 800
"""Input records per second."""

TRANSACTION_TIMEOUT_MS = 15_000

COMMIT_S = 6.0
"""Longer than a broker needs for a commit that it has received, and shorter than the transaction timeout."""


@pytest.fixture
def generator(application: Application, seed: int) -> Iterator[Generator]:
    """Send input while the block runs."""
    with Generator(application, seed, RATE) as made:
        yield made


def _producer_of(application: Application, worker: str) -> Producer:
    """Return a producer with a worker's transactional id."""
    return Producer(
        {
            "bootstrap.servers": application.bootstrap_servers,
            "transactional.id": transactional_id(application.app_id, worker),
            "log_level": 3,
            **CLIENT_DEFAULTS,
        },
        logger=kafka.log,
    )


def _has_open_transaction(application: Application) -> bool:
    """Return whether the output topic has records of an open transaction."""
    ends, stable_ends = (
        end_offsets(application.bootstrap_servers, application.target, isolation=isolation)
        for isolation in ("read_uncommitted", "read_committed")
    )
    return ends != stable_ends


def _stopped_in_a_transaction(run: Run, application: Application) -> bool:
    """Stop the worker if it is in a transaction; return whether it still is, and stays stopped."""
    if not _has_open_transaction(application):
        return False
    run.freeze()
    # A commit that was sent before the stop completes within this time, and then the transaction is not open.
    settled = time.monotonic() + COMMIT_S
    while _has_open_transaction(application):
        if time.monotonic() > settled:
            return True
    run.thaw()
    return False


def _end_and_verify(application: Application, generator: Generator, run: Run, place: str, worker: str = "w0") -> None:
    """End the input, let `run` process it, and compare everything with the expected results."""
    generator.stop()
    truth = Truth(generator.sent)
    drain(application, truth)
    run.stop()
    verify_exactly_once(application, truth, application.state_directory(worker, place))


def test_fenced_worker_that_still_owns_its_tasks_resumes(application: Application, generator: Generator) -> None:
    """Another init_transactions() aborts the worker's transaction three times; each time it continues by itself."""
    run = application.start()
    for _ in range(3):
        run.await_commits(2)
        runs = run.states().count("running")
        init_producer(lambda: _producer_of(application, "w0"), lambda: False, 30)
        run.await_running(runs + 1)
        run.await_commits(2)
    _end_and_verify(application, generator, run, "state")


@pytest.mark.long
@pytest.mark.slow
def test_worker_stopped_beyond_the_transaction_timeout_recovers(application: Application, generator: Generator) -> None:
    """SIGSTOP beyond transaction.timeout.ms aborts the transaction; after SIGCONT nothing is lost or repeated."""
    run = application.start(
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, commit_interval_ms=1_000, producer_linger_ms=0
    )
    run.await_commits(2)
    eventually(lambda: _stopped_in_a_transaction(run, application), "the worker is stopped in a transaction")
    # The broker checks for expired transactions every ten seconds.
    eventually(lambda: not _has_open_transaction(application), "the broker aborts the transaction", 120)
    run.thaw()
    run.await_running(2)
    run.await_commits(2)
    log = run.log.read_text()
    assert "its process stood still for" in log
    assert "Raise 'transaction.timeout.ms'" not in log
    _end_and_verify(application, generator, run, "state")


def test_second_process_with_the_same_worker_id_ends(application: Application, generator: Generator) -> None:
    """With two processes of one worker id and two state directories, one ends, and the counts are exact."""
    first = application.start(place="first")
    first.await_commits()
    second = application.start(place="second")
    first.await_(lambda run: run.facts("refused") or second.facts("refused"), "one of the two ends")
    over, on = (first, second) if first.facts("refused") else (second, first)
    assert over.await_end() == REFUSED
    refusal = over.refusal()
    assert refusal["kind"] == "OwnershipError"
    assert refusal["sentence"].startswith(f"another process runs as worker 'w0' of '{application.app_id}' ")
    assert refusal["sentence"].endswith("Give each worker its own 'worker.id'.")
    on.await_commits(2)
    _end_and_verify(application, generator, on, "first" if on is first else "second")


def test_worker_without_ownership_is_refused_with_a_cure(application: Application, generator: Generator) -> None:
    """'w1' does not touch tasks that 'w0' owns, and its error says how to start; 'w0' is not affected."""
    owner = application.start()
    owner.await_commits()
    other = application.start(worker="w1", place="other")
    assert other.await_end() == REFUSED
    refusal = other.refusal()
    assert refusal["kind"] == "OwnershipError"
    assert "belong to worker 'w0', and this one is 'w1'" in refusal["sentence"]
    assert "--worker-id w0" in refusal["sentence"]
    assert "--take-over" in refusal["sentence"]
    owner.await_commits(2)
    assert owner.states().count("running") == 1
    _end_and_verify(application, generator, owner, "state")


def test_take_over_from_a_silent_worker_is_exact(application: Application, generator: Generator) -> None:
    """'w1' takes over from a stopped 'w0', which is fenced when it continues, names its successor and ends."""
    silent = application.start()
    silent.await_commits(2)
    silent.freeze()
    successor = application.start(worker="w1", place="other", take_over=True)
    successor.await_commits(3)
    silent.thaw()
    assert silent.await_end() == REFUSED
    refusal = silent.refusal()
    assert refusal["kind"] == "OwnershipError"
    assert "was taken over by worker 'w1'" in refusal["sentence"]
    successor.await_commits(2)
    assert successor.states().count("running") == 1
    _end_and_verify(application, generator, successor, "other", "w1")


def test_one_of_two_concurrent_take_overs_wins(application: Application, generator: Generator) -> None:
    """Two successors race for the tasks of a killed worker: at most one gets them, and the counts are exact."""
    dead = application.start()
    dead.await_commits(2)
    dead.kill()
    rivals = {name: application.start(worker=name, place=name, take_over=True) for name in ("w1", "w2")}
    for rival in rivals.values():
        rival.await_(
            lambda run: run.facts("refused") or run.facts("committed"), "it has the tasks or knows that it does not"
        )
    # The first owner may itself be taken over, since both were started with --take-over.
    one, other = rivals.values()
    one.await_(lambda run: run.facts("refused") or other.facts("refused"), "one of the two ends")
    # The remaining one is not fenced any more, but may have been fenced before, which its next commit shows.
    for rival in rivals.values():
        wanted = len(rival.facts("committed")) + 2
        rival.await_(
            lambda run, wanted=wanted: run.facts("refused") or len(run.facts("committed")) >= wanted,
            "it continues or ends",
        )
    refused = [name for name, run in rivals.items() if run.facts("refused")]
    for name in refused:
        assert rivals[name].await_end() == REFUSED
        assert rivals[name].refusal()["kind"] == "OwnershipError"
    winners = rivals.keys() - set(refused)
    if winners:
        (winner,) = winners
        run = rivals[winner]
    else:
        # Both may be fenced by each other; that does no harm, and a manual start continues.
        winner = "w1"
        run = application.start(worker=winner, place=winner, take_over=True)
    run.await_commits(2)
    _end_and_verify(application, generator, run, winner, winner)
