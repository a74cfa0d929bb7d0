"""The choice of a source for each partition of a store, and the rows of all its partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from millpond.errors import StateError

from .sources import Row, RowSource

__all__ = ("all_rows", "places")

_ACTIVE = "active"


def places(sources: Sequence[RowSource], store: str, partitions: int | None = None) -> dict[int, RowSource]:
    """Return the source of each partition of a store: the active task, else the copy with the highest offset.

    Args:
        sources: sources that each have some of the partitions.
        store: the name of the store.
        partitions: the number of its partitions; None for the partitions that the sources have.

    Raises:
        StateError: no source has the store, or rows of one of its partitions.
    """
    best: dict[int, tuple[tuple[bool, int], RowSource]] = {}
    known: set[str] = set()
    for source in sources:
        for held in source.held():
            known.add(held.store)
            if held.store != store or held.offset is None:
                continue
            rank = (held.role == _ACTIVE, held.offset)
            if held.partition not in best or rank > best[held.partition][0]:
                best[held.partition] = (rank, source)
    if not best and store not in known:
        names = ", ".join(f"'{each}'" for each in sorted(known)) or "none"
        raise StateError(f"{_having(sources)} no store '{store}'; it has {names}.")
    missing = [each for each in range(partitions or 0) if each not in best]
    if missing or not best:
        which = f"partition {missing[0]}" if missing else "any partition"
        raise StateError(f"{_having(sources)} no rows of {which} of store '{store}' now: retry later.")
    return {number: source for number, (_, source) in sorted(best.items())}


def all_rows(found: Mapping[int, RowSource], store: str) -> Iterator[Row]:
    """Return all rows of a store, by partition, then by key.

    Raises:
        NotReadable: a partition cannot be read completely.
    """
    for number, source in found.items():
        with source.open(store, number) as rows:
            yield from rows.rows


def _having(sources: Sequence[RowSource]) -> str:
    names = [each.name for each in sources]
    return f"'{names[0]}' has" if len(names) == 1 else f"{len(names)} sources ({', '.join(names[:5])}) have"
