"""Each question of users of other libraries is answered at most two clicks from the first page."""

from __future__ import annotations

import functools
import posixpath
import tomllib

import pytest

from .pages import ROOT, anchors, links

FIRST = "index.md"
QUESTIONS: dict[str, str] = {
    each["asks"]: each["answer"]
    for each in tomllib.loads((ROOT / "tests/docs/questions.toml").read_text(encoding="utf-8"))["question"]
}


@pytest.mark.parametrize(("asks", "answer"), QUESTIONS.items(), ids=QUESTIONS.values())
def test_a_question_is_answered_within_two_clicks(asks: str, answer: str) -> None:
    """A click follows a link, or goes to a heading in the contents of the page."""
    assert answer in places() | {place for each in places() for place in from_page(each.partition("#")[0])}, asks


@functools.cache
def places() -> frozenset[str]:
    """The places that the first page links to."""
    return from_page(FIRST)


@functools.cache
def from_page(page: str) -> frozenset[str]:
    """The places that one click leads to from a page, below docs/: its links that lead somewhere, and its headings."""
    if not page.endswith(".md") or page.startswith(".."):
        return frozenset()
    found = {f"{page}#{anchor}" for anchor in anchors(f"docs/{page}")}
    for link in links(f"docs/{page}"):
        path, _, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        if ":" not in path and (ROOT / "docs" / target).is_file():
            if anchor and target.endswith(".md") and anchor not in anchors(f"docs/{target}"):
                continue
            found.add(f"{target}#{anchor}" if anchor else target)
    return frozenset(found)
