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
    suppressed: list[str] = field(default_factory=list)
    """Those of the changelogs that belong to `suppress()`."""

    def add_store(self, name: str, *, logging: bool) -> None:
        """Add a store, and its changelog if it has one."""
        self.stores.append(name)
        if logging:
            self.changelogs.append(f"{name}-changelog")

    def add_suppressed(self, store: str) -> None:
        """Add the changelog of a store of `suppress()`. The store is not among the stores, as in Kafka Streams."""
        self.changelogs.append(f"{store}-changelog")
        self.suppressed.append(self.changelogs[-1])

    def __str__(self) -> str:
        kinds = {"changelogs": self.changelogs, "stores": self.stores, "repartition topics": self.repartition_topics}
        return "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names)

    @property
    def cure(self) -> str:
        """Where names are given: the end of a sentence."""
        cures = []
        if self.stores or self.repartition_topics:
            cures.append("name stores with store=, and the operators that make topics with name=")
        if self.suppressed:
            cures.append(
                f"write suppress(…, name=…), after which its store is named, in place of {', '.join(self.suppressed)}"
                if cures
                else "write suppress(…, name=…): its store is named after it"
            )
        return "; ".join(cures)


def check_names(unnamed: Unnamed, *, explicit: bool) -> None:
    """Check that a topology has no generated names, if `ensure.explicit.internal.resource.naming` is true.

    Raises:
        TopologyError: it has some; the message lists them.
    """
    if explicit and str(unnamed):
        raise TopologyError(f"{_SETTING} is true, but names are generated for {unnamed}; {unnamed.cure}.")


def warn_of_names(unnamed: Unnamed) -> None:
    """Log the generated names of a topology, if it has some."""
    if str(unnamed):
        log.warning(
            "topology: names are generated for %s, and change when operators are added before them; %s. With %s=true "
            "such a topology is refused",
            unnamed, unnamed.cure, _SETTING,
        )  # fmt: skip
