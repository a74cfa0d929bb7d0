"""Every name of Kafka Streams 4.1 has a place here or a reason, and the pages that say so are true."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.names import NOT_YET
from millpond.runtime.worker.embedding.local_stores import StoreOptions
from tests.differential import rules
from tests.differential.drawing.generator import RULES as DRAWN
from tests.packaging.public_api import FILE as PUBLIC_API
from tests.parity import coverage, differences, inventory, pages, places

ROOT = Path(__file__).parents[2]
FOUND = inventory.read()

_NAME = re.compile(r"`(mp|testing|[A-Z]\w+)\.([A-Za-z]\w*)")
_OPTION = re.compile(r"`(?:\w+\()?([a-z_]+)=")
_CALL = re.compile(r"`([a-z_]+)`")


def members() -> list[tuple[inventory.JavaClass, inventory.Member]]:
    """All members of all classes of Kafka Streams."""
    return [(owner, member) for owner in FOUND.classes.values() for member in owner.members]


def test_every_class_is_under_one_heading():
    """A class that a later Kafka Streams adds is seen."""
    assert places.unlisted(FOUND) == set()
    listed = Counter(name for names in places.read().sections.values() for name in names)
    assert [name for name, number in listed.items() if number > 1] == []


def test_every_name_has_a_place_or_a_reason():
    """No operator, option or setting of Kafka Streams is missing in silence."""
    silent = []
    for owner, member in members():
        try:
            places.place(owner, member)
        except places.NoPlace as error:
            silent.append(str(error))
    for name in FOUND.settings:
        try:
            places.place_of_setting(name)
        except places.NoPlace as error:
            silent.append(str(error))
    assert silent == []


def test_entries_are_about_names_that_exist():
    """An entry for a member that Kafka Streams does not have is an error of spelling."""
    wrong = []
    for name, entry in places.read().classes.items():
        owner = FOUND.classes.get(name)
        known = {"*"} | {
            each for member in (owner.members if owner else ()) for each in (member.name, member.signature)
        }
        for kind in ("here", "missing", "without", "cases"):
            wrong += [f"{name}.{key}" for key in entry.get(kind, {}) if owner is None or key not in known]
        wrong += [] if (ROOT / entry.get("tests", "tests")).exists() else [entry["tests"]]
    assert wrong == []


def test_what_is_missing_is_missing():
    """A name that has come is not called missing any more."""
    come = [
        f"{owner.name}.{member.signature}"
        for owner, member in members()
        if places.place(owner, member).state == "missing"
        and member.signature not in places.read().of_class(owner.name)["missing"]
        and places.found_by_name(owner, member)
    ]
    assert come == [], f"remove them from 'missing' in {places.FILE.name}"


def test_errors_for_missing_names_agree_with_the_page():
    """What `names.py` calls missing is on the page as missing."""
    for owner, names in NOT_YET.items():
        for name in names:
            found = [
                places.place(FOUND.classes[owner], member).state
                for member in FOUND.classes[owner].members
                if places.snake(member.name) == name
            ]
            assert set(found) == {"missing"}, f"{owner}.{name}"


def texts() -> list[str]:
    """All texts that say where something is, and the differences."""
    found = [places.place(owner, member).text for owner, member in members()]
    found += [entry["all"] for entry in places.read().classes.values() if "all" in entry]
    found += [each.here for each in differences.read()]
    return sorted({*found, *(f"`{name}` {what}" for name, what in places.read().own.items())})


def test_every_name_in_the_texts_exists():
    """A place is a name that there is: a class, a method or an option."""
    classes: dict[str, Any] = {
        name: cls
        for owner in (mp, mp.testing)
        for name in owner.__all__
        if isinstance(cls := getattr(owner, name), type)
    }
    api = " ".join([PUBLIC_API.read_text(encoding="utf-8"), *StoreOptions.__annotations__])
    wrong = []
    for text in texts():
        for owner, name in _NAME.findall(text):
            if owner in ("mp", "testing"):
                known = name in {"mp": mp, "testing": mp.testing}[owner].__all__
            elif owner in ("ErrorContext", "WorkerListener", "Serdes"):
                known = True
            else:
                known = owner in classes and name in places.attributes(classes[owner])
            wrong += [] if known else [f"{owner}.{name} in: {text}"]
        wrong += [f"{option}= in: {text}" for option in _OPTION.findall(text) if not re.search(rf"\b{option}\b", api)]
    assert wrong == []


def test_every_public_name_is_on_a_page():
    """What is not Kafka Streams' own is listed as millpond's own."""
    counterparts = FOUND.classes.keys() | {
        cls.__name__ for name in FOUND.classes if (cls := places.python_class(name)) is not None
    }
    written = {name for text in texts() for _, name in _NAME.findall(text)}
    written |= {name for text in texts() for name in _CALL.findall(text)}
    unlisted = set(mp.__all__) - {"__version__", "testing", "broker"} - counterparts - written
    assert unlisted == set(), f"say in {places.FILE.name} what they are"


def test_every_difference_is_about_names_that_exist():
    """Operators, members, classes and settings of the differences are Kafka Streams'."""
    known = {*FOUND.classes, *FOUND.settings}
    known |= {coverage.operator_of(owner.name, member) for owner, member in members()}
    assert {name for each in differences.read() for name in each.of} - known == set()
    titles = [each.title for each in differences.read()]
    assert len(titles) == len(set(titles))


def test_every_difference_of_the_comparisons_is_on_the_page():
    """Each rule, and each thing that generated cases avoid, is a difference with a reason."""
    in_code = {each.name for each in rules.RULES} | rules.FAILURES.keys()
    in_code |= {value[0] for name, value in inspect.getmembers(rules) if name.isupper() and isinstance(value, tuple)}
    on_page = Counter(name for each in differences.read() for name in each.rules)
    assert set(on_page) == in_code
    assert max(on_page.values()) == 1


def test_every_operator_was_compared():
    """The run whose counts the page shows has no difference, and each operator that is drawn."""
    run = coverage.last_run()
    assert run["different"] == 0
    assert DRAWN.keys() - run["operators"].keys() == set()


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_the_pages_are_up_to_date(page):
    """`python -m tests.parity --write` changes nothing."""
    assert page.read_text(encoding="utf-8") == pages.PAGES[page](), "run: python -m tests.parity --write"
