"""The blocks of Python files: what a test depends on, smaller than a file.

A file has a block for each function, named after it, which is its body; a block `<module>`, which is everything else,
signatures and decorators included; and a block `<text>`, its very bytes. Comments and blank lines are in `<text>` only.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ("MODULE", "TEXT", "Import", "Source", "digest", "parse")

MODULE = "<module>"
TEXT = "<text>"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """One import: of a module, or of names from it.

    Attributes:
        module: its dotted name; one that is relative begins with dots.
        names: the names that are imported from it; empty for `import module`.
        lazy: whether only type checkers see it. In an `__init__.py` such a name is imported when it is first used.
    """

    module: str
    names: tuple[str, ...] = ()
    lazy: bool = False


@dataclass(frozen=True)
class Source:
    """One Python file.

    Attributes:
        blocks: the digest of each block.
        spans: the first line, the last line and the block of each function, in the order of the file.
        imports: all its imports, also those inside functions.
    """

    blocks: dict[str, str]
    spans: tuple[tuple[int, int, str], ...]
    imports: tuple[Import, ...]

    def block_at(self, line: int) -> str:
        """Return the block of the code that begins at a line."""
        return next((name for first, last, name in self.spans if first <= line <= last), MODULE)


def digest(content: bytes) -> str:
    """Return a short digest of some content."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def parse(content: bytes) -> Source:
    """Return the blocks and imports of a file. A file that is not Python has its text only."""
    text = digest(content)
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return Source({MODULE: text, TEXT: text}, (), ())
    imports = tuple(_imports(tree))
    bodies: dict[str, list[str]] = {}
    spans = []
    for name, node in _functions(tree.body, ""):
        bodies.setdefault(name, []).append("".join(ast.dump(each) for each in node.body))
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        spans.append((first, node.end_lineno or first, name))
        node.body = []
    blocks = {name: digest("\n".join(each).encode()) for name, each in bodies.items()}
    return Source({MODULE: digest(ast.dump(tree).encode()), TEXT: text, **blocks}, tuple(spans), imports)


def _functions(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, _Function]]:
    """Yield functions and methods, but not functions inside these: they belong to the body around them."""
    for node in body:
        if isinstance(node, _Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        else:
            for field in ("body", "orelse", "finalbody"):
                yield from _functions(getattr(node, field, ()), prefix)
            for handler in getattr(node, "handlers", ()):
                yield from _functions(handler.body, prefix)


def _imports(tree: ast.Module) -> Iterator[Import]:
    lazy = {
        id(each)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for each in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(each.name, lazy=id(node) in lazy) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(each.name for each in node.names)
            yield Import("." * node.level + (node.module or ""), names, lazy=id(node) in lazy)
