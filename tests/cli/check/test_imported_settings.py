"""Settings that name code of the application by an import path: where it is found, and which commands import it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Application, Millpond

FRAUD = """
    from pathlib import Path

    from millpond.dsl import StreamsBuilder
    from millpond.serdes import String
    from millpond.serdes.registry import SchemaRegistry

    Path("imported").touch()
    registry = SchemaRegistry()
    Text = String

    def aside(context, error):
        raise error

    builder = StreamsBuilder()
    builder.stream("in").map_values(str.upper).to("out")
    fraud = builder.build()
"""
"""An application that is built while its module is imported, as is its registry, with the code that settings name."""


@pytest.fixture
def fraud(application: Application) -> str:
    """Write an application, and the settings that name its code; return its module."""
    name = application(FRAUD)
    Path("millpond.toml").write_text(
        'schema.registry.url = "mock://here"\ntopology.optimization = "all"\ndefault.key.serde = "String"\n'
        f'default.value.serde = "{name}:Text"\nprocessing.exception.handler = "{name}:aside"\n'
    )
    return name


@pytest.mark.parametrize("verb", ["check", "topology"])
def test_code_of_the_settings_is_found_in_the_current_directory(millpond: Millpond, fraud: str, verb: str) -> None:
    """As the application itself is, and with the same registry and rewrites, whichever is imported first."""
    done = millpond(verb, f"{fraud}:fraud")
    assert (done.status, done.err) == (0, ""), done


@pytest.mark.parametrize("verb", ["consume", "produce"])
def test_serdes_of_the_settings_are_found_for_an_application(millpond: Millpond, fraud: str, verb: str) -> None:
    """The command fails later, since there is no broker."""
    refused = millpond(verb, "in", "--application", f"{fraud}:fraud")
    assert "no broker is known" in refused.err
    assert Path("imported").exists()


@pytest.mark.usefixtures("fraud")
@pytest.mark.parametrize(
    "command",
    [
        ("topics",),
        ("consume", "in"),
        ("reset", "--input-topics", "in"),
        ("dev", "status"),
        ("dev", "scale", "0"),
        ("tasks",),
        ("query", "stores"),
    ],
)
def test_commands_that_need_no_code_of_the_settings_import_none(millpond: Millpond, command: tuple[str, ...]) -> None:
    """An import may be slow, have effects, or fail; the command would not miss what it brings."""
    refused = millpond(*command)
    assert refused.status != 0
    assert "no broker" in refused.err or "no session" in refused.err or "no worker" in refused.err, refused.err
    assert not Path("imported").exists()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import millpond as mp\nmp.App('x').run()", "a worker is started while a command"),
        ("raise SystemExit(0)", "exits when it is imported"),
        ("import no_such_library", "No module named 'no_such_library'"),
    ],
)
def test_code_of_the_settings_that_cannot_be_imported_is_named_with_its_setting(
    millpond: Millpond, application: Application, fraud: str, code: str, said: str
) -> None:
    """Neither does the command end in silence, nor does it run the worker that the module starts."""
    name = application(code)
    Path("millpond.toml").write_text(f'processing.exception.handler = "{name}:aside"\n')
    refused = millpond("check", f"{fraud}:fraud", "--set", "schema.registry.url=mock://here")
    assert refused.status != 0
    assert f"setting 'processing.exception.handler' (in millpond.toml) has the value '{name}:aside'" in refused.err
    assert said in refused.err
