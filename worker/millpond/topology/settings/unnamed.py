"""Stores and internal topics whose names are generated, so that they change when operators are added (KIP-1111)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from millpond.errors import TopologyError

__all__ = ("Unnamed", "check_names", "warn_of_names")

log: logging.Logger = logging.getLogger(__name__)

_SETTING = "ensure.explicit.internal.resource.naming"


@dataclass
class Unnamed:
    """The generated names of a topology, in the order of the operators. They are those that Kafka Streams lists.

    Stores of joins by a foreign key, and repartition topics of regrouped tables, are not among them, as there. Stores
    of tables are, even where no operator needs one.
    """

    changelogs: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    repartition_topics: list[str] = field(default_factory=list)

    def add_store(self, name: str, *, logging: bool) -> None:
        """Add a store, and its changelog if it has one."""
        self.stores.append(name)
        if logging:
            self.add_changelog(name)

    def add_changelog(self, store: str) -> None:
        """Add the changelog of a store."""
        self.changelogs.append(f"{store}-changelog")

    def __str__(self) -> str:
        kinds = {"changelogs": self.changelogs, "stores": self.stores, "repartition topics": self.repartition_topics}
        return "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names)


def check_names(unnamed: Unnamed, *, explicit: bool) -> None:
    """Check that a topology has no generated names, if `ensure.explicit.internal.resource.naming` is true.

    Raises:
        TopologyError: it has some; the message lists them.
    """
    if explicit and str(unnamed):
        raise TopologyError(
            f"{_SETTING} is true, but names are generated for {unnamed}; name stores with store=, and the operators "
            "that make topics with name=."
        )


def warn_of_names(unnamed: Unnamed) -> None:
    """Log the generated names of a topology, if it has some."""
    if str(unnamed):
        log.warning(
            "topology: names are generated for %s, and change when operators are added before them; name stores with "
            "store= and topics with name=, or set %s=true to refuse such a topology",
            unnamed, _SETTING,
        )  # fmt: skip
