"""The parts of a session that need no broker: metrics, the table, keys, commands of other terminals."""

from __future__ import annotations

import asyncio
import io
import os
import re
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rich.console import Console

from millpond.cli.dev import child_reaper, control_server, keys
from millpond.cli.dev.actions import ACTIONS, KEYS
from millpond.cli.dev.observing.worker_metrics import RecentMetrics, Scrape, parse
from millpond.cli.dev.remote import CommandFailed, NoSession, Remote, SessionFile
from millpond.cli.dev.status import Restoring, SessionStatus, WorkerPhase, WorkerStatus
from millpond.cli.dev.view import table
from millpond.cli.state.sources import Sources
from millpond.errors import ConfigError
from millpond.protocol.overview import TaskOverview
from millpond.runtime.config.model import Config
from millpond.runtime.http.metrics import WorkerMetrics
from tests.cli.conftest import Millpond
from tests.support.kafka import eventually

# Metrics


def test_metrics_of_a_worker_are_parsed() -> None:
    """The metrics are parsed from the text of a worker's own registry."""
    from prometheus_client import generate_latest

    metrics = WorkerMetrics(Config.of({"application.id": "a", "bootstrap.servers": "b:1"}))
    metrics.processed(1234, 0.5)
    for seconds in (0.004, 0.2):
        metrics.committed(seconds, 1)
    scrape = parse(generate_latest(metrics.registry).decode())
    assert scrape.processed == 1234
    assert scrape.commits == 2
    assert scrape.buckets[0.005] == 1
    assert scrape.buckets[float("inf")] == 2


def test_tasks_and_restores_are_separated_by_their_labels() -> None:
    """Positions are per task and topic; restore progress is per store partition, without finished ones."""
    scrape = parse(
        'millpond_worker_state{state="running",worker="w0"} 0.0\n'
        'millpond_worker_state{state="restoring",worker="w0"} 1.0\n'
        'millpond_processor_position_offset{task="0_3",topic="flights"} 12.0\n'
        'millpond_processor_caught_up{task="0_3",topic="flights"} 1.0\n'
        'millpond_restore_records_total{store="a \\"b\\"",partition="3"} 30.0\n'
        'millpond_restore_remaining_records{store="a \\"b\\"",partition="3"} 70.0\n'
        'millpond_restore_remaining_records{store="done",partition="3"} 0.0\n'
        'millpond_task_dropped_records_total{task="0_3",reason="late"} 4.0\n'
        'millpond_task_dropped_records_total{task="0_4",reason="null_key"} 2.0\n'
        'millpond_task_dropped_records_total{task="0_4",reason="late_for_join"} 7.0\n'
        'millpond_task_dropped_records_total{task="0_4",reason="outdated"} 840.0\n'
        'millpond_task_dead_letters_total{task="0_4"} 3.0\n'
        "something_else 1.0\n"
    )
    assert scrape.dropped == {"0_3": 4, "0_4": 2}
    assert scrape.dead_letters == {"0_4": 3}
    assert scrape.state == "restoring"
    assert scrape.inputs["0_3", "flights"].position == 12
    assert scrape.inputs["0_3", "flights"].caught_up
    assert scrape.restoring == (Restoring('a "b"', 3, 30, 100),)


def test_rates_and_commit_times_are_those_of_the_last_seconds() -> None:
    """Older scrapes do not count: a burst at the start is neither in the rate nor in the p99."""
    metrics = RecentMetrics()
    inf = float("inf")
    metrics.add(Scrape(processed=0, commits=0, buckets={0.01: 0, 1.0: 0, inf: 0}), now=0)
    assert metrics.records_per_second is None
    metrics.add(Scrape(processed=100_000, commits=100, buckets={0.01: 0, 1.0: 100, inf: 100}), now=1)
    assert metrics.records_per_second == 100_000
    assert metrics.commit_p99_ms is not None
    assert metrics.commit_p99_ms > 900
    for second in range(2, 10):
        buckets = {0.01: second * 10, 1.0: 100 + second * 10, inf: 100 + second * 10}
        metrics.add(Scrape(processed=100_000 + second, commits=100 + second * 10, buckets=buckets), now=second)
    assert metrics.records_per_second == pytest.approx(1)
    assert metrics.commit_p99_ms < 10
    assert metrics.last_commit == 9


# The table

STATUS = SessionStatus(
    application="delays", title="delays", guarantee="exactly_once", bootstrap_servers="b:1", directory="/logs",
    coordinator="http://c", wanted=4, tasks=9, running={f"0_{each}": "w0" for each in range(8)}, committed_s_ago=0.112,
    waiting={"0_8": "its copy on w1 is behind"},
    workers=(
        WorkerStatus(
            worker="w0", phase=WorkerPhase.RUNNING, pid=1, active=tuple("abcdefgh"), standby=("i",), warm_up=("j",),
            records_per_second=41_200.4, commit_p99_ms=11.2, lag=1_310, queries="http://127.0.0.1:8081",
        ),
        WorkerStatus(worker="w1", phase=WorkerPhase.STARTING, pid=2, restoring=(Restoring("store", 5, 71, 100),)),
        WorkerStatus(worker="w2", phase=WorkerPhase.KILLED, note="starts again in 1 s"),
        WorkerStatus(worker="w3", phase=WorkerPhase.FAILED, note="topic 'x' is gone", log="/logs/w3.log"),
    ),
)  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_table_has_a_row_per_worker_at_any_width(width: int) -> None:
    """It has metrics, restore progress, and the reason why a worker does not run; only errors are wrapped."""
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table(STATUS))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    wide = width >= 120
    assert lines[1].split()[: 5 if wide else 3] == ["worker", *(["pid", "port"] if wide else []), "active", "standby"]
    rows = lines[2:6]
    assert [row.split()[0] for row in rows] == ["w0", "w1", "w2", "w3"]
    if width >= 80:
        assert rows[0].startswith(f"w0 {'1 8081 ' if wide else ''}8 1 + 1 41,200 11 ms 1,310")
    if width >= 120:
        assert lines[0].startswith("delays . exactly_once . 2 of 4 workers . 9 tasks committed 112 ms ago . 1 task")
        assert "starting . ██████░░░ 71% store 5" in rows[1]
        assert STATUS.queries == ("http://127.0.0.1:8081",)
        assert rows[2] == "w2 killed . starts again in 1 s"
    assert "topic 'x' is gone" in " ".join(lines)
    assert "/logs/w3.log" in " ".join(lines)


def test_a_table_says_how_to_read_dead_letters() -> None:
    """They are not lost, and somebody has to look at them: one line has the command, and about their number."""
    status = msgspec.structs.replace(STATUS, dead_letters=30, dead_letter_topic="orders-dead", target="app:build")
    shown = Console(file=io.StringIO(), width=120)
    for each in (STATUS, status):
        shown.print(table(each))
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("dead letter") == 1
    assert " about 30 dead letters: millpond consume orders-dead --application app:build" in text


def test_a_table_shows_dropped_records_once_there_are_any() -> None:
    """Records that are dropped are lost: the column is there for all workers as soon as one has dropped some."""
    for dropped in (0, 2278):
        workers = (msgspec.structs.replace(STATUS.workers[0], dropped=dropped), *STATUS.workers[1:])
        out = io.StringIO()
        Console(file=out, width=120, color_system=None).print(table(msgspec.structs.replace(STATUS, workers=workers)))
        lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
        assert lines[1].endswith("lag dropped" if dropped else "lag")
        assert lines[2].endswith("1,310 2,278" if dropped else "1,310")
        assert lines[4] == "w2 killed . starts again in 1 s"


def test_a_table_in_a_pipe_has_whole_lines(millpond: Millpond, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs read them: names and reasons are not cut or wrapped, and there is no gap up to a right edge."""
    monkeypatch.delenv("COLUMNS")
    reason = "the reason is long " * 20
    worker = msgspec.structs.replace(STATUS.workers[3], note=reason, worker="w" * 90)
    status = msgspec.structs.replace(STATUS, workers=(worker,))

    async def talk() -> None:
        async with control_server.serving_session("delays", lambda: status, str):
            out = (await asyncio.to_thread(millpond, "dev", "status")).out
            assert (f" {'w' * 90}: {reason}" in out, max(map(len, out.splitlines())) < 1_000) == (True, True)

    asyncio.run(talk())


# Commands


class Recorder:
    """A fake fleet that records its commands."""

    def __init__(self, application: str) -> None:
        config = SimpleNamespace(application_id=application, bootstrap_servers="b:1", schema_registry_url="")
        self.launch = SimpleNamespace(config=config)
        self.wanted = 3
        self.done: list[tuple[object, ...]] = []

    def scale(self, count: int) -> str:
        self.done.append(("scale", count))
        return "scaled"

    def kill(self, name: str, restart_after_s: float | None = 1.0) -> str:
        if name == "w9":
            raise CommandFailed("there is no worker 'w9'; there are w0.")
        self.done.append(("kill", name, restart_after_s))
        return "killed"

    def drain(self, name: str) -> str:
        self.done.append(("drain", name))
        return "drained"


@asynccontextmanager
async def sessions(*fleets: Recorder) -> AsyncIterator[Callable[..., Awaitable[object]]]:
    """Run sessions; yield a function that runs another terminal's commands in a thread."""
    from contextlib import AsyncExitStack

    async with AsyncExitStack() as stack:
        for fleet in fleets:
            await stack.enter_async_context(control_server.serving(fleet, lambda: STATUS))  # type: ignore[arg-type]
        yield asyncio.to_thread


@pytest.fixture(autouse=True)
def _runtime_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


def test_session_is_controlled_from_another_terminal(millpond: Millpond) -> None:
    """Commands arrive with their arguments, rejections return as messages, and the table is the session's own."""
    fleet = Recorder("delays")

    async def talk() -> None:
        async with sessions(fleet) as elsewhere:
            assert await elsewhere(millpond, "dev", "scale", "5") == (0, "delays: scaled\n", "")
            assert await elsewhere(millpond, "dev", "kill", "w1", "--restart-after", "2") == (0, "delays: killed\n", "")
            assert await elsewhere(millpond, "dev", "kill", "w2", "--no-restart") == (0, "delays: killed\n", "")
            assert await elsewhere(millpond, "dev", "drain", "w0", "--app", "delays") == (0, "delays: drained\n", "")
            assert (await elsewhere(millpond, "dev", "drain", "w0", "--session", "delays")).out == "delays: drained\n"
            for option in (("--session", "delays"), ("--session=delays",), ("--app", "delays")):
                assert (await elsewhere(millpond, "dev", *option, "drain", "w0")).out == "delays: drained\n"
            refused = await elsewhere(millpond, "dev", "kill", "w9")
            assert refused == (1, "", "millpond: there is no worker 'w9'; there are w0.\n")
            shown = await elsewhere(millpond, "dev", "status", "--json")
            assert msgspec.json.decode(shown[1], type=SessionStatus) == STATUS
            assert " w0 " in (await elsewhere(millpond, "dev", "status"))[1]

    asyncio.run(talk())
    assert fleet.done == [("scale", 5), ("kill", "w1", 2.0), ("kill", "w2", None), *[("drain", "w0")] * 5]


def test_a_session_must_be_named_when_there_are_several(millpond: Millpond) -> None:
    """Without a session, with an unknown name, and with two, the message says what to do."""
    assert "no session of 'millpond dev' runs" in millpond("dev", "scale", 2).err

    async def talk() -> None:
        first, second = Recorder("one"), Recorder("two")
        async with sessions(first, second) as elsewhere:
            with pytest.raises(NoSession, match=r"several sessions run: one .*, two .*; name one by its application"):
                await elsewhere(Remote.find)
            with pytest.raises(NoSession, match=r"no session of 'three' runs on this machine, only of one .*, two "):
                await elsewhere(Remote.find, "three")
            assert await elsewhere(lambda: Remote.find("two").status()) == STATUS

    asyncio.run(talk())


def test_tasks_and_logs_find_a_session_as_other_commands_do(millpond: Millpond, tmp_path: Path) -> None:
    """By themselves if one runs, else by NAME or --session; and rate, lag and owner of each task are shown."""
    log = tmp_path / "w0.log"
    log.write_text("a line\n")
    worker = WorkerStatus(worker="w0", phase=WorkerPhase.RUNNING, pid=1, active=("0_0",), log=str(log))
    task = TaskOverview(task="0_0", worker="w0", owner="w0", state="running", records_per_second=12.0, lag=34)
    status = msgspec.structs.replace(STATUS, application="devices", workers=(worker,), details=(task,))

    async def talk() -> None:
        async with control_server.serving_session("devices", lambda: status, str):
            for named in ((), ("devices",), ("--session", "devices")):
                shown = await asyncio.to_thread(millpond, "tasks", *named)
                assert shown.out.splitlines()[1].split()[:6] == ["0_0", "w0", "w0", "running", "12", "34"], shown
                assert "a line" in (await asyncio.to_thread(millpond, "logs", *named)).out
            async with control_server.serving_session("orders", lambda: status, str):
                assert "--session NAME" in (await asyncio.to_thread(millpond, "tasks")).err
                assert (await asyncio.to_thread(millpond, "tasks", "--session", "devices")).status == 0
            both = await asyncio.to_thread(millpond, "logs", "orders", "--session", "devices")
            assert (both.status, "give one of them" in both.err) == (2, True)
            assert "name the StreamApp" in (await asyncio.to_thread(millpond, "tasks", "--kubernetes")).err

    asyncio.run(talk())


@pytest.mark.parametrize(
    "verb", [("status",), ("scale", 0), ("kill", "w0"), ("drain", "w0"), ("pause", "w0"), ("resume", "w0")]
)
def test_no_command_chooses_one_of_several_sessions(
    millpond: Millpond, tmp_path: Path, verb: tuple[object, ...]
) -> None:
    """One whose worker is in its own process counts, too, or the workers of the other one would be stopped."""
    fleet = Recorder("one")

    async def talk() -> None:
        status = msgspec.structs.replace(STATUS, in_process=True)
        alone = control_server.serving_session("alone", lambda: status, str)
        async with alone, sessions(fleet) as elsewhere:
            (file,) = (tmp_path / "run" / "millpond").glob("alone-*.json")
            # Session files of earlier versions have this field, by which a session was chosen.
            file.write_text(file.read_text().replace("{", '{"in_process": true, ', 1))
            refused = await elsewhere(millpond, "dev", *verb)
            assert (refused.status, refused.out) == (1, "")
            assert re.fullmatch(
                r"millpond: several sessions run: alone \(process \d+\), one \(process \d+\); name one by its "
                r"application or its process: --session NAME\.\n", refused.err,
            )  # fmt: skip

    asyncio.run(talk())
    assert fleet.done == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("comit.interval.ms = 5", "setting 'comit.interval.ms' (in millpond.toml) is unknown; did you mean"),
        ('processing.exception.handler = "absent:aside"', "no session of 'gmini' runs"),
        ("a = ", "configuration file millpond.toml is not valid TOML"),
    ],
)
def test_no_session_of_another_application_is_commanded_whatever_the_settings_here(
    millpond: Millpond, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    """If they cannot be read, nothing is done; a handler that cannot be imported is not needed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLPOND_CONFIG", raising=False)
    (tmp_path / "millpond.toml").write_text(f'application.id = "gmini"\n{line}\n')
    fleet = Recorder("delays")

    async def talk() -> None:
        async with sessions(fleet) as elsewhere:
            for verb in (("status",), ("kill", "w1"), ("scale", 0)):
                refused = await elsewhere(millpond, "dev", *verb)
                assert refused.status in (1, 2), refused
                assert refused.out == ""
                assert said in refused.err
            named = await elsewhere(millpond, "dev", "kill", "w1", "--session", "delays")
            assert named.out == "delays: killed\n", named

    asyncio.run(talk())
    assert len(fleet.done) == 1


def test_state_is_read_from_the_workers_of_a_session() -> None:
    """`millpond state verify` takes broker and workers from the session, unless another broker is named."""
    required = ("application.id", "bootstrap.servers")
    given: dict[str, Any] = {"uri": None, "credentials_dir": None, "urls": (), "token_file": None, "ca_file": None}

    def sources(**flags: object) -> Sources:
        named = {"application.id": "delays", **{name.replace("_", "."): value for name, value in flags.items()}}
        return Sources.of(None, named, None, required, **given)

    async def talk() -> None:
        async with control_server.serving_session("delays", lambda: STATUS, str):
            found = await asyncio.to_thread(sources)
            assert (found.config.bootstrap_servers, found.session) == ("b:1", "delays")
            assert (await asyncio.to_thread(sources, bootstrap_servers="c:1")).session is None
            with pytest.raises(ConfigError, match=r"no session of 'other' runs, only of delays"):
                await asyncio.to_thread(sources, application_id="other")

    asyncio.run(talk())


def test_only_this_user_can_command_a_session(tmp_path: Path) -> None:
    """Requests without the token in the session file are rejected; only this user can read that file."""
    fleet = Recorder("delays")
    directory = tmp_path / "run" / "millpond"

    async def talk() -> None:
        async with sessions(fleet) as elsewhere:
            (file,) = directory.iterdir()
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
            found = msgspec.json.decode(file.read_bytes(), type=SessionFile)
            for token in ("", "no", found.token[:-1]):
                stranger = Remote(msgspec.structs.replace(found, token=token))
                with pytest.raises(CommandFailed, match="token"):
                    await elsewhere(stranger.command, "scale", workers=9)
                with pytest.raises(CommandFailed, match="token"):
                    await elsewhere(stranger.status)

    asyncio.run(talk())
    assert fleet.done == []
    assert not directory.exists()


def test_a_directory_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """Another user may have created it to learn the token."""
    directory = tmp_path / "run" / "millpond"
    directory.mkdir(parents=True)
    directory.chmod(0o755)

    async def talk() -> None:
        async with sessions(Recorder("delays")):
            pass

    with pytest.raises(NoSession, match="can be read by other users"):
        asyncio.run(talk())


@pytest.mark.usefixtures("processes")
def test_a_session_that_died_is_forgotten(tmp_path: Path) -> None:
    """The session file of a process that has ended is ignored and deleted."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    directory = tmp_path / "run" / "millpond"
    directory.mkdir(parents=True)
    file = directory / "x.json"
    file.write_bytes(msgspec.json.encode(SessionFile("x", gone.pid, "http://127.0.0.1:1", "t")))
    with pytest.raises(NoSession):
        Remote.find()
    assert not file.exists()


def test_keys_command_the_fleet() -> None:
    """`+` and `-` change the number of workers; `k` and `d` wait for a digit; other keys cancel and do nothing."""
    fleet = Recorder("delays")
    pressed = keys.Keyboard(fleet)  # type: ignore[arg-type]
    for key in "+-k1d0kx2dd1k9":
        pressed.press(key)
    assert fleet.done == [("scale", 4), ("scale", 2), ("kill", "w1", 1.0), ("drain", "w0"), ("drain", "w1")]


def test_verbs_and_keys_are_one_table(millpond: Millpond) -> None:
    """Each key performs an action that is a verb, and the help shows all of both."""
    fleet = SimpleNamespace(wanted=3)
    assert {key.command(fleet, "w0").do for key in KEYS.values()} <= set(ACTIONS)  # type: ignore[arg-type]
    ended = " ".join(millpond("dev", "--help").out.split())
    assert all(f"millpond dev {name} {action.example} " in ended for name, action in ACTIONS.items())
    assert all(key.hint in ended for key in KEYS.values())


# Child processes


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("orderly", [True, False])
def test_children_die_with_a_session_that_cannot_stop_them(tmp_path: Path, orderly: bool) -> None:
    """If its input ends without `done`, the reaper kills the watched processes and no others; else none."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    sleep = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
    held, released = subprocess.Popen(sleep), subprocess.Popen(sleep)
    try:
        watching = subprocess.Popen(
            [sys.executable, "-I", "-S", child_reaper.__file__, str(scratch)], stdin=subprocess.PIPE
        )
        said = f"+{held.pid}\n+{released.pid}\n-{released.pid}\n" + ("done\n" if orderly else "")
        watching.communicate(said.encode(), timeout=30)
        assert scratch.exists() is orderly
        if orderly:
            os.kill(held.pid, 0)
        else:
            eventually(lambda: held.poll() == -9, "what was held is killed")
        assert released.poll() is None
    finally:
        for child in (held, released):
            child.kill()
            child.wait()
