"""The differences that are meant: `differences.toml`."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

from myst_parser.slugs import github_slugify

FILE = Path(__file__).with_name("differences.toml")


@dataclass(frozen=True)
class Difference:
    """A difference that is meant, with what each side does."""

    title: str
    of: tuple[str, ...]
    """Operators as the differential cases name them, members of classes, classes, or settings of Kafka Streams."""
    streams: str
    here: str
    rules: tuple[str, ...] = ()
    """Names of the rules of `tests/differential/rules.py` that take the difference out of comparisons."""

    @property
    def link(self) -> str:
        """A link to the difference, from another page of `docs`."""
        return f"[{self.title}](differences.md#{github_slugify(self.title)})"


@functools.cache
def read() -> tuple[Difference, ...]:
    """Return all differences."""
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))["difference"]
    return tuple(
        Difference(row["title"], tuple(row["of"]), row["streams"], row["here"], tuple(row.get("rules", ())))
        for row in rows
    )


def links(*names: str) -> str:
    """Return links to the differences of an operator, which is known under several names."""
    return ", ".join(each.link for each in read() if set(names) & set(each.of))
