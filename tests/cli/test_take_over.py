"""`--take-over`: the commands that have it, and what it excludes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from millpond.cli.dev import command as dev
from millpond.cli.own_broker import OwnBroker
from millpond.cli.run import command as run
from millpond.cli.run import worker_process as running
from millpond.cli.session import Session
from millpond.errors import ConfigError

APPLICATION = """
import millpond as mp

def topology():
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).to("out")
    return builder.build()
"""
SETTINGS = ("--application-id", "a", "--bootstrap-servers", "127.0.0.1:1")


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of workers, which are not started."""
    (tmp_path / "taken_over_app.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(running, "run_worker", lambda *_arguments, **options: seen.append(options))
    monkeypatch.setattr(dev, "_create_topics", lambda *_arguments: None)
    return seen


def called(command: Any, *arguments: str) -> None:
    CliRunner().invoke(command, ["taken_over_app:topology", *arguments], obj=Session(), catch_exceptions=False)


@pytest.mark.parametrize(("flags", "taken"), [((), False), (("--take-over",), True)])
def test_run_takes_over_only_when_told_to(started: list[dict[str, Any]], flags: tuple[str, ...], taken: bool) -> None:
    """It is for a single start, so it is a flag and not a setting."""
    called(run.command, *SETTINGS, *flags)
    assert [options["take_over"] for options in started] == [taken]


def test_take_over_is_refused_where_a_coordinator_decides(started: list[dict[str, Any]]) -> None:
    """The message names both options."""
    with pytest.raises(ConfigError, match=r"--take-over and 'coordinator\.url' exclude each other"):
        called(run.command, *SETTINGS, "--take-over", "--set", "coordinator.url=http://127.0.0.1:1")
    assert started == []


@pytest.mark.slow
def test_dev_takes_over_on_a_broker_of_its_own_alone(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No other worker runs with an own broker; with another broker, one may."""
    kafka: Any = SimpleNamespace(bootstrap_servers="127.0.0.1:1", unexpected_end=lambda: None)
    own = OwnBroker(kafka, (), None)
    monkeypatch.setattr(dev, "own_broker", lambda *_arguments: contextlib.nullcontext(own))
    called(dev.command)
    called(dev.command, *SETTINGS)
    called(dev.command, *SETTINGS, "--take-over")
    assert [options["take_over"] for options in started] == [True, False, True]


def test_dev_with_several_workers_needs_no_take_over(started: list[dict[str, Any]]) -> None:
    """Their coordinator decides; the message says which option to leave out."""
    outcome = CliRunner().invoke(
        dev.command, ["taken_over_app:topology", "--take-over", "--workers", "2"], obj=Session()
    )
    assert "leave out one of them" in outcome.output
    assert started == []
