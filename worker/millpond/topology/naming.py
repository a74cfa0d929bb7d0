"""Names of nodes, stores and internal topics: their rules, and the application's prefix."""

from __future__ import annotations

import re

from millpond.checks import kind_of
from millpond.errors import TopologyError

__all__ = ("MAX_LENGTH", "changelog_topic", "decorate", "is_repartition_topic", "validate_name", "validate_topic")

MAX_LENGTH = 249
"""The longest name of a topic in Kafka, in characters."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_REPARTITION = re.compile(
    r".*(?:-repartition|-subscription-(?:registration|response)-topic"
    r"|KTABLE-FK-JOIN-SUBSCRIPTION-(?:REGISTRATION|RESPONSE)-[0-9]+-topic)"
)


def decorate(application_id: str, logical_name: str) -> str:
    """Return the real name of an internal topic: `<application.id>-<logical name>`."""
    return f"{application_id}-{logical_name}"


def changelog_topic(store_name: str) -> str:
    """Return the logical name of a store's changelog topic."""
    return f"{store_name}-changelog"


def is_repartition_topic(name: str) -> bool:
    """Return whether a topic has the name of one through which an application sends records to itself.

    Joins by a foreign key call theirs otherwise than repartitions do. Kafka's `StreamsResetter` has the same rule.
    """
    return _REPARTITION.fullmatch(name) is not None


def validate_name(name: str, what: str = "node") -> str:
    """Return `name` if Kafka accepts it as a topic's name, or as a part of one.

    Args:
        name: a node's, a store's or a topic's.
        what: the kind of thing, for the message: "node", "store".

    Raises:
        TopologyError: the name is not a string, is empty, `.` or `..`, or has more than 249 or illegal characters.
    """
    if not isinstance(name, str):
        raise TopologyError(f"The name of a {what} is a string, not {kind_of(name)}.")
    if not name:
        cure = "write one" if what == "topic" else "leave it out to get a generated one"
        raise TopologyError(f"The name of a {what} is empty; {cure}.")
    if name in {".", ".."}:
        raise TopologyError(f"A {what} cannot be called {name!r}; choose a name with letters or digits.")
    if len(name) > MAX_LENGTH:
        raise TopologyError(f"The {what} name {name[:40]!r}… has {len(name)} characters; {MAX_LENGTH} are allowed.")
    if not _LEGAL.fullmatch(name):
        raise TopologyError(f"The {what} name {name!r} may only have ASCII letters, digits, '.', '_' and '-'.")
    return name


def validate_topic(topic: str) -> str:
    """Return `topic` if it is a legal topic name.

    Raises:
        TopologyError: the name is illegal; see `validate_name`.
    """
    return validate_name(topic, "topic")
