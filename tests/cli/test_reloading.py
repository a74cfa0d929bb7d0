"""An application whose files were changed is loaded again in the same process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from millpond.cli.application import load_topology
from millpond.cli.reloading import ApplicationFiles

APP = """
import millpond as mp
from helper import NAME

def build():
    builder = mp.StreamsBuilder()
    builder.stream(NAME, key=mp.String, value=mp.String).to("out")
    return builder.build()
"""


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000_000))  # another second, as after an edit by hand


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def _topics() -> set[str]:
    return {topic for part in load_topology("app:build").subtopologies() for topic in part.source_topics}


@pytest.mark.slow
def test_the_module_and_those_beside_it_are_loaded_again(tmp_path: Path) -> None:
    """A topology is often in another module than the one that is named."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "helper.py").write_text("NAME = 'before'")
    assert _topics() == {"before"}
    files = ApplicationFiles(tmp_path)
    _write(tmp_path / "helper.py", "NAME = 'after, and longer'".replace(", and longer", "wards"))
    assert _topics() == {"before"}
    assert files.forget() == []
    assert _topics() == {"afterwards"}


@pytest.mark.slow
def test_a_changed_file_elsewhere_is_told(tmp_path: Path) -> None:
    """Other modules may have objects of it, so it stays; modules of millpond and of Python stay, too."""
    here, there = tmp_path / "here", tmp_path / "there"
    for each in (here, there):
        each.mkdir()
    (there / "elsewhere.py").write_text("NAME = 1")
    sys.path.insert(0, str(there))
    import elsewhere  # type: ignore[import-not-found]

    files, kept = ApplicationFiles(here), sys.modules["millpond"]
    assert files.forget() == []
    _write(there / "elsewhere.py", "NAME = 22")
    assert files.forget() == [(there / "elsewhere.py").resolve()]
    assert sys.modules["elsewhere"] is elsewhere
    assert sys.modules["millpond"] is kept
