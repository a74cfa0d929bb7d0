"""The termination message of failed commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Application, Millpond

FLAGS = ("--application-id", "a", "--bootstrap-servers", "127.0.0.1:1")
PASSWORD = "hunter2-swordfish"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the termination message."""
    path = tmp_path / "termination-log"
    path.touch()
    monkeypatch.setenv("MILLPOND_TERMINATION_LOG", str(path))
    return path


def said(log: Path) -> dict[str, str]:
    raw = log.read_bytes()
    assert len(raw) <= 4096
    assert raw.count(b"\n") == 1
    return json.loads(raw)


def test_an_application_that_cannot_be_imported_is_named(millpond: Millpond, log: Path) -> None:
    """It has the kind of error, and the printed message."""
    ended = millpond("run", "no_such_module:build", *FLAGS)
    words = said(log)
    assert words["reason"] == "ApplicationError"
    assert "no_such_module" in words["message"]
    assert words["message"] in ended.err


def test_wrong_setting_is_reported_without_its_value(
    millpond: Millpond, application: Application, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value may be a secret."""
    target = application("import millpond as mp\ndef build():\n    return mp.StreamsBuilder().build()\n")
    monkeypatch.setenv("MILLPOND_SASL_PASWORD", PASSWORD)
    millpond("run", f"{target}:build", *FLAGS)
    words = said(log)
    assert words["reason"] == "ConfigError"
    assert "MILLPOND_SASL_PASWORD" in words["message"]
    assert PASSWORD not in words["message"]


def test_unexpected_error_is_reported_without_its_text(
    millpond: Millpond, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text may contain data of the application; the log has the traceback."""

    def fail(*_given: str) -> None:
        raise RuntimeError(PASSWORD)

    monkeypatch.setattr("millpond.cli.run.command.load_topology", fail)
    assert millpond("run", "app:build", *FLAGS).status == 70
    words = said(log)
    assert words["reason"] == "Unforeseen"
    assert "RuntimeError in test_termination_message.py" in words["message"]
    assert PASSWORD not in words["message"]


def test_long_message_is_cut_to_the_limit(log: Path) -> None:
    """The message is cut, so that the line stays valid JSON."""
    from millpond.cli.termination_message import write_termination_message

    for text in ("x" * 10_000, "é\n" * 5_000, "\x01" * 9_000, "\U0001f41f" * 3_000, "\udc80" * 5_000):
        write_termination_message("StateError", text)
        assert said(log)["message"].endswith("…")
        assert len(log.read_bytes()) > 3_900


def test_no_termination_message_without_a_writable_file(
    millpond: Millpond, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit status does not change."""
    before = set(tmp_path.iterdir())
    assert millpond("run", "no_such_module:build", *FLAGS).status == 2
    assert set(tmp_path.iterdir()) == before
    monkeypatch.setenv("MILLPOND_TERMINATION_LOG", str(tmp_path / "missing" / "log"))
    assert millpond("run", "no_such_module:build", *FLAGS).status == 2


def test_successful_command_writes_no_message(millpond: Millpond, log: Path) -> None:
    """The file stays empty."""
    assert millpond("settings", "commit").status == 0
    assert log.read_bytes() == b""
