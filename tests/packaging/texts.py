"""Messages, log lines and docstrings drawn at random, to be read without the code: is each clear at first reading?

python -m tests.packaging.texts --seed 7
"""

from __future__ import annotations

import argparse
import ast
import functools
import random
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

__all__ = ("drawn", "main", "texts")

ROOT = Path(__file__).parents[2]
_FOLDERS = ("worker/millpond", "operator/millpond_operator", "spark/millpond_spark")
_LOG_METHODS = ("debug", "info", "warning", "error", "exception")
_EACH = 20
_SHORTEST = 20


@functools.cache
def texts() -> dict[str, list[tuple[str, str]]]:
    """Return all texts of the project's own code by kind: each with the place where it stands."""
    found: dict[str, list[tuple[str, str]]] = {"message": [], "log line": [], "docstring": []}
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                for kind, text in _of_node(node):
                    if len(text) >= _SHORTEST:
                        found[kind].append((f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text))
    return found


def _of_node(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if docstring := ast.get_docstring(node):
            yield "docstring", docstring
    elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
        if text := " ".join(filter(None, map(_literal, node.exc.args))):
            yield "message", text
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _LOG_METHODS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in {"log", "logger"}
        and node.args
        and (text := _literal(node.args[0]))
    ):
        yield "log line", text


def _literal(node: ast.AST) -> str:
    """Return the text of a literal, with the source of what is filled in, in braces."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            f"{{{ast.unparse(each.value)}}}" if isinstance(each, ast.FormattedValue) else _literal(each)
            for each in node.values
        )
    return ""


def drawn(seed: int) -> list[tuple[str, str, str]]:
    """Return as many texts of each kind as one draw has: kind, place, and text."""
    chance = random.Random(seed)
    return [(kind, *each) for kind, found in texts().items() for each in chance.sample(found, _EACH)]


def main(arguments: list[str]) -> int:
    """Show one draw."""
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.texts", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of the draw; another one each time without it")
    parser.add_argument("--places", action="store_true", help="say where each text stands")
    given = parser.parse_args(arguments)
    seed = random.randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}\n")
    for number, (kind, place, text) in enumerate(drawn(seed), 1):
        print(f"{number:3} {kind}{f'  {place}' if given.places else ''}")
        print(textwrap.indent(text, "      "), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
