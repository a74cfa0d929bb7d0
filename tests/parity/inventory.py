"""What Kafka Streams 4.1 offers, as its own jars say: `tests/oracle/java/Inventory.java` writes the file."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

FILE = Path(__file__).parents[1] / "oracle" / "golden-inventory" / "inventory.txt"


@dataclass(frozen=True)
class Member:
    """A method, a constructor (`new`) or a constant of a class."""

    name: str
    parameters: tuple[str, ...] | None
    """The simple names of the parameters' types; None for a constant."""
    deprecated: bool

    @property
    def signature(self) -> str:
        """The member as the file has it, such as `to(String, Produced)`."""
        return self.name if self.parameters is None else f"{self.name}({', '.join(self.parameters)})"


@dataclass
class JavaClass:
    """A public class with its public members."""

    name: str
    package: str
    deprecated: bool
    members: list[Member] = field(default_factory=list)


@dataclass(frozen=True)
class Inventory:
    """All public classes by name, and the defaults of all settings."""

    classes: dict[str, JavaClass]
    settings: dict[str, str]


def read() -> Inventory:
    """Return the inventory of the file."""
    classes: dict[str, JavaClass] = {}
    members: dict[str, list[Member]] = defaultdict(list)
    settings: dict[str, str] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        kind, owner, *rest = line.split("\t")
        deprecated = rest[-1] == "deprecated"
        if kind in ("class", "enum", "interface"):
            classes[owner] = JavaClass(owner, rest[0], deprecated)
        elif kind == "setting":
            settings[rest[0]] = rest[1]
        elif kind == "constant":
            members[owner].append(Member(rest[0], None, deprecated))
        else:
            name, _, inner = rest[0].removesuffix(")").partition("(")
            members[owner].append(Member(name, tuple(inner.split(", ")) if inner else (), deprecated))
    for owner, found in members.items():
        classes[owner].members = found
    return Inventory(classes, settings)
