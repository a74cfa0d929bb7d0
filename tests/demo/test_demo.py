"""`make demo`: it survives its kill -9, and reports wrong output."""

from __future__ import annotations

import copy
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from examples.flights import demo
from examples.flights.stage import data, truth
from examples.flights.stage.display import Display, Progress
from millpond.cli.dev.status import SessionStatus, WorkerPhase, WorkerStatus
from tests.support import kafka
from tests.support.broker import OwnBroker

ROOT = Path(__file__).parents[2]

AIRPORTS = ("EWR", "JFK", "LGA")
HOUR_MS = 3_600_000
OF_A_WEEK = "IDENTICAL: 373 results from 6,099 flights, every hour once, through 1 kill -9."
OF_THE_YEAR = "IDENTICAL: 19,486 results from 336,776 flights, every hour once, through 1 kill -9."
Hours = dict[tuple[str, int], dict[str, Any]]


def run_demo(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run the demo like `make demo`, with this Python."""
    return subprocess.run(
        [sys.executable, "examples/flights/demo.py", *arguments],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "worker"}, capture_output=True, text=True, check=False, **how,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("own_brokers")
def test_flights_survive_a_kill(soak: bool) -> None:
    """The demo on a part of the data: kill -9, restart, comparison, exit status 0, with the README's lines."""
    share, verdict = ([], OF_THE_YEAR) if soak else (["--days", "7", "--seconds", "3"], OF_A_WEEK)
    done = run_demo(*share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert shape(done.stdout) == shape(readme_output())
    assert verdict in done.stdout


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.timeout(240)
def test_the_demo_leaves_nothing_on_a_cluster_of_somebody(own_broker: OwnBroker) -> None:
    """It runs there, and deletes its topics and its group; a topic that was there before is not touched."""
    servers = own_broker.bootstrap_servers
    admin = kafka.admin(servers)
    before = set(kafka.topic_names(servers, ""))
    play = ("--days", "2", "--seconds", "1", "--workers", "1", "--kills", "0", "--bootstrap-servers", servers)
    done = run_demo(*play)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "IDENTICAL" in done.stdout
    assert "starting Kafka" not in done.stdout
    left = {name for name in kafka.topic_names(servers, "") if not name.startswith("__")}
    assert left <= before
    assert not [each for each in admin.list_consumer_groups().result().valid if each.group_id == "flights-demo"]
    kafka.create_topic(servers, "planes", 1)
    refused = run_demo(*play)
    assert refused.returncode == 2
    assert "has the topic planes already, and the demo would delete it in the end" in refused.stdout
    assert "planes" in kafka.topic_names(servers, "")


def test_the_readme_shows_a_run_of_the_whole_year() -> None:
    """The README has the output of a successful run over all flights."""
    assert OF_THE_YEAR in readme_output()


def readme_output() -> str:
    """Return the demo's output in the README."""
    found = re.search(r"```text\n([^`]*? s  starting Kafka\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found, "the README shows no output of the demo"
    return found[1]


def shape(output: str) -> list[str]:
    """Return lines without numbers, and without lines whose number varies."""
    varying = ("   lag ", "(only once)")  # the latter in the first run on a machine
    lines = [line.rstrip() for line in output.splitlines() if line.strip() and not any(map(line.__contains__, varying))]
    shaped = [re.sub(r"─+", "─", re.sub(r"[-\d][\d,.:-]*", "N", line)) for line in lines]
    # The number of tasks per worker varies.
    shaped = [re.sub(r"(wN |N_N( on wN after N s)?[, ]*)+", "TASKS ", line) for line in shaped]
    return [re.sub(r" +", " ", re.sub(r"minutes, .*?, \w+,", "minutes, WHO, WHERE,", line)).strip() for line in shaped]


def test_differing_output_sets_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One missing hour gives status 1 and a verdict in words."""
    found = truth.compare({("JFK", 0): hour(3)}, [])
    monkeypatch.setattr(demo, "_demo", lambda *_: found)
    monkeypatch.setattr(sys, "argv", ["demo.py"])
    assert demo.main() == 1
    assert "DIFFERENT" in capsys.readouterr().out


def test_early_end_is_one_sentence_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing data, for example, gives no traceback."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr(demo, "_demo", lambda *_: next(data.flights()))
    monkeypatch.setattr(sys, "argv", ["demo.py"])
    assert demo.main() == 2
    assert capsys.readouterr().out.startswith("demo: the demo's data is missing: install it with")


def hour(departures: int, minutes: int = 0) -> dict[str, Any]:
    """Return the values of an hour."""
    return {"departures": departures, "cancelled": 0, "minutes": minutes, "worst": [minutes, "Hawaiian"]}


def as_records(hours: Hours) -> list[tuple[bytes, bytes]]:
    """Return hours in the form of the output topic."""
    return [
        (airport.encode() + start.to_bytes(8, "big"), json.dumps(each).encode())
        for (airport, start), each in hours.items()
    ]


some_hours = st.dictionaries(
    st.tuples(st.sampled_from(AIRPORTS), st.integers(0, 50).map(lambda each: each * HOUR_MS)),
    st.builds(hour, st.integers(1, 60), st.integers(0, 500)),
    min_size=1,
)


@given(some_hours, st.randoms(use_true_random=False))
def test_the_same_hours_in_any_order_are_identical(expected: Hours, random: Any) -> None:
    """The order of results does not matter; each hour must be there once, with right values."""
    records = as_records(expected)
    random.shuffle(records)
    found = truth.compare(expected, records)
    assert found.equal
    assert found.total.hours_read == found.total.hours_expected == len(expected)
    assert found.total.flights_read == sum(each["departures"] for each in expected.values())


@given(some_hours, st.data())
def test_every_kind_of_difference_is_found(expected: Hours, draw: st.DataObject) -> None:
    """Missing, wrong, repeated or unexpected hours are counted by kind, and are never identical."""
    at = draw.draw(st.sampled_from(sorted(expected)))
    kind = draw.draw(st.sampled_from(["missing", "wrong", "repeated", "invented"]))
    read = copy.deepcopy(expected)
    records = as_records(read)
    if kind == "missing":
        del read[at]
        records = as_records(read)
    elif kind == "wrong":
        read[at]["departures"] += 1
        records = as_records(read)
    elif kind == "repeated":
        records += as_records({at: expected[at]})
    else:
        records += as_records({(at[0], 99 * HOUR_MS): hour(1)})
    found = truth.compare(expected, records)
    assert not found.equal
    total = found.total
    assert (total.missing, total.wrong, total.repeated) == {
        "missing": (1, 0, 0), "wrong": (0, 1, 0), "repeated": (0, 0, 1), "invented": (0, 1, 0),
    }[kind]  # fmt: skip


def test_a_terminal_shows_one_block_that_redraws_itself() -> None:
    """Progress is drawn with its lag and the kills, the table of workers below it, and events stay above it."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with Display(console) as display:
        display.progress = Progress(
            total=1000, played=600, committed=450, results=33, kills=2, workers="w0 w2 . w1 killed"
        )
        display.event("something happened")
        display.progress.day = "2013-07-04"
        display.progress.session = SessionStatus(
            application="a", title="delays", guarantee="exactly_once", bootstrap_servers="b:1", directory="/logs",
            wanted=1, workers=(WorkerStatus(worker="w0", phase=WorkerPhase.RUNNING, pid=7, active=("1_0",), lag=5),),
        )  # fmt: skip
    said = screen.getvalue()
    assert re.search(r"\d s  something happened\n", said)
    assert re.search(r" w0 +1 +0 +5", said)
    for figure in ("w0 w2 . w1 killed", "600  2013-07-04", "450  lag 150", "33  kills 2"):
        assert figure in said


def test_without_a_terminal_progress_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Output to a file is not redrawn, and has no control characters."""
    with Display(Console()) as display:
        display.progress = Progress(total=1000, played=600, committed=450, results=33, kills=2, day="2013-07-04")
        display.update()
        display.update()
    assert re.fullmatch(
        r" +0\.\d s  2013-07-04   in 600   committed 450   results 33   lag 150   kills 2\n", capsys.readouterr().out
    )


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("own_brokers")
@pytest.mark.share(1)
@pytest.mark.parametrize(("signal_sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_stops_its_broker_and_its_workers(
    tmp_path: Path, signal_sent: signal.Signals, status: int
) -> None:
    """It leaves no process and no directory, and shows no traceback."""
    process = subprocess.Popen(
        [sys.executable, "-u", "examples/flights/demo.py", "--days", "2", "--seconds", "60", "--workers", "2"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "worker", "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        # Children of a test run in the background inherit ignored interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if "playing" in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    assert sum("millpond.cli" in child.cmdline() for child in children) == 3  # the session and its two workers
    process.send_signal(signal_sent)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == status, rest
    assert "Traceback" not in rest
    assert not [child for child in children if child.is_running()]
    assert list(tmp_path.iterdir()) == []
