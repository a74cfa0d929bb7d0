"""What the log of a session says about workers that are lost, and about tasks that are processed again."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rich.console import Console

from millpond.cli.dev.observing.observer import Observer
from millpond.cli.dev.observing.worker_metrics import Input, RecentMetrics, Scrape
from millpond.cli.dev.process_log import ProcessLog
from millpond.cli.dev.status import WorkerPhase
from millpond.cli.dev.view import table
from millpond.cli.dev.worker import STEADY_S, WorkerProcess
from millpond.protocol import (
    Epoch,
    Member,
    Role,
    SubtopologySummary,
    TaskReport,
    TaskState,
    TopologySummary,
    Trouble,
    View,
)
from millpond.runtime.config.model import Config
from tests.support.freezing import freeze

RUNNING = TaskReport(Role.ACTIVE, TaskState.RUNNING)
TASKS = ("0_0", "0_1")


class Fleet:
    """The workers w0 and w1, which have processes, and the events of the session."""

    def __init__(self, directory: Path) -> None:
        config = Config.of({"application.id": "a", "bootstrap.servers": "b:1"})
        self.launch = SimpleNamespace(config=config, directory=directory, target="app:build")
        self.coordinator = SimpleNamespace(url="http://c", listening=True, log=ProcessLog(directory / "c.log"))
        self.workers = {f"w{ordinal}": self._worker(ordinal, directory) for ordinal in range(2)}
        self.wanted, self.usual, self.stopping, self.events, self.deaths = 2, 2, False, deque[Any](), deque[Any]()
        self.told: list[str] = []

    @staticmethod
    def _worker(ordinal: int, directory: Path) -> WorkerProcess:
        worker = WorkerProcess(ordinal, ProcessLog(directory / f"w{ordinal}.log"), WorkerPhase.RUNNING)
        worker.child = SimpleNamespace(pid=100 + ordinal)  # type: ignore[assignment]
        worker.started_at = time.monotonic()
        return worker

    def add_event(self, text: str, *_level: int, **_fields: Any) -> None:
        self.told.append(text)


class Session:
    """A session whose coordinator answers with given members."""

    def __init__(self, directory: Path) -> None:
        self.fleet = Fleet(directory)
        self.observer = Observer(self.fleet, "a")  # type: ignore[arg-type]

    def sees(self, *members: Member) -> list[str]:
        """Observe a view; return what is told about it."""
        part = SubtopologySummary(0, len(TASKS), stateful=False)
        topology = TopologySummary("hash", (part,))
        view = View("a", Epoch(), topology=topology, members=members)
        self.fleet.told.clear()
        self.observer.observe(view)
        return list(self.fleet.told)


def member(name: str, *tasks: str, alive: bool = True, silent_ms: int = 0, life: int = 1) -> Member:
    return Member(
        name, incarnation=f"{name}-{life}", alive=alive, silent_ms=silent_ms, tasks=dict.fromkeys(tasks, RUNNING)
    )


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


def test_a_frozen_worker_is_told_as_lost_and_so_is_who_takes_its_tasks(session: Session) -> None:
    """Its process exists, as after SIGSTOP; the coordinator takes it for dead."""
    assert session.sees(member("w0", "0_0"), member("w1", "0_1")) == ["all 2 tasks are processed: w0 0_0, w1 0_1"]
    frozen = member("w0", "0_0", alive=False, silent_ms=6_000)
    assert session.sees(frozen, member("w1", "0_1")) == [
        "w0 (pid 100) is lost: it has sent no heartbeat for 6.0 s; it processed 0_0"
    ]
    assert session.sees(frozen, member("w1", "0_1")) == []
    (told,) = session.sees(frozen, member("w1", *TASKS))
    assert told.startswith("w0's tasks are processed again: 0_0 on w1 after 6.")


def test_a_worker_that_is_lost_again_is_told_with_the_likely_cause(session: Session) -> None:
    """As one whose function holds the GIL for each try of a record: from the second time on, with that record."""
    metrics = RecentMetrics()
    inputs = {("0_0", "words"): Input(17), ("0_1", "words"): Input(4)}
    metrics.add(Scrape(inputs=inputs), 1.0)
    session.observer._metrics["w0"] = (100, metrics)
    running = member("w0", "0_0"), member("w1", "0_1")
    session.sees(*running)
    frozen = member("w0", "0_0", alive=False, silent_ms=6_000)
    assert session.sees(frozen, running[1]) == [
        "w0 (pid 100) is lost: it has sent no heartbeat for 6.0 s; it processed 0_0"
    ]
    for times in (2, 3):
        session.sees(*running)
        (told,) = session.sees(frozen, running[1])
        assert told == (
            f"w0 (pid 100) is lost ({times} times so far): it has sent no heartbeat for 6.0 s; it processed 0_0. The "
            "likely cause is a function that holds the GIL for longer than the session timeout of 6 s, such as a "
            "regular expression that backtracks or a call into C: look at the next records of words-0 from offset 17, "
            "and give that function a limit of time."
        )
        assert session.observer.status.warnings == (told,)
        assert session.sees(frozen, running[1]) == []


def test_the_next_worker_that_is_lost_with_the_same_task_is_told_with_the_likely_cause(session: Session) -> None:
    """It meets the same record. A worker that was paused by a command is lost for that reason."""
    session.sees(member("w0", "0_0"), member("w1", "0_1"))
    frozen = member("w0", "0_0", alive=False, silent_ms=6_000)
    session.sees(frozen, member("w1", *TASKS))
    (told,) = session.sees(frozen, member("w1", *TASKS, alive=False, silent_ms=6_000))
    assert "is lost: it has sent no heartbeat for 6.0 s; it processed 0_0 0_1. The likely cause is a fun" in told
    assert "look at the next records of its tasks" in told
    # The offset is that which the worker before it has told; 0_1 has no further record.
    metrics = RecentMetrics()
    metrics.add(Scrape(inputs={("0_0", "words"): Input(17, caught_up=True), ("0_1", "words"): Input(4)}), 1.0)
    session.observer._metrics["w0"] = (100, metrics)
    session.observer._ends.known.update({("words", 0): 18, ("words", 1): 4})
    session.sees(frozen, member("w1", *TASKS))
    (told,) = session.sees(frozen, member("w1", *TASKS, alive=False, silent_ms=6_000))
    assert "look at the next records of words-0 from offset 17, and give" in told
    session.sees(member("w0", "0_0"), member("w1", "0_1"))
    session.fleet.workers["w0"].phase = WorkerPhase.PAUSED
    (told,) = session.sees(frozen, member("w1", "0_1"))
    assert told == "w0 (pid 100) is lost (2 times so far): it has sent no heartbeat for 6.0 s; it processed 0_0"


def test_a_long_call_of_a_worker_is_told_and_stands_below_the_table_while_it_lasts(session: Session) -> None:
    """Each new text that the worker reports is told once. What else it waits for is only shown."""
    session.sees(member("w0", "0_0"), member("w1", "0_1"))

    def reports(reason: str, text: str) -> Member:
        return msgspec.structs.replace(member("w0", "0_0"), trouble=Trouble(reason, text))

    def shown() -> str:
        console = Console(width=100, file=io.StringIO())
        console.print(table(session.observer.status))
        return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]

    for seconds in (10, 30):
        text = f"worker w0 has processed nothing for {seconds} s: it is in one call"
        assert session.sees(reports("WorkerStalled", text), member("w1", "0_1")) == [text]
        assert session.sees(reports("WorkerStalled", text), member("w1", "0_1")) == []
        assert f"w0: {text}" in shown()
    assert session.sees(reports("BrokerError", "the registry is away"), member("w1", "0_1")) == []
    assert "w0: the registry is away" in shown()
    assert session.sees(member("w0", "0_0"), member("w1", "0_1")) == []
    assert "w0: " not in shown()


def test_a_worker_that_died_is_told_once(session: Session) -> None:
    """Also if the coordinator reports its death before the session has noted the end of the process."""
    session.sees(member("w0", "0_0"), member("w1", "0_1"))
    session.fleet.workers["w0"].child = None
    session.fleet.deaths.append(("w0", time.monotonic()))
    dead = member("w0", "0_0", alive=False)
    assert session.sees(dead, member("w1", "0_1")) == ["w0 died; it processed 0_0"]
    assert session.sees(dead, member("w1", "0_1")) == []


def test_a_worker_that_leaves_is_not_lost(session: Session) -> None:
    """Its tasks are handed over, or stop with the session."""
    session.sees(member("w0", "0_0"), member("w1", "0_1"))
    session.fleet.workers["w0"].phase = WorkerPhase.DRAINING
    silent = member("w0", "0_0", alive=False, silent_ms=6_000)
    assert session.sees(silent, member("w1", "0_1")) == []


def test_a_worker_that_fails_is_not_lost(session: Session) -> None:
    """It tells the coordinator that it leaves, and its process ends a moment later, which has a line of its own."""
    session.sees(member("w0", "0_0"), member("w1", "0_1"))
    assert session.sees(member("w0", "0_0", alive=False, silent_ms=100), member("w1", "0_1")) == []


def test_workers_that_fail_again_and_again_process_nothing(session: Session) -> None:
    """Each try begins with tasks that run for a moment: they are told when the worker has run for a while."""
    worker = session.fleet.workers["w0"]
    assert session.sees(member("w0", *TASKS)) != []
    for life in range(2, 5):
        worker.failures = life
        session.fleet.deaths.append(("w0", time.monotonic()))
        assert session.sees(member("w0", alive=False, life=life - 1)) == ["w0 died; it processed 0_0 0_1"]
        worker.started_at = time.monotonic()
        assert session.sees(member("w0", *TASKS, life=life)) == []
    worker.started_at = time.monotonic() - STEADY_S - 1
    (told,) = session.sees(member("w0", *TASKS, life=4))
    assert told.startswith("w0's tasks are processed again: ")
    assert session.sees(member("w0", *TASKS, life=4)) == []


def test_the_first_worker_that_fails_at_its_start_is_not_told_as_processing(session: Session) -> None:
    """It has failed before it had any task, so nothing was lost."""
    worker = session.fleet.workers["w0"]
    worker.failures = 3
    assert session.sees(member("w0", *TASKS)) == []
    worker.started_at -= STEADY_S + 1
    child, worker.child = worker.child, None  # it waits for its next start
    assert not worker.steady
    worker.child = child
    assert session.sees(member("w0", *TASKS)) == ["all 2 tasks are processed: w0 0_0 0_1"]


RENAMED = "2026-01-01T00:00:00.000Z WARNING millpond.runtime.topics.left_changelogs the store 'b' begins empty.\n"


def test_a_warning_of_several_workers_is_told_once_and_stays_in_the_status(session: Session) -> None:
    """It leaves the status when no worker runs, since most cures begin so, and is not told again."""
    observer, fleet = session.observer, session.fleet
    for _ in range(2):
        for worker in fleet.workers.values():
            with worker.log.path.open("a") as file:
                file.write(RENAMED)
            worker.log.read()
            observer._tell_warnings(worker)
    assert fleet.told == ["w0: the store 'b' begins empty."]
    observer.update_status()
    assert observer.status.warnings == ("the store 'b' begins empty.",)
    console = Console(width=100, file=io.StringIO())
    console.print(table(observer.status))
    assert "warning: the store 'b' begins empty." in console.file.getvalue()  # type: ignore[attr-defined]
    fleet.wanted = 0
    for worker in fleet.workers.values():
        worker.child = None
    observer.update_status()
    assert observer.status.warnings == ()


def test_a_session_without_workers_offers_the_number_that_it_had(session: Session) -> None:
    """`millpond dev scale 3` after `scale 0`, not `scale 1`."""
    fleet = session.fleet
    fleet.wanted, fleet.usual = 0, 3
    fleet.workers.clear()
    session.observer.update_status()
    console = Console(width=100, file=io.StringIO())
    console.print(table(session.observer.status))
    assert "`millpond dev scale 3` starts 3 workers again" in console.file.getvalue()  # type: ignore[attr-defined]


def test_an_address_of_an_earlier_process_is_not_shown(session: Session) -> None:
    """A coordinator that goes on with what it has written down knows it before the worker's first heartbeat."""
    known = msgspec.structs.replace(member("w0", *TASKS), address="http://127.0.0.1:1")
    session.sees(known)
    assert session.observer.status.queries == ()
    metrics = RecentMetrics()
    session.observer._metrics["w0"] = 100, metrics
    for state, queries in (("restoring", ()), ("running", ("http://127.0.0.1:2",))):
        metrics.add(Scrape(state=state), 1.0)
        session.sees(msgspec.structs.replace(known, address="http://127.0.0.1:2"))
        assert session.observer.status.queries == queries


def test_a_join_that_may_have_lost_results_stays_in_the_status(session: Session) -> None:
    """Once, however many workers tell of it; a late record of windows is counted in the table."""
    w0, w1 = session.fleet.workers.values()
    lost = "join 'outcome': results of {} may be missing, since it came late."
    w0.log.drops += [lost.format("a record"), "node 'counts' dropped a late record at clicks-0 offset 4"]
    w1.log.drops.append(lost.format("12 records"))
    for worker in (w0, w1):
        session.observer._tell_warnings(worker)
    session.observer.update_status()
    assert session.observer.status.warnings == (lost.format("a record"),)
    assert len(session.fleet.told) == 3


def test_a_worker_whose_process_is_stopped_is_told_as_such(session: Session) -> None:
    """As by SIGSTOP: its functions have nothing to do with it, however often it happens."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        freeze(child)
        session.fleet.workers["w0"].child = SimpleNamespace(pid=child.pid)  # type: ignore[assignment]
        running = member("w0", "0_0"), member("w1", "0_1")
        for _ in range(2):
            session.sees(*running)
            (told,) = session.sees(member("w0", "0_0", alive=False, silent_ms=6_000), running[1])
            assert told.endswith(f"Its process is stopped by a signal; `kill -CONT {child.pid}` lets it go on")
    finally:
        child.kill()
        child.wait()
        assert child.stdin is not None
        child.stdin.close()


def test_the_line_of_a_session_gives_no_exact_number_of_dead_letters(session: Session) -> None:
    """Those of aborted transactions are counted, and the topic has fewer."""
    session.sees(member("w0", *TASKS))
    rows = [msgspec.structs.replace(each, processed=1_000) for each in session.observer.status.workers]
    session.observer.status = msgspec.structs.replace(session.observer.status, workers=tuple(rows), dead_letters=982)
    assert (session.observer.line() or "").endswith("   about 982 dead letters")
