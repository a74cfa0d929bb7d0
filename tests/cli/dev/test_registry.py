"""`schema.registry.url` and `millpond dev --registry`: which registry an application uses that names none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millpond.cli.dev import remote
from millpond.cli.dev.remote import SessionFile, registry_of_session
from millpond.cli.options import load_config
from tests.cli.conftest import Application, Millpond

MAKES_A_REGISTRY = """
    import millpond as mp
    from millpond.serdes.registry import Avro, SchemaRegistry

    SCHEMA = {"type": "record", "name": "Word", "fields": [{"name": "text", "type": "string"}]}

    def app():
        builder = mp.StreamsBuilder()
        serde = Avro(registry=SchemaRegistry(), schema=SCHEMA)
        builder.stream("in", key=mp.String, value=serde).to("out", key=mp.String, value=serde)
        return builder.build()
"""


def session(application: str, registry: str, servers: str) -> SessionFile:
    return SessionFile(application, 1, "http://x", "token", bootstrap_servers=servers, registry=registry)


def test_an_application_finds_the_registry_of_the_configuration(
    millpond: Millpond, application: Application, tmp_path: Path
) -> None:
    """It makes its client while it is loaded, before anything else could give it the address."""
    pytest.importorskip("authlib", reason="needs the extra avro")
    target = f"{application(MAKES_A_REGISTRY)}:app"
    refused = millpond("topology", target)
    assert refused.status == 2
    assert "set 'schema.registry.url' in millpond.toml, or SCHEMA_REGISTRY_URL" in refused.err
    assert "`millpond dev --registry` starts one" in refused.err
    (tmp_path / "millpond.toml").write_text('schema.registry.url = "http://registry:8081"', encoding="utf-8")
    shown = millpond("topology", target)
    assert (shown.status, "topics: [in]" in shown.out) == (0, True), shown


def test_the_common_variable_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every variable does; the own one and the command line beat it."""
    (tmp_path / "millpond.toml").write_text('schema.registry.url = "http://file"', encoding="utf-8")

    def used(**flags: object) -> str | None:
        config = load_config(None, {key.replace("_", "."): value for key, value in flags.items()}, required=())
        return config.schema_registry_url if config.schema_registry_url == os.environ["SCHEMA_REGISTRY_URL"] else None

    assert used() == "http://file"
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", "http://common")
    assert used() == "http://common"
    monkeypatch.setenv("MILLPOND_SCHEMA_REGISTRY_URL", "http://own")
    assert used() == "http://own"
    assert used(schema_registry_url="http://flag") == "http://flag"


def test_commands_beside_a_session_use_its_registry_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids of a session's registry mean nothing on other brokers, so a command for those does not use it."""
    monkeypatch.setattr(
        remote,
        "sessions",
        lambda: [session("a", "http://a", "one:1"), session("b", "http://b", "two:2"), session("c", "", "three:3")],
    )
    assert registry_of_session("a", "") == "http://a"
    assert registry_of_session("", "two:2") == "http://b"
    assert registry_of_session("other", "two:2") == "http://b"
    for application, servers in (("", ""), ("c", ""), ("a", "prod:9092"), ("a", "two:2,one:1")):
        assert registry_of_session(application, servers) == ""
    load_config(None, {"application.id": "a", "bootstrap.servers": "one:1"}, beside_session=True)
    assert os.environ["SCHEMA_REGISTRY_URL"] == "http://a"


def test_only_commands_for_a_session_look_for_its_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """`millpond run` is not one."""
    monkeypatch.setattr(remote, "sessions", lambda: [session("a", "http://a", "one:1")])
    load_config(None, {"application.id": "a", "bootstrap.servers": "one:1"})
    assert os.environ["SCHEMA_REGISTRY_URL"] == ""


def test_options_of_the_registry_that_exclude_each_other(millpond: Millpond, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started or loaded."""
    port = millpond("dev", "missing:app", "--registry-port", "8081")
    assert (port.status, "--registry-port is the port of --registry" in port.err) == (2, True)
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", "http://registry:8081")
    both = millpond("dev", "missing:app", "--registry")
    assert (both.status, "another one is configured (in SCHEMA_REGISTRY_URL)" in both.err) == (2, True)
