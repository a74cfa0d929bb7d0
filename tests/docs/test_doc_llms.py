"""llms.txt lists each page with one line about it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from docs import llms

from .pages import PAGES, ROOT

DOCS = ROOT / "docs"


def test_every_page_has_one_line_with_a_title_and_a_link() -> None:
    """Pages for users and those of the API; decisions are one page."""
    written = llms.text(DOCS)
    assert written.startswith("# millpond\n\n> Stream processing in Python")
    lines = re.findall(r"^- \[(.+?)\]\((.+?)\.html\): (.+)$", written, re.MULTILINE)
    assert len(lines) == written.count("\n- ")
    pages = [page for _, page, _ in lines]
    assert len(pages) == len(set(pages))
    wanted = {page.removeprefix("docs/").removesuffix(".md") for page in PAGES if page.startswith("docs/")}
    assert wanted - {"index"} <= set(pages)
    assert {f"api/{each.stem}" for each in (DOCS / "api").glob("*.md")} <= set(pages)
    assert [page for page in pages if not (DOCS / f"{page}.md").exists()] == []
    assert [line for line in lines if len(line[2]) > 300 or "](" in line[2]] == []


def test_the_build_of_the_documentation_writes_it(tmp_path) -> None:
    """The file is beside the pages, and only after a build that succeeded."""
    hooks: dict[str, Any] = {}
    app: Any = SimpleNamespace(outdir=tmp_path, srcdir=DOCS, connect=hooks.__setitem__)
    assert "llms" in (DOCS / "conf.py").read_text(encoding="utf-8")
    llms.setup(app)
    hooks["build-finished"](app, ValueError("a page has an error"))
    assert list(tmp_path.iterdir()) == []
    hooks["build-finished"](app, None)
    assert (tmp_path / "llms.txt").read_text(encoding="utf-8") == llms.text(DOCS)
