"""The values in the stores of the tests' accounts. Spark's executors import this module."""

from __future__ import annotations

import enum
from datetime import date, datetime

import msgspec

__all__ = ("Account", "Kind", "Owned", "Owner")


class Kind(enum.Enum):
    PLAIN = "plain"
    GOLD = "gold"


class Account(msgspec.Struct, frozen=True):
    """The type in the first version of the application."""

    balance: int
    tags: list[str] = []


class Owner(msgspec.Struct, frozen=True):
    name: str
    age: int | None = None


class Owned(msgspec.Struct, frozen=True):
    """The type in a later version, with more fields."""

    balance: int
    tags: list[str] = []
    owner: Owner | None = None
    Owner: str = ""
    """A field whose name differs only by case."""
    others: list[Owner] = []
    limits: dict[str, float] = {}
    kind: Kind = Kind.PLAIN
    opened: date | None = None
    seen: datetime | None = None
    anything: int | str | None = None
