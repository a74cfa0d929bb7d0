"""Every example could start: `millpond topology` finds no fault in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Millpond

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/app.py"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_can_start(name: str, millpond: Millpond, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its settings it has all serdes, and no store or internal topic with a generated name."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", "mock://examples")
    code = (ROOT / "examples" / name / "app.py").read_text()
    [function] = re.findall(r"^def (\w+)\([^)]*\) -> mp\.Topology:", code, re.MULTILINE)
    settings = ROOT / "examples" / name / "millpond.toml"
    given = ["--config", settings] if settings.exists() else []
    ended = millpond("topology", f"examples.{name}.app:{function}", *given)
    assert (ended.status, ended.err) == (0, "")
    assert "ensure.explicit" in settings.read_text() if given else name == "flights"
