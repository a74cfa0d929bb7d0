"""Runs the Python examples of a page, one after the other, in one namespace."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .pages import ROOT, blocks

__all__ = ("run_examples",)


def run_examples(
    page: str, replaced: Mapping[str, str], given: Mapping[str, Any] = MappingProxyType({})
) -> tuple[dict[str, Any], str]:
    """Run all Python blocks of a page; return their names, and what they have printed.

    Args:
        page: the page's path in the repository.
        replaced: texts to replace before, such as addresses, by the text to look for.
        given: names that the blocks begin with.
    """
    names: dict[str, Any] = {"__name__": "__main__", **given}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks(page):
            if block.language != "python":
                continue
            text = block.text
            for before, after in replaced.items():
                text = text.replace(before, after)
            # Line numbers of an error are those of the page.
            exec(compile("\n" * block.line + text, ROOT / page, "exec", dont_inherit=True), names)
    return names, printed.getvalue()
