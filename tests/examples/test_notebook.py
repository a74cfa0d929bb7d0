"""The notebook of the examples, run as its page says: its results are those that are stored in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.demo.commands import ROOT, commands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PAGE = "examples/notebook/README.md"
NOTEBOOK = "examples/notebook/delays.ipynb"


def results(notebook: Path) -> list[Any]:
    """Return the results of each cell: texts of each stream together, since a kernel may send them in pieces."""
    found: list[Any] = []
    for cell in nbformat.read(notebook, as_version=4).cells:
        texts: dict[str, str] = {}
        shown = []
        for each in cell.get("outputs", []):
            if each.output_type == "stream":
                texts[each.name] = texts.get(each.name, "") + each.text
            else:
                shown.append((each.output_type, each.data))
        found.append((texts, shown))
    return found


def test_the_notebook_has_the_results_that_it_gives(processes: None, tmp_path: Path) -> None:
    """All cells run, the picture of the topology included."""
    run, tests = commands(PAGE)
    copy = tmp_path / NOTEBOOK
    copy.parent.mkdir(parents=True)
    shutil.copy(ROOT / NOTEBOOK, copy)
    for name in ("__init__.py", "flights"):
        (tmp_path / "examples" / name).symlink_to(ROOT / "examples" / name)
    stored = results(copy)
    cleared = nbformat.read(copy, as_version=4)
    for cell in cleared.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    nbformat.write(cleared, copy)
    here = str(Path(sys.executable).parent)
    done = subprocess.run(
        run.split(),
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": os.pathsep.join([here, os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT / "worker"),
            "IPYTHONDIR": str(tmp_path / "ipython"),
            "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert results(copy) == stored
    assert any("text/html" in data for _, shown in stored for _, data in shown)
    assert tests == "python -m pytest tests/examples/test_notebook.py"
