"""The command line: help, exit statuses, errors."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.cli import _COMMANDS
from millpond.cli.session import Session
from tests.cli.conftest import COUNT, WORKER_ROOT, Application, Millpond


def test_help_names_every_command_and_the_exit_statuses(millpond: Millpond) -> None:
    """`millpond --help` lists all commands."""
    ended = millpond("--help")
    assert ended.status == 0
    assert all(name in ended.out for name in _COMMANDS)
    assert "Exit status" in ended.out


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_has_help(millpond: Millpond, name: str) -> None:
    """Every command can be loaded, and has a help text."""
    ended = millpond(name, "--help")
    assert ended.status == 0
    assert f"millpond {name}" in ended.out


@pytest.mark.usefixtures("processes")
def test_help_loads_no_command() -> None:
    """Help is fast, and works even if a command cannot be imported: it imports no command."""
    code = (
        "import sys; from millpond.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print(sorted(sys.modules))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(WORKER_ROOT)}, capture_output=True, text=True, check=True
    ).stdout
    assert not any(f"'millpond.cli.{name}'" in shown for name in _COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rnu"], "command 'rnu' does not exist; did you mean 'run'?"),
        (["xyz"], "the commands are new, run, dev"),
        (["run"], "Missing argument"),
        (["topology", "a:b", "--formt", "svg"], "--formt"),
        (["settings", "no such word"], "no setting"),
        (["reset"], "--input-topics"),
        (["reset", "--to-latest", "--to-offset", "3", "--input-topics", "t"], "choose one of"),
        (["reset", "--to-datetime", "soon", "--input-topics", "t"], "--to-datetime"),
        (["reset", "--by-duration", "soon", "--input-topics", "t"], "--by-duration"),
    ],
)
def test_wrong_command_line_is_one_sentence_and_status_2(millpond: Millpond, arguments: list[str], told: str) -> None:
    """A wrong command line is reported with a hint, and nothing is done."""
    ended = millpond(*arguments)
    assert ended.status == 2
    assert told in ended.err
    assert "Traceback" not in ended.err


def test_wrong_setting_is_one_sentence_and_status_2(millpond: Millpond, application: Application) -> None:
    """The message has the nearest right setting, and where the wrong one was given."""
    name = application(COUNT)
    ended = millpond("run", f"{name}:count", "--set", "comit.interval.ms=5", "--application-id", "a")
    assert ended.status == 2
    assert "'comit.interval.ms' (given on the command line) is unknown; did you mean 'commit.interval.ms'?" in ended.err


def test_a_set_without_a_value_does_not_repeat_it(millpond: Millpond, application: Application) -> None:
    """The text may be a password without its key."""
    ended = millpond("run", f"{application(COUNT)}:count", "--set", "hunter2")
    assert ended.status == 2
    assert "hunter2" not in ended.err


def test_a_missing_setting_names_the_ways_to_give_it(millpond: Millpond, application: Application) -> None:
    """Without an application id, the message has the flag and the variable."""
    ended = millpond("run", f"{application(COUNT)}:count")
    assert ended.status == 2
    assert "MILLPOND_APPLICATION_ID" in ended.err


def test_a_configuration_in_the_current_directory_is_used(millpond: Millpond, application: Application) -> None:
    """`millpond.toml` is read by default, another file by --config."""
    name = application(COUNT)
    Path("millpond.toml").write_text("pol.ms = 1", encoding="utf-8")
    assert "millpond.toml" in millpond("run", f"{name}:count").err
    Path("other.toml").write_text("pll.ms = 1", encoding="utf-8")
    assert "other.toml" in millpond("run", f"{name}:count", "--config", "other.toml").err


def test_expected_errors_have_a_traceback_when_asked_for(millpond: Millpond, application: Application) -> None:
    """`--verbose` shows where an expected error comes from; otherwise there is one line."""
    name = application("x = 1 / 0")
    assert "Traceback" not in millpond("topology", f"{name}:x").err
    assert "ZeroDivisionError" in millpond("topology", f"{name}:x", "-v").err
    assert "Traceback" in millpond("topology", f"{name}:x", "-v").err


def test_an_unexpected_error_shows_its_traceback_and_what_to_do(
    millpond: Millpond, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug is never hidden behind a message."""

    def broken(self: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("millpond.topology.Topology.describe", broken)
    ended = millpond("topology", f"{application(COUNT)}:count")
    assert ended.status == 70
    assert "RuntimeError: a bug" in ended.err
    assert "please report it" in ended.err


def test_the_documentation_of_settings_is_what_the_command_prints(millpond: Millpond) -> None:
    """docs/configuration.md is the output of `millpond settings --markdown`."""
    page = WORKER_ROOT.parent / "docs" / "configuration.md"
    printed = millpond("settings", "--markdown").out
    assert printed == page.read_text(encoding="utf-8"), f"write it again: millpond settings --markdown > {page}"


def test_settings_can_be_searched(millpond: Millpond) -> None:
    """A word of the name or of the description finds the setting."""
    found = millpond("settings", "kip-353").out
    assert "max.task.idle.ms" in found
    assert "application.id" not in found


@pytest.mark.usefixtures("processes")
def test_closed_and_full_outputs_are_no_unexpected_errors() -> None:
    """`>&-` discards the output. A full device is told in one sentence."""
    command = [sys.executable, "-m", "millpond", "settings"]
    environment = {"PYTHONPATH": str(WORKER_ROOT)}
    closed = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&- >&-', "sh", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (closed.returncode, closed.stderr) == (0, "")
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("millpond: no space is left")
    assert "Traceback" not in ended.stderr


def test_messages_and_logs_do_not_control_a_terminal(millpond: Millpond, capsys: pytest.CaptureFixture[str]) -> None:
    """They may quote what anybody has written to a topic."""
    ended = millpond("run\x1b[2J", "a:b")
    assert "\x1b" not in ended.err
    logger, root = logging.getLogger("millpond"), logging.getLogger()
    before = root.handlers[:], root.level, logger.level
    try:
        Session().log_to_stderr()
        logger.warning("a record\x1b]0;title\x07 of %s\nsecond line", "user\x1b[31m")
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        logger.setLevel(before[2])
    shown = capsys.readouterr().err
    assert "a record\ufffd]0;title\ufffd of user\ufffd[31m\nsecond line" in shown


def test_settings_in_a_pipe_have_no_padding(millpond: Millpond, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe is as wide as the longest line: a space behind each line up to that width would fill it."""
    monkeypatch.delenv("COLUMNS")
    lines = millpond("settings", "replication").out.splitlines()
    assert len(lines) >= 2
    assert [line for line in lines if line != line.rstrip() or len(line) > 1_000] == []
