"""Where each name of Kafka Streams is in millpond: `places.toml`, and the names that are found by their spelling."""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import millpond as mp
from millpond.runtime.config.model import Config
from millpond.runtime.config.settings import settings
from millpond.runtime.config.sources import OLD_NAMES, REJECTED
from tests.parity.inventory import Inventory, JavaClass, Member

FILE = Path(__file__).with_name("places.toml")

State = Literal["here", "missing", "without"]

_DEPRECATED = "deprecated in Kafka Streams"


@dataclass(frozen=True)
class Place:
    """Where a name is, or why it is not there."""

    state: State
    text: str
    """Where it is, in Markdown; what to do meanwhile; or the reason."""


class NoPlace(Exception):
    """A name of Kafka Streams has no place, and no reason why it has none."""


@dataclass(frozen=True)
class Places:
    """The content of `places.toml`."""

    sections: dict[str, list[str]]
    """Names of classes, by the heading under which they are."""
    classes: dict[str, dict[str, Any]]
    own: dict[str, str]
    """Names that Kafka Streams does not have, with what they are."""

    def of_class(self, name: str) -> dict[str, Any]:
        """Return the entry of a class; empty if it has none."""
        return self.classes.get(name, {})


@functools.cache
def read() -> Places:
    """Return the content of the file."""
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return Places(content["sections"], content["class"], content["own"])


def snake(name: str) -> str:
    """Return a name of Java as Python writes it."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def python_class(name: str) -> Any:
    """Return the class here that has the place of one of Kafka Streams; None if there is none."""
    spelled = read().of_class(name).get("python", name)
    return next((getattr(owner, spelled) for owner in (mp, mp.testing) if spelled in owner.__all__), None)


def place(owner: JavaClass, member: Member) -> Place:
    """Return where a member of a class is.

    Raises:
        NoPlace: nothing says where it is, or why it is not there.
    """
    entry = read().of_class(owner.name)
    for key in (member.signature, member.name, "*"):
        for state in ("here", "missing", "without"):
            if key in entry.get(state, {}):
                return Place(state, entry[state][key])
    if owner.deprecated or member.deprecated:
        return Place("without", f"{_DEPRECATED}; {entry['all']} takes its place" if "all" in entry else _DEPRECATED)
    found = found_by_name(owner, member)
    if found is not None:
        return Place("here", found)
    if "all" in entry:
        return Place("here", entry["all"])
    raise NoPlace(
        f"{owner.name}.{member.signature} of Kafka Streams has no place here and no reason: build it, or say in "
        f"{FILE.relative_to(Path(__file__).parents[2])} where it is, or why it is not there"
    )


def found_by_name(owner: JavaClass, member: Member) -> str | None:
    """Return the place of a member that the class here has under the same name; None if it has not."""
    cls = python_class(owner.name)
    if cls is None:
        return None
    if member.name == "new":
        return f"`{cls.__name__}(…)`"
    if isinstance(cls, type) and issubclass(cls, Enum):
        return f"`{member.name}`" if member.name in cls.__members__ else None
    name = snake(member.name)
    return f"`{name}`" if name in attributes(cls) else None


def attributes(cls: Any) -> set[str]:
    """Return the public names of a class, with those that only its annotations have."""
    if not isinstance(cls, type):
        return set()
    annotated = {name for each in cls.__mro__ for name in vars(each).get("__annotations__", {})}
    parameters = set(inspect.signature(cls).parameters) if hasattr(cls, "__struct_fields__") else set()
    return {name for name in {*dir(cls), *annotated, *parameters} if not name.startswith("_")}


def place_of_class(owner: JavaClass) -> Place | None:
    """Return the place that all members of a class share; None if they have several.

    Raises:
        NoPlace: a member, or a class without members, has no place and no reason.
    """
    entry = read().of_class(owner.name)
    if "all" in entry and not owner.deprecated and not entry.keys() & {"here", "missing", "without"}:
        return Place("here", entry["all"])
    found = {place(owner, member) for member in owner.members}
    if len(found) > 1 or (found and python_class(owner.name) is not None and "all" not in entry):
        return None
    if found:
        return found.pop()
    if "*" in entry.get("without", {}):
        return Place("without", entry["without"]["*"])
    if "all" in entry:
        return Place("here", entry["all"])
    cls = python_class(owner.name)
    if cls is None:
        raise NoPlace(f"the class {owner.name} of Kafka Streams has no place here and no reason")
    return Place("here", f"`mp.{cls.__name__}`")


def place_of_setting(name: str) -> Place:
    """Return where a setting of Kafka Streams is.

    Raises:
        NoPlace: a worker neither has it nor says why it has not.
    """
    own = {each.key: each for each in settings()}
    if name in own:
        return Place("here", f"[`{name}`](configuration.md#{name.replace('.', '')})")
    if name in REJECTED:
        return Place("without", REJECTED[name])
    if name in OLD_NAMES:
        return Place("here", f"the same; the present name is `{OLD_NAMES[name]}`")
    try:
        Config.of({"application.id": "a", "bootstrap.servers": "b:1", name: "1"})
    except mp.MillpondError as error:
        reason = re.search(r"cannot be set: (.*)\.$", str(error))
        if reason is None and "is unknown" in str(error):
            raise NoPlace(f"the setting {name} of Kafka Streams has no place here and no reason") from error
        return Place("without", reason[1]) if reason else Place("here", "a property of the Kafka clients")
    return Place("here", "a property of the Kafka clients")


def unlisted(inventory: Inventory) -> set[str]:
    """Return the classes of Kafka Streams that are under no heading, and the headings' classes that do not exist."""
    listed = {name for names in read().sections.values() for name in names}
    return listed ^ inventory.classes.keys()
