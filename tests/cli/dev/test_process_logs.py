"""What a session reads in the log files of its processes."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import pytest

from millpond.cli.dev.process_log import ProcessLog
from millpond.drops import Drop
from millpond.json_logs import JsonFormatter
from millpond.runtime.processing.drop_log import DropLog, LateForJoin, LateWindow
from millpond.runtime.topics import left_changelogs


def test_log_tail_yields_the_last_error_and_the_address(tmp_path: Path) -> None:
    """Lines may be written in parts; a new process in the same log starts without an error or an address."""
    path = tmp_path / "w0.log"
    log = ProcessLog(path)
    log.read()
    with path.open("a") as file:
        for piece in (
            "2026-01-01T00:00:00.000Z INFO x metrics on http://127.0.0.1:5/metrics\nmill",
            "pond: no topic 'x'.\n",
        ):
            file.write(piece)
            file.flush()
            log.read()
    assert (log.metrics, log.error) == ("http://127.0.0.1:5/metrics", "no topic 'x'.")
    log.new_process()
    assert (log.metrics, log.error) == ("", "")
    with path.open("a") as file:
        file.write("Traceback (most recent call last):\n  File x\nValueError: bad\n")
    log.read()
    assert log.error == "ValueError: bad"


def test_logs_as_json_yield_the_same(tmp_path: Path) -> None:
    """With `log.format = json`, the address is an address, and the reason of an end is the message of an error."""
    path = tmp_path / "w0.log"
    log = ProcessLog(path)
    lines = (
        {"level": "INFO", "message": "HTTP server: metrics on http://127.0.0.1:5/metrics"},
        {"level": "CRITICAL", "message": "no topic 'x'.", "traceback": "Traceback …\nValueError: bad"},
        {"level": "INFO", "message": "stopped after an error"},
    )
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines) + "{not JSON\n[]\n")
    log.read()
    assert (log.metrics, log.error) == ("http://127.0.0.1:5/metrics", "no topic 'x'.")


def test_a_log_yields_the_first_line_about_drops_of_each_operator_and_reason(tmp_path: Path) -> None:
    """The terminal tells it; later lines of the same are in the log only."""
    path = tmp_path / "w0.log"
    log = ProcessLog(path)
    with path.open("w") as file:
        drops = DropLog()
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter("2026-01-01T00:00:00.000Z %(levelname)s x %(message)s"))
        logger = logging.getLogger("millpond.runtime.processing.drop_log")
        logger.addHandler(handler)
        try:
            for now_ms in (0, 100_000, 200_000):
                task = SimpleNamespace(topic="in", partition=0, offset=7, now_ms=lambda now=now_ms: now)
                for reason in (Drop.NULL_KEY, Drop.NULL_VALUE):
                    for _ in range(3):
                        drops.note("count", reason, task)
                drops.note("count", Drop.LATE, task, LateWindow(0, 5, 5, 9))
                drops.note("outcomes", Drop.LATE, task, LateForJoin(5))
                drops.report()
        finally:
            logger.removeHandler(handler)
    log.read()
    assert [line.split(" a ")[0] for line in log.drops] == [
        "node 'count' dropped",
        "node 'count' dropped",
        "node 'count' dropped",
        "join 'outcomes': results of",
    ]
    assert "without a key" in log.drops[0]


TEXT = logging.Formatter("2026-01-01T00:00:00.000Z %(levelname)s %(name)s %(message)s")


@contextmanager
def logging_to(file: TextIO, formatter: logging.Formatter) -> Iterator[None]:
    handler = logging.StreamHandler(file)
    handler.setFormatter(formatter)
    logger = logging.getLogger("millpond")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)  # as in a worker, whatever other tests of this process have set
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize("formatter", [TEXT, JsonFormatter()], ids=["text", "json"])
def test_a_warning_that_asks_for_an_action_is_told_and_others_are_not(
    tmp_path: Path, formatter: logging.Formatter
) -> None:
    """A renamed store is a mistake; a commit that is tried again passes."""
    path = tmp_path / "w0.log"
    log = ProcessLog(path)
    plan = SimpleNamespace(internal=[SimpleNamespace(name="a-open-visits-changelog")])
    with path.open("w") as file, logging_to(file, formatter):
        left_changelogs.warn_of_left_changelogs(plan, {"a-visits-changelog": 4}, "a")  # type: ignore[arg-type]
        logging.getLogger("millpond.runtime.commit.pipeline").warning("commit: no answer; retrying")
    log.read()
    (told,) = log.warnings
    assert told.startswith("the store 'open-visits' begins empty")
    assert (log.drops, log.error) == ([], "")


@pytest.mark.parametrize("formatter", [TEXT, JsonFormatter()], ids=["text", "json"])
@pytest.mark.parametrize(
    ("logger", "shown"),
    [
        ("millpond.runtime.kafka.admin", ""),
        ("millpond.runtime.tasks.task_stores", ""),
        ("millpond.runtime.tasks.start_positions", "it broke"),
        ("millpond.runtime.worker.worker", "it broke"),
    ],
)
def test_an_error_that_is_over_when_the_worker_runs_is_forgotten_then(
    tmp_path: Path, formatter: logging.Formatter, logger: str, shown: str
) -> None:
    """A client that lost its broker is connected, and a damaged store is restored; deleted records stay lost."""
    path = tmp_path / "w0.log"
    log = ProcessLog(path)
    states = logging.getLogger("millpond.runtime.worker.parts")
    with path.open("w") as file, logging_to(file, formatter):
        logging.getLogger(logger).error("it broke")
        states.info("worker w0: starting -> restoring")
        file.flush()
        log.read()
        assert (log.error, log.recent_error) == ("it broke", "it broke")
        states.info("worker w0: restoring -> running")
        file.flush()
        log.read()
        assert (log.error, log.recent_error) == (shown, shown)
        logging.getLogger(logger).error("it broke again")
    log.read()
    assert log.recent_error == "it broke again"


def test_a_log_that_exists_is_read_from_its_end(tmp_path: Path) -> None:
    """Its lines are of earlier workers, whose errors and drops were told then."""
    path = tmp_path / "w0.log"
    old = "2026-01-01T00:00:00.000Z WARNING x node 'a' dropped a late record at in-0.\n"
    path.write_text(f"{old}millpond: an old error.\nmetrics on http://127.0.0.1:1/metrics\n")
    log = ProcessLog(path)
    log.read()
    assert (log.metrics, log.error, log.recent_error, log.drops, log.tail()) == ("", "", "", [], "")
    with path.open("a") as file:
        file.write(old.replace("'a'", "'b'"))
    log.read()
    assert [line[:8] for line in log.drops] == ["node 'b'"]
    assert log.tail().count("dropped") == 1


def test_a_traceback_without_another_word_yields_its_error_and_place(tmp_path: Path) -> None:
    """Its class may be of any name, and the place is the last one that is of no library."""
    path = tmp_path / "w0.log"
    log = ProcessLog(path)

    class Odd(Exception):
        """An error whose name does not say so."""

    def fail(_text: str) -> None:
        raise Odd("no such row")

    try:
        json.loads("{}", object_hook=fail)
    except Odd:
        path.write_text(f"starting\n{traceback.format_exc()}")
        line = sys.exc_info()[2]
        assert line is not None
    log.read()
    assert log.error.endswith(f"Odd: no such row (test_process_logs.py, line {fail.__code__.co_firstlineno + 1})")


def test_the_last_words_of_a_worker_name_an_unexpected_error_and_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A session shows no more than its last line."""
    from millpond.cli import main

    def fail(*_given: object) -> None:
        raise KeyError("gift")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr("millpond.cli.run.command.load_topology", fail)
        main(["run", "app:build", "--application-id", "a", "--bootstrap-servers", "127.0.0.1:1"])
    path = tmp_path / "w0.log"
    log = ProcessLog(path)
    path.write_text(capsys.readouterr().err)
    log.read()
    place = f"test_process_logs.py, line {fail.__code__.co_firstlineno + 1}"
    assert f": KeyError: 'gift' ({place}" in log.error
