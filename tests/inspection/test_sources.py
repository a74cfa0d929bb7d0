"""Which source of rows `millpond state export` and `show` read, by options, configuration and sessions."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from millpond.cli.state import sources as chosen
from millpond.cli.state.sources import Sources, open_store

LOCATION, COORDINATOR = {"bootstrap.location": "file:///snapshots"}, {"coordinator.url": "http://c:1"}
URLS, URI, DIRECTORY = ("http://w0:1",), "file:///snapshots", {"state.dir": "/state"}
MISSING, NO_SNAPSHOT, EXCLUDED = "the rows' source is missing", "--snapshot cannot be used", "--session excludes"


class _Read(Exception):
    """The rows would be read from this source."""


def _reading(source: str) -> Any:
    def read(*_: Any) -> None:
        raise _Read(source)

    return read


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Sources that only say that they are read, a session that may run, and the configurations that are loaded."""
    loaded: list[Any] = []
    load_config = chosen.load_config
    for module in ("millpond.cli.state.sources", "millpond.cli.session_broker"):
        monkeypatch.setattr(
            f"{module}.load_config", lambda *given, **more: loaded.append(given) or load_config(*given, **more)
        )
    monkeypatch.setattr(chosen, "load_topology", lambda *_: None)
    monkeypatch.setattr(chosen, "stores_of", lambda *_: {})
    monkeypatch.setattr(chosen, "find_store", lambda *_: SimpleNamespace(layout=None))
    for source in ("workers", "directories", "snapshot"):
        monkeypatch.setattr(Sources, source, _reading(source))
    return loaded


@pytest.mark.parametrize(
    ("settings", "given", "version", "source"),
    [
        ({}, {}, None, MISSING),
        ({}, {}, "v1", "snapshot"),
        (LOCATION, {}, None, "snapshot"),
        (COORDINATOR, {}, None, "workers"),
        (COORDINATOR, {}, "v1", "snapshot"),
        (LOCATION | COORDINATOR, {}, None, "snapshot"),
        ({}, {"uri": URI}, None, "snapshot"),
        (COORDINATOR, {"uri": URI}, None, "snapshot"),
        (LOCATION, {"urls": URLS}, None, "workers"),
        ({}, {"urls": URLS, "uri": URI}, None, "workers"),
        ({}, {"urls": URLS}, "v1", NO_SNAPSHOT),
        (DIRECTORY, {}, None, "directories"),
        (DIRECTORY | LOCATION, {"uri": URI}, None, "directories"),
        (DIRECTORY, {}, "v1", NO_SNAPSHOT),
        (DIRECTORY, {"urls": URLS}, None, "exclude each other"),
        ({}, {"session": "a"}, None, "workers"),
        ({}, {"session": "a"}, "v1", NO_SNAPSHOT),
        (LOCATION, {"session": "a"}, None, "snapshot"),
        (COORDINATOR, {"session": "a"}, "v1", "snapshot"),
        (LOCATION, {"session": "a", "named": "a"}, None, "workers"),
        (COORDINATOR, {"session": "a", "named": "a", "urls": URLS}, None, "workers"),
        ({}, {"session": "a", "named": "a", "uri": URI}, None, EXCLUDED),
        (DIRECTORY, {"session": "a", "named": "a"}, None, EXCLUDED),
    ],
)
def test_rows_are_read_from_one_source(
    monkeypatch: pytest.MonkeyPatch,
    loads: list[Any],
    settings: dict[str, object],
    given: dict[str, Any],
    version: str | None,
    source: str,
) -> None:
    """Options come before the configuration, a session that is named before both, and one that is not after them."""
    named, session = given.get("named"), given.get("session")
    status = SimpleNamespace(application="a", target="app:build")
    monkeypatch.setattr(chosen, "of_session", lambda _named, _file, flags, *_: (flags, status if session else None))
    options = {"uri": None, "credentials_dir": None, "urls": (), "token_file": None, "ca_file": None}
    options |= {name: value for name, value in given.items() if name in options}
    flags: dict[str, object] = {"application.id": "a", **settings}
    with pytest.raises((_Read, click.UsageError)) as raised, ExitStack() as stack:
        open_store(stack, Sources.of(None, flags, "app:build", named=named, **options), "counts", version)
    assert source in str(raised.value)


def test_the_configuration_is_loaded_once_for_the_choice_and_once_with_the_session(
    monkeypatch: pytest.MonkeyPatch, loads: list[Any]
) -> None:
    """The second time with the broker of the session, and with the settings that the command requires."""
    monkeypatch.setattr("millpond.cli.session_broker.sessions", list)
    options: dict[str, Any] = {"uri": None, "credentials_dir": None, "urls": (), "token_file": None, "ca_file": None}
    Sources.of(Path("/dev/null"), {"application.id": "a"}, "app:build", **options)
    assert len(loads) == 2
