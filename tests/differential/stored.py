"""The cases that are stored, each with the original's answer beside it.

`cases/` has differences that were found and mended, `situations/` has cases written by hand, by operator.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDERS = (HERE / "cases", HERE / "situations")
_ANSWER = ".answer.json"


def files() -> list[Path]:
    """Return the files of all stored cases."""
    return sorted(file for folder in FOLDERS for file in folder.rglob("*.json") if not file.name.endswith(_ANSWER))


def name_of(file: Path) -> str:
    """Return the name of a stored case: the path of its file without the end."""
    return file.relative_to(HERE).with_suffix("").as_posix()


def read(file: Path) -> dict[str, Any]:
    """Return the case of a file."""
    return json.loads(file.read_text())


def answer_of(file: Path) -> Path:
    """Return the file of the original's answer to the case of a file."""
    return file.with_suffix("").with_suffix(_ANSWER)


def written(case: dict[str, Any]) -> str:
    """Return a case as the text of its file: a step or a record on each line."""
    return _lines(case, ("steps", "input"))


def answer_written(answer: dict[str, Any]) -> str:
    """Return an answer as the text of its file: the outputs of an input on each line."""
    return _lines(answer, ("outputs",))


def _lines(whole: dict[str, Any], split: tuple[str, ...]) -> str:
    parts = []
    for key, value in whole.items():
        if key in split and value:
            rows = ",\n".join(f"  {json.dumps(each)}" for each in value)
            parts.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
