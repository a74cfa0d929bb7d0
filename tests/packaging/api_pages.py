"""The pages of docs/api: what `public_api.txt` lists, and nothing else.

`python -m tests.packaging.public_api --write` writes them. Sphinx fills in signatures and docstrings.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.pycode import ModuleAnalyzer

import millpond

from .public_api import MADE_BY_MILLPOND, MODULES, members, plain

__all__ = ("FOLDER", "pages")

FOLDER = Path(__file__).parents[2] / "docs" / "api"
_NOTE = "<!-- Written by `python -m tests.packaging.public_api --write`. -->"

_SECTIONS = {
    "millpond.dsl": "Streams, tables and windows",
    "millpond.app": "Streams, tables and windows",
    "millpond.topology": "Topologies, processors and timestamps",
    "millpond.serdes": "Serdes",
    "millpond.state": "Stores",
    "msgspec": "Values",
    "msgspec.structs": "Values",
    "millpond.errors": "Errors",
}
"""Sections of the page of `millpond`, by the module of a name; "Running" for all others."""

_ABOUT = {
    "millpond": "What `import millpond as mp` gives.",
    "millpond.errors": "All errors that millpond raises on purpose.",
    "millpond.serdes": "Serdes, which turn values into bytes and back: [Serdes](../guides/serdes.md).",
    "millpond.serdes.registry": "[Serdes with a schema registry](../guides/serdes.md#how-do-i-read-an-avro-topic).",
    "millpond.state": "The kinds of stores that processors get. Their suppliers are in [millpond](millpond.md).",
    "millpond.testing": "Tests without a broker: [Testing applications](../testing-applications.md).",
    "millpond.queries": "The client of interactive queries: [Queries](../queries.md).",
    "millpond.broker": "A Kafka broker for tests and for `millpond dev`.",
}
_OF_MSGSPEC = {
    "Struct": "`msgspec.Struct`: the base of classes with typed fields, which serdes such as `Json` encode and decode.",
    "replace": "`msgspec.structs.replace(struct, /, **changes)`: a copy of a struct with other values in some fields.",
}


@functools.cache
def pages() -> dict[Path, str]:
    """Return the text of each page by its path."""
    found: dict[Path, str] = {}
    described: dict[int, str] = {}
    for name, chosen in MODULES.items():
        module = importlib.import_module(name)
        public = [each for each in sorted(chosen or module.__all__) if each != "__version__"]
        found[FOLDER / f"{name.rpartition('.')[2]}.md"] = _page(
            name, {each: getattr(module, each) for each in public}, described
        )
    return found


def _page(module: str, public: dict[str, Any], described: dict[int, str]) -> str:
    parts = [f"# `{module}`", _NOTE, _ABOUT[module]]
    sections: dict[str, list[str]] = {}
    elsewhere = []
    for name, value in public.items():
        if id(value) in described:
            elsewhere.append(name)
            continue
        described[id(value)] = name
        if not inspect.ismodule(value):
            section = _SECTIONS.get(millpond._HOMES[name], "Running") if module == "millpond" else ""
            sections.setdefault(section, []).append("\n".join(_directive(module, name, value)))
    if elsewhere:
        parts.append("Also in [millpond](millpond.md): " + ", ".join(f"`{each}`" for each in elsewhere) + ".")
    for section in sorted(sections, key=lambda each: [*_SECTIONS.values(), "Running", ""].index(each)):
        parts += [f"## {section}"] if section else []
        parts.append("```{eval-rst}\n" + "\n\n".join(sections[section]) + "\n```")
    return "\n\n".join(parts) + "\n"


def _directive(module: str, name: str, value: Any) -> Iterator[str]:
    if name in _OF_MSGSPEC and module == "millpond":
        yield f".. py:{'class' if inspect.isclass(value) else 'function'}:: {module}.{name}"
        yield from _indented(_OF_MSGSPEC[name])
    elif inspect.isclass(value):
        yield f".. autoclass:: {module}.{name}{'()' if name in MADE_BY_MILLPOND else ''}"
        chosen = sorted({found[0] for line in members(name, value) if (found := _MEMBER.findall(line))})
        if chosen and not issubclass(value, enum.Enum):
            yield f"   :members: {', '.join(chosen)}"
            yield "   :undoc-members:"
        elif issubclass(value, enum.Enum):
            yield "   :members:"
            yield "   :undoc-members:"
    elif inspect.isroutine(value):
        yield f".. autofunction:: {module}.{name}"
    else:
        annotation, comment = _assignment(module, name)
        kind = str(value) if typing.get_origin(value) is not None else annotation or type(value).__name__
        yield f".. py:data:: {module}.{name}"
        yield f"   :type: {plain(kind)}"
        yield from _indented(comment)


_MEMBER = re.compile(r"^(?:async )?(?:def )?([a-z]\w*)(?=[(:]|$)")


def _assignment(module: str, name: str) -> tuple[str | None, str]:
    """Return the annotation of an assignment, and the docstring below it, in the module that has it."""
    home = importlib.import_module(millpond._HOMES.get(name, module))
    for path in sorted(Path(inspect.getfile(home)).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not re.search(rf"^{name}\b.* = ", text, re.MULTILINE):
            continue
        analyzer = ModuleAnalyzer.for_string(text, str(path))
        comments = analyzer.find_attr_docs()
        if ("", name) in comments:
            return analyzer.annotations.get(("", name)), "\n".join(comments["", name]).strip()
    raise LookupError(f"{module}.{name} has no docstring below its assignment: write one.")


def _indented(text: str) -> Iterator[str]:
    yield ""
    yield textwrap.indent(text, "   ")
