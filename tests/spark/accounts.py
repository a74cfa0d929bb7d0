"""What the stores of the tests' accounts hold. Executors of Spark import it."""

from __future__ import annotations

import enum
from datetime import date, datetime

import msgspec

__all__ = ("Account", "Kind", "Owned", "Owner")


class Kind(enum.Enum):
    PLAIN = "plain"
    GOLD = "gold"


class Account(msgspec.Struct, frozen=True):
    """As the first version of the application has it."""

    balance: int
    tags: list[str] = []


class Owner(msgspec.Struct, frozen=True):
    name: str
    age: int | None = None


class Owned(msgspec.Struct, frozen=True):
    """As a later version has it, with more fields."""

    balance: int
    tags: list[str] = []
    owner: Owner | None = None
    Owner: str = ""
    """Its name differs by case alone."""
    others: list[Owner] = []
    limits: dict[str, float] = {}
    kind: Kind = Kind.PLAIN
    opened: date | None = None
    seen: datetime | None = None
    anything: int | str | None = None
