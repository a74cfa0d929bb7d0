"""The table of mistakes, `table.toml`: what a new user writes, and what millpond says at which moment."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path

import msgspec

__all__ = ("MANIFEST", "MISTAKES", "PRELUDE", "TABLE", "Mistake", "Moment")

TABLE = Path(__file__).with_name("table.toml")

#: The names that the code of each mistake may use.
PRELUDE = """\
from datetime import timedelta
import millpond as mp

builder = mp.StreamsBuilder()
views = builder.stream("views", key=mp.String, value=mp.Json(dict))
"""


#: The object that each mistake of a manifest changes.
MANIFEST = """\
apiVersion: millpond.dev/v1alpha1
kind: StreamApp
metadata:
  name: shop
spec:
  image: registry.example.com/shop:1
  topology: app:build
  kafka:
    bootstrapServers: kafka:9092
"""


class Moment(StrEnum):
    """The moments at which a mistake can be known, the earliest first."""

    IMPORT = "import"
    BUILD = "build"
    START = "start"
    BROKER = "broker"
    FIRST_RECORD = "first record"
    COMMAND_LINE = "command line"
    APPLY = "kubectl apply"


class Mistake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mistake: code of an application, or a command."""

    title: str
    """What the user does, without a verb for it."""
    moment: Moment
    """The earliest moment at which it can be known."""
    says: str
    """What millpond says, to the letter."""
    code: str = ""
    """Python, after `PRELUDE`."""
    command: str = ""
    """A command line, in place of code."""
    manifest: str = ""
    """The lines of a StreamApp that `MANIFEST` does not have, or has otherwise, in place of code."""
    files: dict[str, str] = {}
    """Files in the current directory, by name."""
    environment: dict[str, str] = {}
    """Environment variables of a command."""
    settings: dict[str, str | int] = {}
    """Settings of the application."""
    topic: str = "views"
    """The topic of `records`."""
    value: str = "mp.Json(dict)"
    """The serde of their values."""
    records: str = ""
    """A list of (key, value, timestamp) in Python; they are piped into the topic."""
    before: str = ""
    """The code of the application as it was when it ran before, with the same records and state."""
    topics: dict[str, int] = {}
    """Topics on the broker, with their partitions; 0 for one that does not exist."""
    scene: str = ""
    """What happened before on the broker; see `on_broker.py`."""
    note: str = ""
    """What else a reader should know."""

    def __post_init__(self) -> None:
        if sum(map(bool, (self.code, self.command, self.manifest))) != 1:
            raise ValueError(f"'{self.title}' needs code, a command or a manifest")
        if (self.moment is Moment.APPLY) != bool(self.manifest):
            raise ValueError(f"'{self.title}' needs a manifest if, and only if, it is applied")
        if (self.moment is Moment.BROKER) != bool(self.topics):
            raise ValueError(f"'{self.title}' needs topics if, and only if, it needs a broker")


def _read() -> list[Mistake]:
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8"))["mistake"], list[Mistake])


MISTAKES = _read()
