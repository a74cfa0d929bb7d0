"""Which source each partition of a store is read from, and all its rows, one partition after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from millpond.errors import StateError

from .sources import Row, RowSource

__all__ = ("all_rows", "places")

_ACTIVE = "active"


def places(sources: Sequence[RowSource], store: str, partitions: int | None = None) -> dict[int, RowSource]:
    """Return where each partition of a store is read: at the active task, else at the copy that is furthest.

    Args:
        sources: which have it, in parts.
        store: its name.
        partitions: how many it has; None to take those that there are.

    Raises:
        StateError: nobody has the store, or one of its partitions.
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
        there = ", ".join(f"'{each}'" for each in sorted(known)) or "none"
        raise StateError(f"there is no store '{store}' in {_names(sources)}; there is {there}.")
    lacking = [each for each in range(partitions or 0) if each not in best]
    if lacking or not best:
        which = f"partition {lacking[0]}" if lacking else "any partition"
        raise StateError(f"{_names(sources)} has no rows of {which} of store '{store}' now: try again later.")
    return {number: source for number, (_, source) in sorted(best.items())}


def all_rows(found: Mapping[int, RowSource], store: str) -> Iterator[Row]:
    """Return all rows of a store, by partition, then by key.

    Raises:
        NotReadable: a partition cannot be read, or not to its end.
    """
    for number, source in found.items():
        with source.open(store, number) as rows:
            yield from rows.rows


def _names(sources: Sequence[RowSource]) -> str:
    names = [each.name for each in sources]
    return f"'{names[0]}'" if len(names) == 1 else f"{len(names)} sources ({', '.join(names[:5])})"
