"""The session files of `millpond dev`, by which other commands find a session."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millpond.cli.dev import control_server, remote
from millpond.cli.dev.remote import NoSession, SessionFile, directory, sessions
from millpond.cli.session_broker import session_here


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_a_session_whose_process_id_is_another_process_now_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file would make each command fail, and no `millpond dev` could be stopped to end that."""
    monkeypatch.setattr(remote, "_TIMEOUT_S", 0.5)  # the server here answers nothing
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        session = SessionFile("orders", os.getpid(), f"http://127.0.0.1:{port}", "token")
        directory().mkdir(mode=0o700)
        (directory() / "orders-1.json").write_bytes(msgspec.json.encode(session))
        assert sessions() == [session]
    assert sessions() == []
    assert list(directory().iterdir()) == []


def test_only_a_session_of_the_application_is_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command in the directory of one application must not end the workers of another, or write to its broker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLPOND_CONFIG", raising=False)
    running = [SessionFile(name, number, "http://127.0.0.1:1", "t") for number, name in enumerate(("devices", "fraud"))]
    monkeypatch.setattr(remote, "sessions", lambda: running)

    def found(name: str | None = None) -> str:
        return session_here(name).application

    with pytest.raises(NoSession, match="several sessions run"):
        found()
    (tmp_path / "millpond.toml").write_text('application.id = "fraud"')
    assert found() == "fraud"
    assert found("devices") == "devices"
    (tmp_path / "millpond.toml").write_text('application.id = "other"')
    for each in (running, running[:1]):
        running[:] = each
        with pytest.raises(NoSession, match="no session of 'other' runs on this machine, only of"):
            found()
    assert found("devices") == "devices"
    (tmp_path / "millpond.toml").unlink()
    assert found() == "devices"


@pytest.mark.parametrize("place", ["file", "/proc/none"])
def test_a_directory_that_cannot_be_used_is_told_with_the_variable_that_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    """As after `su`, which keeps the variable of another user."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / place))

    async def session() -> None:
        async with control_server.serving_session("orders", lambda: None, str):  # type: ignore[arg-type, return-value]
            raise AssertionError("it starts")

    with pytest.raises(NoSession, match="set XDG_RUNTIME_DIR to a directory of yours, or unset it"):
        asyncio.run(session())


def test_a_session_that_ends_meanwhile_takes_no_directory_from_one_that_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A session removes the directory if it was the last one, perhaps before another one has written its file."""
    removed: list[bool] = []

    class Racing:
        """`os`, with another session that ends before the first file is opened."""

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def open(self, *arguments: Any) -> int:
            if not removed:
                removed.append(True)
                directory().rmdir()
            return os.open(*arguments)

    monkeypatch.setattr(control_server, "os", Racing())

    async def session() -> list[str]:
        async with control_server.serving_session("orders", lambda: None, str):  # type: ignore[arg-type, return-value]
            return [each.name for each in directory().iterdir()]

    assert asyncio.run(session()) == [f"orders-{os.getpid()}.json"]
    assert removed == [True]
    assert not directory().exists()
