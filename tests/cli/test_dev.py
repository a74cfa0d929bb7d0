"""`millpond dev`: a broker and a worker by one command."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from millpond.cli.dev.command import missing_topics
from millpond.cli.dev.remote import Remote
from millpond.cli.dev.status import WorkerPhase
from millpond.serdes import String
from millpond.topology import Topology
from tests.cli.conftest import COUNT, Application, Millpond, Process
from tests.support import kafka


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("own_brokers")
def test_one_command_runs_an_application_from_nothing(
    start: Callable[..., Process],
    application: Application,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    millpond: Millpond,
) -> None:
    """Broker, topics and worker start; other commands find them; Ctrl-C ends everything and deletes all files.

    Its worker is stopped, reset and started by the same commands as three workers.
    """
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    target = f"{application(COUNT)}:count"
    dev = start("dev", target, "--partitions", 2, "--set", "commit.interval=50ms")
    kafka.eventually(lambda: dev.says("-> running"), "the worker runs", timeout_s=110)
    assert re.search(r"starting Kafka\n.* Kafka is up after [\d.]+ s at 127.0.0.1", dev.said)
    address = re.search(r"broker (\S+)", dev.said)
    assert address is not None
    kafka.produce(address[1], "words", [(None, "hello"), (None, "world"), (None, "hello")])
    counted = {(b"hello", b"\0" * 7 + b"\2"), (b"world", b"\0" * 7 + b"\1")}  # two tasks, in any order
    rows = kafka.read_until(address[1], "counts", lambda rows: {(row.key, row.value) for row in rows} >= counted)
    assert {row.key for row in rows} == {b"hello", b"world"}
    assert kafka.topic_names(address[1]) >= {"words", "counts", "count-by-word-repartition", "count-counts-changelog"}
    console = re.search(r"console: (http://127\.0\.0\.1:\d+/)console/", dev.said)
    assert console is not None

    def document() -> dict[str, Any]:
        with urllib.request.urlopen(f"{console[1]}api/applications/-/count", timeout=60) as answer:
            return json.load(answer)

    def without_lag() -> bool:
        """False too while the console has nothing to show yet, and answers 503."""
        with contextlib.suppress(urllib.error.HTTPError):
            return bool(document()["summary"].get("lag") == 0)
        return False

    kafka.eventually(without_lag, "the console shows that there is no lag")
    found = document()
    assert (found["summary"]["ready"], found["summary"]["tasks_running"]) == (True, 4)
    assert {task["state"] for task in found["tasks"]} == {"running"}
    assert "topic words" in {node["name"] for node in found["topology"]["nodes"]}

    kafka.eventually(lambda: dev.says("queries: http://127.0.0.1:"), "the screen has the address for queries")
    (row,) = Remote.find("count").status().workers
    assert (row.pid, row.phase, len(row.active)) == (dev.pid, WorkerPhase.RUNNING, 4)
    assert millpond("query", "counts", "hello").out.splitlines()[1].split()[:2] == ["hello", "2"]
    named = millpond("query", "--application-id", "count", "counts", "hello", "-o", "json")  # without a coordinator
    assert json.loads(named.out)["value"] == 2, named.err
    assert "no session of 'orders' runs" in millpond("query", "--application-id", "orders", "counts").err
    shown = millpond("state", "show", "counts", "--json")  # of the session's application, which knows the serdes
    assert sorted(json.loads(line)["value"] for line in shown.out.splitlines()) == [1, 2], shown.err
    shown = millpond("consume", "counts", "--application", target, "--key-is", "hello")
    assert json.loads(shown.out.splitlines()[-1])["value"] == 2, shown.err
    assert "millpond dev` with --workers N" in millpond("dev", "scale", "2").err
    assert "counts-changelog" in millpond("topics").out

    assert "store counts" not in dev.said  # a new store has nothing to restore
    assert "GETPID" not in dev.said
    assert millpond("dev", "scale", "1").out == "count: 1 worker runs already\n"
    refused = millpond("reset", target, "--yes")
    assert (refused.status, "run `millpond dev scale 0` first" in refused.err) == (1, True)
    assert "the broker keeps running" in millpond("dev", "scale", "0").out
    assert Remote.find("count").status().workers == ()
    kafka.eventually(lambda: dev.says("millpond dev scale 1` starts the worker again"), "the screen says how to go on")
    reset = millpond("reset", target, "--yes")
    assert "It starts over when `millpond dev scale 1` starts workers again." in reset.out, reset.err
    code = next(path for path in tmp_path.glob("*.py") if path.stem == target.partition(":")[0])
    changed = code.read_text()
    code.write_text("a mistake")
    assert "starting the worker, with the application as its files are now" in millpond("dev", "scale", "1").out
    kafka.eventually(lambda: dev.says("cannot be imported: SyntaxError"), "the mistake is told")
    # The screen says that the worker does not run once more after the mistake.
    kafka.eventually(lambda: dev.said.count("starts the worker again") == 2, "the session goes on")
    code.write_text(changed + "\nprint('loaded again')\n")
    assert "starting the worker" in millpond("dev", "scale", "1").out
    kafka.read_until(address[1], "counts", lambda rows: sum(row.key == b"world" for row in rows) >= 2)
    # A task may commit while others are still restored.
    kafka.eventually(lambda: dev.said.count("-> running") >= 2, "the worker runs again")
    assert (dev.said.count("-> running"), dev.running) == (2, True)
    assert dev.says("loaded again")
    dev.signal(signal.SIGINT)
    assert dev.wait() == 0, dev.said
    assert "Topics and state of this session are deleted." in dev.said.splitlines()[-1]
    assert "start `millpond dev`" in millpond("query").err
    assert "start `millpond dev`" in millpond("state", "show", "counts", "--application-id", "count").err
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / "state-home").exists()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("own_brokers")
@pytest.mark.parametrize("options", [(), ("--workers", 2, "--data-dir", "kept")], ids=["one worker", "two workers"])
def test_a_session_whose_kafka_was_killed_says_so_and_ends(
    options: tuple[object, ...],
    start: Callable[..., Process],
    application: Application,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its workers have ended, too, and the last line has Kafka's log and the command that starts the session again."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    target = f"{application(COUNT)}:count"
    dev = start("dev", target, "--partitions", 2, *options)
    ran = "tasks are processed: " if options else "-> running"
    kafka.eventually(lambda: dev.says(ran), "the tasks are processed", timeout_s=110)
    family = psutil.Process(dev.pid).children(recursive=True)
    (java,) = (each for each in family if "kafka.Kafka" in each.cmdline())
    java.kill()
    kafka.eventually(lambda: "Kafka was killed by SIGKILL; if nobody" in dev.said, "the end is told")
    assert dev.wait(60) == 1, dev.said
    (log,) = scratch.glob("millpond-kafka-*.log") if not options else (tmp_path / "kept/kafka/broker.log",)
    assert log.stat().st_size > 0
    last = dev.said.splitlines()[-1]
    assert last.startswith("millpond: Kafka was killed by SIGKILL; if nobody sent it, "), dev.said
    assert f". The log of Kafka is {log}. " in last
    command = f"`{shlex.join(['millpond', 'dev', target, '--partitions', '2', *map(str, options)])}`"
    assert command in last
    assert psutil.wait_procs(family, 10)[1] == []
    assert list(scratch.iterdir()) == ([] if options else [log])


def _topology() -> Topology:
    topology = Topology()
    topology.add_source("a", "left", key=String, value=String)
    topology.add_source("b", "right", key=String, value=String)
    topology.add_repartition_topic("again")
    topology.add_sink("out", "result", "a", "b", key=String, value=String)
    topology.add_sink("over", "again", "a", key=String, value=String)
    topology.add_source("c", "again", key=String, value=String)
    topology.copartition(["a", "b"])
    return topology


def test_topics_that_are_read_or_written_are_created() -> None:
    """Existing topics are not changed, and the worker creates internal ones."""
    assert missing_topics(_topology(), {}, 4) == {"left": 4, "right": 4, "result": 4}
    assert missing_topics(_topology(), {"left": 4, "right": 4, "result": 1}, 4) == {}


def test_the_dead_letter_topic_is_created() -> None:
    """A worker does not start without it. It has one partition, unless the application writes it by itself, too."""
    assert missing_topics(_topology(), {"left": 4, "right": 4, "result": 4}, 4, "dead") == {"dead": 1}
    assert missing_topics(_topology(), {"left": 4, "right": 4, "result": 4, "dead": 3}, 4, "dead") == {}
    assert missing_topics(_topology(), {"left": 4, "right": 4}, 4, "result") == {"result": 4}


def test_created_topics_fit_those_they_are_joined_with() -> None:
    """Co-partitioned topics get the number of partitions of the existing one, not the requested number."""
    assert missing_topics(_topology(), {"left": 6}, 4) == {"right": 6, "result": 4}
