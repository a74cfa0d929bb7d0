"""Lets docstrings stay plain text: an indented block after a blank line is shown as code, as Markdown does."""

from __future__ import annotations

from sphinx.application import Sphinx


def show_indented_blocks_as_code(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Put reStructuredText's `::` before each indented block; sections such as "Args:" have no blank line and stay."""
    result: list[str] = []
    outer = 0  # indentation of the text around
    inside = False
    for index, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if line.strip():
            if inside and indent <= outer:
                inside = False
            if not inside:
                after_blank = index > 0 and not lines[index - 1].strip()
                if after_blank and indent >= outer + 4 and not _listed(result):
                    result += [" " * outer + "::", ""]
                    inside = True
                else:
                    outer = indent
        result.append(line)
    lines[:] = result


def _listed(lines: list[str]) -> bool:
    """Whether the last text is a list item or ends with a marker of its own."""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last.endswith("::") or last.startswith(("- ", "* ", ".. "))


def setup(app: Sphinx) -> dict[str, bool]:
    """Run before napoleon, whose sections rely on the indentation seen here."""
    app.connect("autodoc-process-docstring", show_indented_blocks_as_code, priority=400)
    return {"parallel_read_safe": True}
