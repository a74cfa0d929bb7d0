"""Links of the documentation lead to files, and to headings in them."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from .pages import PAGES, ROOT, anchors, links


@pytest.mark.parametrize("page", [*PAGES, "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_every_link_leads_to_a_file_and_a_heading(page):
    wrong = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        if ":" in path:
            continue
        target = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        if not target.exists():
            wrong.append(f"{link}: there is no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(str(target.relative_to(ROOT))):
            wrong.append(f"{link}: the page has no such heading")
    assert wrong == []


def test_links_are_found():
    """The reader of pages finds links between pages, with and without anchors, and pictures."""
    found = [link for page in PAGES for link in links(page)]
    assert len([link for link in found if "#" in link]) > 20
    assert {PurePosixPath(link.partition("#")[0]).suffix for link in found} >= {".md", ".svg", ".png"}


def test_every_page_is_found_within_two_clicks():
    """The first page leads to each page with a line about it, or to the index that lists it."""
    first = {link for link in links("docs/index.md") if link.endswith(".md")}
    indexes = {str(PurePosixPath("docs", link).parent) for link in first if "/" in link}
    unlisted = {page for page in PAGES if page.startswith("docs/") and page.removeprefix("docs/") not in first} - {
        "docs/index.md"
    }
    assert {page for page in unlisted if str(PurePosixPath(page).parent) not in indexes} == set()
