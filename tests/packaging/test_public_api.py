"""The public API changes only on purpose."""

from __future__ import annotations

import re

from tests.packaging.api_pages import FOLDER, pages
from tests.packaging.public_api import FILE, text

COMMAND = "python -m tests.packaging.public_api --write"


def test_public_names_and_signatures_are_the_recorded_ones() -> None:
    """Every public name and its signature stand in `public_api.txt`, so that a review shows each change of them."""
    assert text() == FILE.read_text(encoding="utf-8"), f"The public API changed. If it was meant to: {COMMAND}"


def test_the_pages_of_the_api_list_the_public_names_and_nothing_else() -> None:
    """`docs/api` has a page for each public module, with each of its names, or with a link to where the name is."""
    for path, page in pages().items():
        assert path.read_text(encoding="utf-8") == page, f"{path} is out of date: {COMMAND}"
    assert {path.name for path in FOLDER.glob("*.md")} == {path.name for path in pages()} | {"index.md"}
    listed = {
        (module, name)
        for page in pages().values()
        for module in re.findall(r"^# `([\w.]+)`", page)
        for name in [
            *re.findall(rf":: {re.escape(module)}\.(\w+)", page),
            *(each for line in re.findall(r"^Also in .*", page, re.MULTILINE) for each in re.findall(r"`(\w+)`", line)),
        ]
    }
    recorded = set()
    for section in FILE.read_text(encoding="utf-8").split("\n[")[1:]:
        names = re.findall(r"^(?:class |(?:async )?def )?(\w+)(?=[(: ]|$)", section.partition("]\n")[2], re.MULTILINE)
        recorded |= {(section.partition("]")[0], name) for name in names if name != "module"}
    assert listed == recorded
