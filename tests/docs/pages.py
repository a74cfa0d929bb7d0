"""The pages of the documentation, as Markdown has them: code blocks, commands, links and headings."""

from __future__ import annotations

import functools
import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from myst_parser.slugs import github_slugify

__all__ = (
    "PAGES",
    "ROOT",
    "Block",
    "Command",
    "anchors",
    "blocks",
    "commands",
    "links",
    "pages_with",
    "simple_commands",
)

ROOT = Path(__file__).parents[2]
_NOT_FOR_USERS = ("decisions", "reference", "api")
"""Folders of docs/: records of the past, and pages that are generated."""

PAGES = (
    *sorted(
        str(page.relative_to(ROOT))
        for page in (ROOT / "docs").rglob("*.md")
        if page.relative_to(ROOT / "docs").parts[0] not in _NOT_FOR_USERS
    ),
    "helm/millpond/README.md",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "examples").glob("*/README.md")),
)

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
_SHELL = {"sh", "bash", "shell"}


class Block(NamedTuple):
    """A code block: fenced, or indented (without a language)."""

    page: str
    line: int
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command line of a page.

    Attributes:
        page: its path in the repository.
        line: the line of its block or paragraph, from 1.
        text: the command, without prompt and comment.
        inline: whether it stands in a sentence or a table, where it may be shortened to its name.
    """

    page: str
    line: int
    text: str
    inline: bool = False

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def simple_commands(text: str) -> list[list[str]]:
    """Return the words of each program call of a command line: of pipes, of lists, of `$(...)`, and in a subshell."""
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    found: list[list[str]] = [[]]
    reader = shlex.shlex(text, posix=True, punctuation_chars="|;&")
    reader.whitespace_split = True
    for word in reader:
        if set(word) <= set("|;&"):
            found.append([])
        elif found[-1] or not _ASSIGNMENT.fullmatch(word):
            found[-1].append(word)
    nested = [each for inner in _SUBSTITUTION.findall(text) for each in simple_commands(inner)]
    return [_without_redirection(each) for each in found if each] + nested


def _without_redirection(words: list[str]) -> list[str]:
    """Return the words before `> file`; a program does not see where its output goes."""
    return words[: words.index(">")] if words[-2:-1] == [">"] else words


def pages_with(word: str) -> list[str]:
    """Return the pages with a word: parsing all pages takes a tenth of the time of collecting all tests."""
    return [page for page in PAGES if word in (ROOT / page).read_text(encoding="utf-8")]


def blocks(page: str) -> Iterator[Block]:
    """Return the code blocks of a page in order."""
    for token in _tokens(page):
        if token.type in {"fence", "code_block"}:
            assert token.map is not None
            yield Block(page, token.map[0] + 1, token.info.split()[0] if token.info else "", token.content)


def commands(page: str, programs: frozenset[str]) -> list[Command]:
    """Return the commands of a page: all lines of `sh` blocks, lines after `$`, and calls of known programs elsewhere.

    Args:
        page: the page.
        programs: names of programs that are commands in a sentence and in an indented block, too.
    """
    found = [each for block in blocks(page) for each in _commands_of(block, programs)]
    for line, code in _inline_code(page):
        words = code.split()
        if len(words) > 1 and words[0] in programs and re.match(r"[a-z-]", words[1]):
            found.append(Command(page, line, code, inline=True))
    return found


def links(page: str) -> list[str]:
    """Return the targets of a page's links and pictures."""
    return [
        str(target)
        for token in _tokens(page)
        for child in token.children or []
        if (target := child.attrs.get("href") or child.attrs.get("src")) is not None
    ]


@functools.cache
def anchors(page: str) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub and Sphinx name them."""
    tokens = _tokens(page)
    titles = [
        "".join(child.content for child in following.children or [] if child.type in {"text", "code_inline"})
        for token, following in itertools.pairwise(tokens)
        if token.type == "heading_open"
    ]
    return frozenset(github_slugify(title) for title in titles)


@functools.cache
def _tokens(page: str) -> tuple[Token, ...]:
    return tuple(MarkdownIt("commonmark").enable("table").parse((ROOT / page).read_text(encoding="utf-8")))


def _inline_code(page: str) -> Iterator[tuple[int, str]]:
    line = 0
    for token in _tokens(page):
        line = token.map[0] + 1 if token.map else line
        for child in token.children or []:
            if child.type == "code_inline":
                yield line, child.content


def _commands_of(block: Block, programs: frozenset[str]) -> Iterator[Command]:
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            text = line.removeprefix("$ ")
        elif block.language in _SHELL or (not block.language and line.split(" ", 1)[0] in programs):
            text = line
        else:
            continue
        if not text.lstrip().startswith("#") and text.strip():
            yield Command(block.page, block.line, re.sub(r"\s+# .*$", "", text).strip())
