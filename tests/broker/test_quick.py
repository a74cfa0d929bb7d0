"""The broker of `millpond dev` and of the demo: up soon, and it tells what it waits for."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from millpond.broker import jars, java, quick


class _Broker(contextlib.AbstractContextManager["_Broker"]):
    """A broker that only remembers its options."""

    bootstrap_servers = "127.0.0.1:1"
    options: tuple[str, ...] = ()

    def __init__(self, _directory: Path, **options: Any) -> None:
        type(self).options = options["jvm_options"]
        options["on_step"]("starting Kafka")

    def __exit__(self, *_: object) -> None:
        """Write the archive, as Java does at its end."""
        for option in self.options:
            if option.startswith("-XX:ArchiveClassesAtExit="):
                Path(option.partition("=")[2]).write_bytes(b"classes")


def test_the_first_broker_writes_the_archive_that_the_next_ones_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each says what it waits for, and only the first one says that it writes an archive at its end."""
    launcher = tmp_path / "java"
    launcher.touch()
    monkeypatch.setenv("MILLPOND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "find_java", lambda: launcher)
    monkeypatch.setattr(jars, "classpath", lambda _set: "kafka.jar")
    monkeypatch.setattr(quick, "EmbeddedBroker", _Broker)
    told: list[str] = []
    for writes in (True, False):
        told.clear()
        with quick.quick_broker(tmp_path / "data", told.append) as broker:
            assert broker.bootstrap_servers == "127.0.0.1:1"
        assert set(quick.QUICK) <= set(_Broker.options)
        assert (len(_Broker.options) > len(quick.QUICK)) is writes
        assert told[0] == "starting Kafka"
        assert told[1].startswith("Kafka is up after ")
        assert ["writing an archive" in each for each in told] == [False, False, *([True] if writes else [])]
