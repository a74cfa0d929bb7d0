"""The pages that are written from the tests: what there is of Kafka Streams, and what differs."""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.runtime.config.settings import settings
from tests.parity import coverage, differences, inventory, places
from tests.parity.inventory import JavaClass, Member
from tests.parity.places import Place

DOCS = Path(__file__).parents[2] / "docs"

_WIDTH = 150
_COMPARED = ("Streams and tables", "Windows", "Options")
"""The sections whose operators and options are in the differential cases."""


@dataclass(frozen=True)
class Row:
    """Members of a class that have one name and one place."""

    members: tuple[Member, ...]
    operator: str
    place: Place
    alone: bool
    """Whether no other row has members of this name."""

    @property
    def shown(self) -> str:
        """The members as the page names them."""
        first = self.members[0]
        if self.alone:
            number = len(self.members)
            return f"`{first.name}`" + (f", {number} overloads" if number > 1 and first.name != "new" else "")
        if self.operator.startswith(("KStream.", "KTable.")) and "oin" in first.name:
            kind = "on a foreign key" if self.operator.endswith("Foreign") else f"with a `{first.parameters[0]}`"  # type: ignore[index] # a method has parameters
            return f"`{first.name}` {kind}, {len(self.members)} overloads"
        if len(self.members) > 3:
            return f"`{first.name}`, {len(self.members)} other overloads"
        return ", ".join(f"`{each.signature}`" for each in self.members)


def rows(owner: JavaClass) -> list[Row]:
    """Return the rows of a class, by name."""
    found = []
    for _, same in itertools.groupby(sorted(owner.members, key=lambda each: each.name), lambda each: each.name):
        groups: dict[tuple[str, Place], list[Member]] = {}
        for member in same:
            key = (coverage.operator_of(owner.name, member), places.place(owner, member))
            groups.setdefault(key, []).append(member)
        found += [Row(tuple(each), name, at, len(groups) == 1) for (name, at), each in groups.items()]
    return found


def written(place: Place) -> str:
    """Return a place as a cell of a table."""
    return {"here": "{}", "missing": "**not yet**; meanwhile {}", "without": "none: {}"}[place.state].format(place.text)


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    return [
        f"| {' | '.join(heads)} |",
        "|" + "---|" * len(heads),
        *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines),
        "",
    ]


# The page of all names


def operators() -> str:
    """Return the page of every operator, option and setting."""
    found = inventory.read()
    run = coverage.last_run()
    text = ["# Every name of Kafka Streams 4.1", ""]
    text += paragraph(
        "Where each operator, option and setting of Kafka Streams 4.1 is in millpond. This page is written by "
        "`python -m tests.parity --write`: the names are read from Kafka Streams' own jars, the counts from the tests."
    )
    text += [
        "- **stored** is the number of stored cases of `tests/differential` that have the operator or option: cases",
        "  written by hand for the situations of Kafka Streams' own tests, and differences that were found and mended.",
        "- **generated** is the number of cases in which the last kept run compared it with the original:",
        f"  {run['cases']} cases, {run['different']} of them different, seed {run['seed']}.",
        "- **differs** has the [differences](differences.md) that are meant.",
        "",
    ]
    text += paragraph(
        "A method has the same name in snake_case, and options are keyword arguments. Overloads that differ "
        "only in options share a row. [From Kafka Streams to millpond](kafka-streams-names.md) tells how to read both "
        "side by side."
    )
    for title, names in places.read().sections.items():
        text += section(title, [found.classes[name] for name in names])
    return "\n".join([*text, *_settings(found.settings)]).rstrip() + "\n"


def section(title: str, classes: Sequence[JavaClass]) -> list[str]:
    """Return the part of the page under one heading."""
    text = [f"## {title}", ""]
    small = [(each, at) for each in classes if (at := places.place_of_class(each)) is not None]
    for owner in classes:
        if owner not in (each for each, _ in small):
            text += [f"### {owner.name}", "", *_notes(owner), *_members(owner, compared=title in _COMPARED)]
    if small:
        if len(small) < len(classes):
            text += [f"### More {title[0].lower()}{title[1:]}", ""]
        text += table(
            ["Kafka Streams", "millpond", "differs"],
            ([f"`{each.name}`", written(at), differences.links(each.name)] for each, at in small),
        )
    return text


def _notes(owner: JavaClass) -> list[str]:
    entry, cls = places.read().of_class(owner.name), places.python_class(owner.name)
    notes = []
    if cls is not None and cls.__name__ != owner.name:
        notes.append(f"Here it is `{cls.__name__}`.")
    if "tests" in entry:
        notes.append(f"`{entry['tests']}` compares it with the original.")
    if common := differences.links(owner.name):
        notes.append(f"Differs: {common}.")
    return paragraph(" ".join(notes)) if notes else []


def _members(owner: JavaClass, *, compared: bool) -> list[str]:
    cases = places.read().of_class(owner.name).get("cases", {})
    by_hand, generated = coverage.of_stored_cases(), coverage.of_generated_cases()
    lines: list[list[str]] = []
    told: set[str] = set()
    for row in rows(owner):
        first = row.members[0]
        counted = cases.get(first.signature) or cases.get(first.name) or row.operator
        there = compared and row.place.state == "here"
        counts = [str(each[counted] or "") if there else "" for each in (by_hand, generated)] if compared else []
        differing = "" if row.operator in told else differences.links(row.operator)
        told.add(row.operator)
        lines.append([row.shown, written(row.place), *counts, differing])
    return table(["Kafka Streams", "millpond", *(["stored", "generated"] if compared else []), "differs"], lines)


def _settings(defaults: dict[str, str]) -> list[str]:
    own = {each.key: each.default for each in settings()}
    by_hand, generated = coverage.of_stored_cases(), coverage.of_generated_cases()
    text = ["## Settings", ""]
    text += paragraph(
        "Settings have their names in Kafka Streams. What a worker has besides is in "
        "[Configuration](configuration.md). A duration may be written with its unit."
    )

    def count(name: str, counts: Counter[str]) -> str:
        return str(sum(number for each, number in counts.items() if each.startswith(f"config.{name}=")) or "")

    return text + table(
        ["setting", "default there", "default here", "millpond", "stored", "generated", "differs"],
        (
            [
                f"`{name}`",
                f"`{default}`" if default not in ("null", "", "[]") else "",
                f"`{own[name]}`" if own.get(name) else "",
                written(place) if (place := places.place_of_setting(name)).state != "here" or name not in own
                else f"[yes](configuration.md#{name.replace('.', '')})",
                count(name, by_hand),
                count(name, generated),
                differences.links(name),
            ]
            for name, default in sorted(defaults.items())
        ),
    )  # fmt: skip


# The page of differences


def differing() -> str:
    """Return the page of what is missing and of what differs."""
    found = inventory.read()
    text = ["# Differences from Kafka Streams 4.1", ""]
    text += paragraph(
        "What Kafka Streams 4.1 has and millpond does not, and what differs on purpose. "
        "[Every name of Kafka Streams](kafka-streams-operators.md) has all operators, options and settings with their "
        "places here. This page is written by `python -m tests.parity --write` from the tests."
    )
    text += ["## How much is there", "", *_summary(found)]
    text += ["## What is not there yet", "", *_missing(found)]
    text += ["## What differs on purpose", ""]
    for each in differences.read():
        text += [f"### {each.title}", ""]
        text += [f"- Kafka Streams: {each.streams}", f"- millpond: {each.here}", ""]
    text += ["## What only millpond has", ""]
    text += table(["name", "what it is"], ([f"`{name}`", what] for name, what in places.read().own.items()))
    return "\n".join(text).rstrip() + "\n"


def _summary(found: inventory.Inventory) -> list[str]:
    lines = []
    for title, names in places.read().sections.items():
        states: Counter[str] = Counter()
        for name in names:
            owner = found.classes[name]
            states.update(places.place(owner, member).state for member in owner.members)
        lines.append([title, *_counts(states)])
    states = Counter(places.place_of_setting(name).state for name in found.settings)
    lines.append(["Settings", *_counts(states)])
    return table(["part", "methods, constants or settings", "here", "not yet", "left out, with the reason"], lines)


def _counts(states: Counter[str]) -> list[str]:
    return [str(each) for each in (states.total(), states["here"], states["missing"], states["without"])]


def _missing(found: inventory.Inventory) -> list[str]:
    lines = []
    for owner in (found.classes[name] for names in places.read().sections.values() for name in names):
        whole = places.place_of_class(owner)
        if whole is not None:
            lines += [[f"`{owner.name}`", whole.text]] if whole.state == "missing" else []
            continue
        for row in rows(owner):
            if row.place.state == "missing":
                shown = [row.members[0].name] if row.alone else [each.signature for each in row.members]
                lines.append([", ".join(f"`{owner.name}.{each}`" for each in shown), row.place.text])
    return table(["name", "meanwhile"], lines) if lines else ["Nothing is missing.", ""]


def paragraph(text: str) -> list[str]:
    """Return a paragraph in lines."""
    return [*textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False), ""]


PAGES: dict[Path, Callable[[], str]] = {
    DOCS / "kafka-streams-operators.md": operators,
    DOCS / "differences.md": differing,
}
"""The pages, each with what writes it."""
