"""`make demo-snapshot`: both ways restore the same rows, and differences are reported."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from examples.flights import demo_snapshot
from examples.flights.demo_snapshot import Outcome, Way
from examples.flights.stage import boards, data
from tests.demo.commands import ROOT


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("own_brokers")
def test_a_lost_disk_is_restored_in_two_ways() -> None:
    """By replay and by snapshot; it shows tables of three dates."""
    pytest.importorskip("pyspark")
    done = subprocess.run(
        [sys.executable, "examples/flights/demo_snapshot.py", "--days", "120"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "worker:spark"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "IDENTICAL: both ways restore the same" in done.stdout
    assert len(re.findall(r"snapshot as of 2013-\d\d-\d\d: ", done.stdout)) == 3
    assert re.search(r"[\d,]{5,} rows from the snapshot", done.stdout), done.stdout


def outcome(*digests: dict[str, str]) -> Outcome:
    """Return the outcome of two ways."""
    ways = [
        Way(name, seconds, 0, each)
        for name, seconds, each in zip(("replay", "snapshot"), (9.0, 1.5), digests, strict=True)
    ]
    rows = [{"key": "EWR", "value": {"departed": 106_649, "mean_delay": 15.0}}]
    return Outcome(ways, [("2013-04-20", []), ("2013-08-07", rows), ("2013-11-25", rows)])


@pytest.mark.parametrize(("other", "status", "verdict"), [("5 ab", 0, "IDENTICAL"), ("5 ac", 1, "DIFFERENT")])
def test_the_verdict_is_in_words_and_in_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], other: str, status: int, verdict: str
) -> None:
    """One different byte in a store is enough."""
    found = outcome({"board": "5 ab"}, {"board": other})
    monkeypatch.setattr(demo_snapshot, "Demo", lambda *_: SimpleNamespace(run=lambda: found))
    monkeypatch.setattr(sys, "argv", ["demo_snapshot.py"])
    assert demo_snapshot.main() == status
    said = capsys.readouterr().out
    assert verdict in said
    assert "EWR Newark" in said
    assert "106,649" in said


def test_without_java_the_demo_says_so_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints one sentence, with exit status 2."""
    monkeypatch.setattr(sys, "argv", ["demo_snapshot.py"])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert demo_snapshot.main() == 2
    said = capsys.readouterr().out
    assert said.startswith("demo: ")
    assert "Java" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_every_flight_gets_its_updates_and_the_last_one_on_its_day() -> None:
    """Updates are sent in the order of days."""
    rows = data.year(3)
    sent = list(boards.updates(rows, 5))
    assert len(sent) == 5 * len(rows)
    assert [each.day for each in sent] == sorted(each.day for each in sent)
    last = {each.flight: each for each in sent}
    assert {each.status for each in last.values()} == {"departed", "cancelled"}
    assert all(each.day == each.row["scheduled"][:10] for each in last.values())
    assert len(last) == len(rows)


def test_tables_of_all_dates_stand_side_by_side() -> None:
    """An airport without flights has no values."""
    console = Console(file=io.StringIO(), width=80)
    demo_snapshot.show_outcome(console, outcome({"board": "5 ab"}, {"board": "5 ab"}))
    text = console.file.getvalue()
    assert "2013-04-20" in text
    assert "…" not in text, "it fits a terminal"
    (line,) = [each for each in text.splitlines() if "EWR" in each]
    assert line.split()[2:] == ["-", "-", "106,649", "15.0", "m", "106,649", "15.0", "m"]
