"""YAML documents with the line of each field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

__all__ = ("Document", "MalformedYaml", "read_documents")


#: An object of Kubernetes has at most a megabyte; aliases of aliases can stand for billions of fields.
_MOST_FIELDS = 100_000


class MalformedYaml(Exception):
    """A text is not YAML, says a key twice, or has aliases without an end.

    Attributes:
        line: the line of the fault, from 1.
    """

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


@dataclass(frozen=True)
class Document:
    """One document.

    Attributes:
        content: what it says.
        lines: the line of each field, from 1, by paths such as ``spec.pod.mounts[0].name``; "" is the document.
    """

    content: Any
    lines: Mapping[str, int]

    def line(self, path: str) -> int:
        """Return the line of a field, or of the nearest one above it that is written."""
        while path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines[path]


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a date without quotes is a text."""


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_documents(text: str) -> list[Document]:
    """Return the documents of a text, without empty ones.

    Raises:
        MalformedYaml: the text is not YAML, says a key twice, or has aliases without an end.
    """
    try:
        return list(_documents(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise MalformedYaml(1 if mark is None else mark.line + 1, f"this is not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise MalformedYaml(1, f"this is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise MalformedYaml(1, "this is nested too deeply to be read") from error


def _documents(text: str) -> Iterator[Document]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node: yaml.Node = loader.get_node()  # type: ignore[assignment]  # check_node() says that there is one
            lines = {"": node.start_mark.line + 1}
            for path, line in _lines(node, "", ()):
                lines[path] = line
                if len(lines) > _MOST_FIELDS:
                    raise MalformedYaml(line, f"this has more than {_MOST_FIELDS:,} fields, its aliases written out")
            content = loader.construct_document(node)
            if content is not None:
                yield Document(content, lines)
    finally:
        loader.dispose()


def _lines(node: yaml.Node, path: str, above: tuple[yaml.Node, ...]) -> Iterator[tuple[str, int]]:
    if any(each is node for each in above):
        raise MalformedYaml(
            node.start_mark.line + 1, "an alias (*…) stands within what it names, so it has no end; write it out"
        )
    above = (*above, node)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen:
                raise MalformedYaml(line, f"the key '{name}' stands here a second time; remove one of the two")
            seen.add(name)
            below = f"{path}.{name}" if path else name
            yield below, line
            yield from _lines(value, below, above)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield f"{path}[{number}]", value.start_mark.line + 1
            yield from _lines(value, f"{path}[{number}]", above)
