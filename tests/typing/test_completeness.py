"""Type checkers know every type of the package, as `pyright --verifytypes millpond` counts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import millpond

ROOT = Path(__file__).parents[2]
PACKAGE = Path(millpond.__file__).parent

pytestmark = pytest.mark.xdist_group("typing")


def incomplete() -> list[str]:
    """Return the symbols whose type pyright has to guess, each with pyright's reason."""
    # --verifytypes takes the interpreter from PATH; --pythonpath has no effect on it.
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(ROOT / each) for each in ("worker", "operator", "spark")),
    }
    command = [sys.executable, "-m", "pyright", "--verifytypes", "millpond", "--ignoreexternal", "--outputjson"]
    output = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False).stdout
    report = json.loads(output[output.index("{") :])["typeCompleteness"]
    assert Path(report["packageRootDirectory"]) == PACKAGE
    assert report["exportedSymbolCounts"]["withKnownType"] > 1000
    return [
        f"{symbol['name']}: {' '.join(each['message'] for each in symbol['diagnostics'])}"
        for symbol in report["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
    ]


def test_the_package_says_that_it_is_typed() -> None:
    """Type checkers read the annotations of an installed package only where it has this file (PEP 561)."""
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_type_is_declared(processes: None) -> None:
    """`pyright --verifytypes millpond` is at 100 %: it has to guess no type of an attribute, parameter or result."""
    assert incomplete() == []
