"""`millpond dev --workers N` on a real broker: workers share the tasks, and processing continues when some end."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from millpond.cli.dev.remote import CommandFailed, NoSession, Remote
from millpond.cli.dev.status import SessionEventKind, SessionStatus, WorkerPhase
from millpond.serdes import Long
from tests.cli.conftest import COUNT, Application, Millpond, Process
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

Start = Callable[..., Process]
WORDS = "abcdefgh"


class Running:
    """A session in a child process, and its topics."""

    def __init__(self, process: Process, broker: Broker, words: str, counts: str) -> None:
        self.process = process
        self._broker, self.words, self.counts = broker.bootstrap_servers, words, counts
        self._sent = 0

    def remote(self) -> Remote | None:
        assert self.process.running, self.process.said
        try:
            return Remote.find(str(self.process.pid))
        except NoSession:
            return None

    def status(self) -> SessionStatus | None:
        remote = self.remote()
        return None if remote is None else remote.status()

    def await_status(self, holds: Callable[[SessionStatus], bool], what: str) -> SessionStatus:
        """Return the first status for which `holds` is true."""
        found: list[SessionStatus] = []

        def reached() -> bool:
            status = self.status()
            if status is not None and holds(status):
                found.append(status)
            return bool(found)

        try:
            kafka.eventually(reached, what, timeout_s=60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.status()}\n{self.process.said}\n{self._logs()}") from None
        return found[0]

    def do(self, command: str, **arguments: object) -> str:
        remote = self.remote()
        assert remote is not None
        return remote.command(command, **arguments)  # type: ignore[arg-type]

    def counts_once_more(self) -> None:
        """Send each word, and wait until its count equals the number of sends."""
        kafka.produce(self._broker, self.words, [(None, word) for word in WORDS])
        self._sent += 1
        latest: dict[str, list[int]] = {}

        def counted(rows: list[kafka.Row]) -> bool:
            latest.clear()
            for row in rows:
                latest.setdefault((row.key or b"").decode(), []).append(Long.deserialize(row.value or b""))
            return all(latest.get(word, [0])[-1] >= self._sent for word in WORDS)

        kafka.read_until(self._broker, self.counts, counted)
        # Counts never go back; only the cache skips some.
        assert all(latest[word] == sorted(set(latest[word])) for word in WORDS), latest
        assert {word: latest[word][-1] for word in WORDS} == dict.fromkeys(WORDS, self._sent)

    def processes(self) -> list[psutil.Process]:
        """Return the process ids of the session and all its children."""
        process = psutil.Process(self.process.pid)
        return [process, *process.children(recursive=True)]

    def _logs(self) -> str:
        status = self.status()
        assert status is not None
        logs = sorted(Path(status.directory).glob("*.log"))
        return "\n".join(f"{log.name}:\n" + "\n".join(log.read_text().splitlines()[-40:]) for log in logs)


@pytest.fixture
def dev(
    broker: Broker, start: Start, application: Application, create_topic: CreateTopic, app_id: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Running]:  # fmt: skip
    """Start a session."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    words, counts = create_topic("words", partitions=4), create_topic("counts", partitions=4)
    monkeypatch.setenv("WORDS", words)
    monkeypatch.setenv("COUNTS", counts)

    def begin(*arguments: object) -> Running:
        process = start(
            "dev", f"{application(COUNT)}:count", "--bootstrap-servers", broker.bootstrap_servers,
            "--application-id", app_id, "--processing-guarantee", "exactly_once", *arguments,
        )  # fmt: skip
        return Running(process, broker, words, counts)

    return begin


def settled(workers: int, standbys: int = 0) -> Callable[[SessionStatus], bool]:
    """Return a condition: so many workers run, with all their tasks and standbys, and all answer queries."""

    def holds(status: SessionStatus) -> bool:
        rows = status.workers
        return (
            status.complete
            and not status.waiting
            and not any(row.warm_up for row in rows)
            and len(rows) == workers
            and all(row.phase is WorkerPhase.RUNNING and row.queries for row in rows)
            and sum(len(row.active) for row in rows) == status.tasks
            and sum(len(row.standby) for row in rows) == standbys
        )

    return holds


def shared(status: SessionStatus) -> bool:
    """Return whether three workers share the eight tasks, including a worker that started late."""
    return settled(3, standbys=4)(status) and sorted(len(row.active) for row in status.workers) == [2, 3, 3]


@pytest.mark.long
def test_workers_come_and_go_and_every_word_is_counted_once(dev: Callable[..., Running], tmp_path: Path) -> None:
    """Three start; one is killed and restarted; two are drained; Ctrl-C leaves no process and no file."""
    session = dev("--workers", 3, "--standbys", 1)
    status = session.await_status(shared, "three workers share eight tasks and four copies")
    assert (status.tasks, status.title) == (8, status.application)
    session.counts_once_more()
    with urllib.request.urlopen(status.console.replace("/console/", "/api/applications"), timeout=60) as answer:
        (summary,) = json.load(answer)["applications"]
    assert (summary["workers_ready"], summary["tasks_running"]) == (3, 8)
    with urllib.request.urlopen(f"{status.coordinator}/v1/stores", timeout=60) as answer:  # follows the redirect
        assert answer.url in [f"{worker}/v1/stores" for worker in status.queries]
        assert json.load(answer)

    status = session.await_status(shared, "they still do")
    victim = next(row for row in status.workers if row.worker == "w1")
    assert session.do("kill", worker="w1") == f"killed w1, pid {victim.pid}"
    status = session.await_status(
        lambda status: any(event.kind is SessionEventKind.REGAINED for event in status.events),
        "others take its tasks over",
    )
    regained = next(event for event in status.events if event.kind is SessionEventKind.REGAINED)
    assert (regained.worker, set(regained.seconds)) == ("w1", set(victim.active))
    session.counts_once_more()
    status = session.await_status(settled(3, standbys=4), "it is back, and all copies with it")
    back = next(row for row in status.workers if row.worker == "w1")
    assert (back.restarts, back.pid != victim.pid) == (1, True)

    with pytest.raises(CommandFailed, match="worker 'w7' does not exist"):
        session.do("drain", worker="w7")
    session.do("drain", worker="w0")
    status = session.await_status(settled(2, standbys=4), "two are left")
    assert [row.worker for row in status.workers] == ["w1", "w2"]
    session.counts_once_more()

    session.do("scale", workers=1)
    status = session.await_status(settled(1), "one has everything")
    assert [row.worker for row in status.workers] == ["w1"]
    assert status.queries[0].startswith("http://")
    with pytest.raises(CommandFailed, match="w1 is the last worker"):
        session.do("drain", worker="w1")
    session.counts_once_more()

    session.do("kill", worker="coordinator", restart_after_s=10)  # long enough to observe it, and to count meanwhile
    session.await_status(lambda status: status.coordinator == "", "the coordinator is gone")
    session.counts_once_more()
    session.await_status(lambda status: status.coordinator != "", "the coordinator is back")
    session.do("scale", workers=2)
    status = session.await_status(settled(2, standbys=4), "a second one joins again")
    assert [row.worker for row in status.workers] == ["w0", "w1"]
    session.counts_once_more()

    processes = session.processes()
    assert len(processes) >= 5  # the session, its reaper, a coordinator and two workers
    session.process.signal(signal.SIGINT)
    assert session.process.wait() == 0, session.process.said
    kafka.eventually(lambda: not any(map(alive, processes)), "every process is gone")
    assert list((tmp_path / "scratch").iterdir()) == []
    assert not (tmp_path / "run" / "millpond").exists()
    assert "Traceback" not in session.process.said


@pytest.mark.long
def test_a_session_is_reset_while_it_has_no_workers(
    dev: Callable[..., Running], millpond: Millpond, broker: Broker
) -> None:
    """`scale 0` keeps the broker, `reset` finds it without an option, and the next workers count from the beginning."""
    session = dev("--workers", 1)
    session.await_status(settled(1), "one worker has all tasks")
    session.counts_once_more()
    what = ("reset", "--input-topics", session.words, "--yes")
    assert "run `millpond dev scale 0` first" in millpond(*what).err
    session.do("scale", workers=0)
    session.await_status(lambda status: not status.workers, "no worker is left")
    ended = millpond(*what)
    assert "starts workers again" in ended.out, ended.err
    session.do("scale", workers=1)
    session.await_status(settled(1), "a worker has all tasks again")
    # Every word is counted to one a second time, not to two.
    rows = kafka.read_until(broker.bootstrap_servers, session.counts, lambda rows: len(rows) >= 2 * len(WORDS))
    assert {Long.deserialize(row.value or b"") for row in rows} == {1}


def test_nothing_is_left_when_the_session_itself_is_killed(dev: Callable[..., Running], tmp_path: Path) -> None:
    """Workers, coordinator and temporary files are removed, although the session cannot do that itself."""
    session = dev("--workers", 2)
    session.await_status(settled(2), "two workers share the tasks")
    processes = session.processes()
    session.process.signal(signal.SIGKILL)
    session.process.wait()
    kafka.eventually(lambda: not any(map(alive, processes)), "every process is gone")
    kafka.eventually(lambda: not list((tmp_path / "scratch").iterdir()), "temporary files are gone")


def test_unusable_application_ends_the_session_with_its_error(
    dev: Callable[..., Running],
) -> None:
    """If no worker ever ran, all have the same error: the session ends instead of retrying for ever."""
    session = dev("--workers", 2, "--set", "state.dir=/dev/null/nowhere")
    assert session.process.wait() in (1, 2)
    last = session.process.said.strip().splitlines()[-1]
    assert last.startswith("millpond: ")
    assert re.search(r"/dev/null/nowhere", last)


def alive(process: psutil.Process) -> bool:
    """Return whether this very process runs, not another one with the same id."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
