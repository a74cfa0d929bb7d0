"""llms.txt: the title of each page with one line about it and a link, for programs that read documentation.

Sphinx writes it beside the pages. The lines are those of docs/index.md, or the first sentence of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx

__all__ = ("setup", "text")

_TOCTREE = re.compile(r"^```\{toctree\}\n((?::.*\n)*)([\s\S]*?)^```$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")
_SENTENCE = re.compile(r".*?[.:?!](?=\s|$)", re.DOTALL)
_NOT_ONE_BY_ONE = ("decisions/README",)
"""Pages whose own contents are left out: records of the past."""


def text(docs: Path) -> str:
    """Return the text of llms.txt for the pages of a folder."""
    index = (docs / "index.md").read_text(encoding="utf-8")
    known = dict(_lines(index))
    title, summary, *_ = re.split(r"\n{2,}", index)
    parts = [title, "> " + " ".join(summary.split())]
    for options, pages in _TOCTREE.findall(index):
        caption = re.search(r":caption: (.*)", options)
        parts.append(f"## {caption[1]}" if caption else "## Pages")
        lines = [line for page in pages.split() for line in _of_page(docs, page, known)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _of_page(docs: Path, page: str, known: dict[str, str]) -> Iterator[str]:
    """Yield the line of a page, and those of the pages that it contains."""
    source = (docs / f"{page}.md").read_text(encoding="utf-8")
    title = re.search(r"^# (.*)$", source, re.MULTILINE)
    name = title[1].replace("`", "") if title else page
    about = known.get(f"{page}.md") or _first_sentence(source)
    yield f"- [{name}]({page}.html): {about.removeprefix(f'{name}: ')}"
    if page not in _NOT_ONE_BY_ONE:
        for _options, inner in _TOCTREE.findall(source):
            for each in inner.split():
                yield from _of_page(docs, f"{page.rpartition('/')[0]}/{each}".lstrip("/"), known)


def _lines(index: str) -> Iterator[tuple[str, str]]:
    """Yield each page of the lists below "All pages", with the plain text of its item."""
    for item in re.findall(r"^- ((?:.*\n)(?:  .*\n)*)", index.partition("## All pages")[2], re.MULTILINE):
        found = _LINK.search(item)
        if found:
            yield found[2], " ".join(_LINK.sub(r"\1", item).split())


def _first_sentence(source: str) -> str:
    body = re.sub(r"<!--[\s\S]*?-->|^```[\s\S]*?^```|^#+ .*$|^\|.*$", "", source, flags=re.MULTILINE)
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n{2,}", body) if each.strip()]
    first = _LINK.sub(r"\1", paragraphs[0]) if paragraphs else ""
    sentence = _SENTENCE.match(first)
    return f"{(sentence[0] if sentence else first).rstrip(':.')}."


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        (Path(app.outdir) / "llms.txt").write_text(text(Path(app.srcdir)), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the file at the end of a build."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}
