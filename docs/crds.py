"""The reference of the custom resources, written from their definitions: `python -m docs.crds` writes docs/reference/.

With `--check` nothing is written, and the exit code says whether the pages are as they should be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ("main", "pages")

_ROOT = Path(__file__).parents[1]
_SOURCE = _ROOT / "crds"
_TARGET = _ROOT / "docs" / "reference"

_DURATION = "(ms|s|m|h)"

_Schema = Mapping[str, Any]


def main(arguments: list[str]) -> int:
    """Write the pages, or say which of them are stale."""
    stale = {name: text for name, text in pages().items() if _read(_TARGET / name) != text}
    gone = {each.name for each in _TARGET.glob("*.md")} - pages().keys()
    if "--check" in arguments:
        for name in sorted(stale.keys() | gone):
            sys.stderr.write(f"docs/reference/{name} is not what crds/ says: run python -m docs.crds.\n")
        return 1 if stale or gone else 0
    _TARGET.mkdir(exist_ok=True)
    for name, text in stale.items():
        (_TARGET / name).write_text(text, encoding="utf-8")
    for name in gone:
        (_TARGET / name).unlink()
    return 0


def pages() -> dict[str, str]:
    """All pages by the name of their file."""
    definitions = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(_SOURCE.glob("*.yaml"))]
    made = {f"{each['spec']['names']['plural']}.md": "\n".join(_page(each)) + "\n" for each in definitions}
    return {"index.md": "\n".join(_index(definitions)) + "\n"} | made


def _index(definitions: list[_Schema]) -> Iterator[str]:
    yield from ("# Custom resources", "", _WRITTEN, "", "| kind | short name | what it is |", "|---|---|---|")
    for each in definitions:
        names = each["spec"]["names"]
        (version,) = each["spec"]["versions"]
        what = version["schema"]["openAPIV3Schema"]["description"]
        yield f"| [{names['kind']}]({names['plural']}.md) | `{names['shortNames'][0]}` | {_cell(what)} |"
    yield from ("", "```{toctree}", ":hidden:", "", *(each["spec"]["names"]["plural"] for each in definitions), "```")


_WRITTEN = "<!-- Written by `python -m docs.crds`; edit the descriptions in crds/. -->"


def _page(definition: _Schema) -> Iterator[str]:
    spec = definition["spec"]
    names = spec["names"]
    (version,) = spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    short = ", ".join(f"`{each}`" for each in names["shortNames"])
    yield from (f"# {names['kind']}", "", _WRITTEN, "", schema["description"], "")
    yield (
        f"`apiVersion: {spec['group']}/{version['name']}`, `kind: {names['kind']}`; "
        f"for kubectl `{names['plural']}`, {short}."
    )
    yield from _refusals({**schema, "properties": {}})
    yield from ("", "`kubectl get` shows:", "", "| column | from | |", "|---|---|---|")
    for column in version["additionalPrinterColumns"]:
        wide = "with `-o wide`" if column.get("priority") else ""
        told = " ".join(each for each in (column.get("description", ""), wide and f"Only {wide}.") if each)
        yield f"| {column['name']} | `{column['jsonPath'].removeprefix('.')}` | {_cell(told)} |"
    for name in ("spec", "status"):
        if name in schema["properties"]:
            yield from _section(name, schema["properties"][name], level=2)


def _section(path: str, schema: _Schema, level: int) -> Iterator[str]:
    """An object: its fields in a table, then its rules, then the objects within it."""
    yield from ("", f"{'#' * level} {path}", "", schema.get("description", ""), "")
    yield from ("| field | type | default | |", "|---|---|---|---|")
    inner: list[tuple[str, _Schema]] = []
    for name, field in schema["properties"].items():
        nested = _object_in(field)
        where = f"{path}.{name}{'[]' if field.get('type') == 'array' else ''}"
        if nested is not None:
            inner.append((where, nested))
        default = "*required*" if name in schema.get("required", ()) else _default(field)
        yield f"| `{name}` | {_type(field, where)} | {default} | {_cell(field.get('description', ''))} |"
    yield from _refusals(schema, path)
    for where, nested in inner:
        told = nested if "description" in nested else {**nested, "description": f"One of `{where.removesuffix('[]')}`."}
        yield from _section(where, told, level=3)


def _object_in(field: _Schema) -> _Schema | None:
    """The object that a field is, or is a list of."""
    found = field.get("items", field)
    return found if "properties" in found else None


def _type(field: _Schema, where: str) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in field:
        *most, last = (f"`{each}`" for each in field["enum"])
        return f"{', '.join(most)} or {last}"
    if _object_in(field) is not None:
        anchor = "".join(each for each in where.lower() if each.isalnum())
        return f"[list](#{anchor})" if field["type"] == "array" else f"[object](#{anchor})"
    match field["type"]:
        case "array":
            return f"list of {_type(field['items'], where)}s"
        case "object":
            return f"map of {_type(field['additionalProperties'], where).replace('quantity', 'quantitie')}s"
        case "string" if field.get("format") == "date-time":
            return "time"
        case "integer" if "minimum" in field and "maximum" in field:
            return f"integer, {field['minimum']} to {field['maximum']}"
        case "integer" if "minimum" in field:
            return f"integer, at least {field['minimum']}"
        case "string" if any(_DURATION in rule["rule"] for rule in field.get("x-kubernetes-validations", ())):
            return "duration"
        case kind:
            return str(kind)


def _default(field: _Schema) -> str:
    default = field.get("default")
    if default is None or isinstance(default, dict):
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _refusals(schema: _Schema, path: str = "") -> Iterator[str]:
    """What is said when a rule is broken: one about the object, and about its fields that are no objects."""
    found = [("", each) for each in _messages(schema)]
    for name, field in schema["properties"].items():
        if "properties" not in field:
            found += [(name, each) for each in _messages(field)]
    if found:
        yield from ("", "What is refused, and what is said:", "")
        for name, message in found:
            where = ".".join(each for each in (path, name) if each)
            yield f"- `{where}`: {message}" if where else f"- {message}"


def _messages(schema: _Schema) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield rule["message"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _read(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
