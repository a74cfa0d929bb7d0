"""Files of the coordinator: the stored assignment, and the tokens."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from millpond.errors import ConfigError
from millpond.protocol import Epoch, Mark, Member, View
from millpond_operator.coordinator import FileStore, Identity, StoreError, TokenFile
from tests.coordinator.support import topology


def view(number: int = 1) -> View:
    return View(
        "delays",
        Epoch(3, number),
        topology(),
        (Member("w0", incarnation="i", replaced=("h",), tags={"zone": "a"}),),
        {"0_0": "w0"},
        {"0_0": "w0"},
        {"0_0": ("w1", "w2")},
        {"0_1": ("w1",)},
        {"0_1": "it waits"},
        {"0_0": Mark(7, 1_000)},
    )


def test_a_store_gives_back_what_was_saved_last(tmp_path: Path) -> None:
    """None before the first save, then the newest, for another process too."""

    async def scenario() -> None:
        path = tmp_path / "new" / "assignment.json"
        store = FileStore(path)
        assert await store.load() is None
        for number in range(3):
            await store.save(view(number))
        assert await FileStore(path).load() == view(2)
        assert [each.name for each in path.parent.iterdir()] == ["assignment.json"]

    asyncio.run(scenario())


def test_an_interrupted_save_leaves_the_last_one_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is replaced at once, after all its bytes were written."""

    async def scenario() -> None:
        path = tmp_path / "assignment.json"
        store = FileStore(path)
        await store.save(view(1))
        write = Path.write_bytes

        def failing(self: Path, data: bytes) -> int:
            write(self, data[: len(data) // 2])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", failing)
        with pytest.raises(StoreError, match=r"assignment\.json.*No space left on device"):
            await store.save(view(2))
        assert await store.load() == view(1)
        monkeypatch.setattr(Path, "write_bytes", write)
        await store.save(view(3))
        assert await store.load() == view(3)

    asyncio.run(scenario())


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'{"application": "delays"}'])
def test_a_damaged_store_is_named_with_its_cure(tmp_path: Path, raw: bytes) -> None:
    """It does not count as empty, since the term in it matters."""
    path = tmp_path / "assignment.json"
    path.write_bytes(raw)
    with pytest.raises(StoreError, match=r"assignment\.json.*greater term"):
        asyncio.run(FileStore(path).load())


def who(file: TokenFile, token: str | None) -> Identity | None:
    return asyncio.run(file(token))


def test_tokens_identify_workers_and_admins(tmp_path: Path) -> None:
    """One per line; comments and empty lines are skipped."""
    path = tmp_path / "tokens"
    path.write_text("\n# people\nabc admin\n  def   worker=w0 \nghi worker=w1 application=delays admin\n")
    file = TokenFile(path)
    assert who(file, "abc") == Identity(admin=True)
    assert who(file, "def") == Identity(worker="w0")
    assert who(file, "ghi") == Identity("w1", "delays", admin=True)
    for nobody in (None, "", "ab", "abcd", "ABC", "#", "admin", "\udcff", "ä"):
        assert who(file, nobody) is None


def test_identity_limits_what_a_client_may_send() -> None:
    """Only for its worker in its application."""
    assert Identity("w0").speaks_for("delays", "w0")
    assert not Identity("w0").speaks_for("delays", "w1")
    assert not Identity("w0", "delays").speaks_for("other", "w0")
    assert not Identity(admin=True).speaks_for("delays", "w0")


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """New tokens count at once; while the file is missing or invalid, the last ones stay, with a warning."""
    path = tmp_path / "tokens"
    path.write_text("old worker=w0\n")
    file = TokenFile(path)
    aside = tmp_path / "aside"
    aside.write_text("new worker=w0\n")
    aside.replace(path)
    assert who(file, "old") is None
    assert who(file, "new") == Identity("w0")
    path.unlink()
    assert who(file, "new") == Identity("w0")
    path.write_text("secret of-nobody\n")
    with caplog.at_level(logging.WARNING):
        assert who(file, "new") == Identity("w0")
    assert "Line 1" in caplog.text
    assert "secret" not in caplog.text
    path.write_text("newest worker=w0\n")
    assert who(file, "newest") == Identity("w0")
    assert who(file, "new") is None


@pytest.mark.parametrize("line", ["{}", "{} worker=", "{} worker=w0 role=boss", "{} nothing"])
def test_malformed_token_line_is_refused_without_the_token(tmp_path: Path, line: str) -> None:
    """The error has the number of the line, never the token."""
    path = tmp_path / "tokens"
    path.write_text("# people\n" + line.format("xyzzy") + "\n")
    with pytest.raises(ConfigError, match="Line 2") as caught:
        TokenFile(path)
    assert "xyzzy" not in str(caught.value)


def test_missing_token_file_is_refused_at_the_start(tmp_path: Path) -> None:
    """Not only at the first heartbeat."""
    with pytest.raises(ConfigError, match=r"Cannot read the token file.*tokens"):
        TokenFile(tmp_path / "tokens")
