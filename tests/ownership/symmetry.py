"""States that differ only in the names of workers and tasks: renamings, and which of them give the least names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

from tests.ownership.states import NOBODY, WORKERS, Extra, Identity

__all__ = ("LEAST_RENAMINGS", "RENAMINGS", "Renaming", "renamed_extras", "renamed_identity")

Renaming = tuple[tuple[int, ...], bool, tuple[int, ...]]
"""New names of the workers, whether the tasks swap theirs, and the worker in each place."""


def renamed_identity(identity: Identity, workers: tuple[int, ...], *, swapped: bool) -> Identity:
    contents = tuple(None if each is None else each._replace(owner=workers[each.owner]) for each in identity.contents)
    if not swapped:
        return identity._replace(contents=contents)
    return identity._replace(knows=identity.knows[::-1], contents=contents[::-1], logs=identity.logs[::-1])


def _renamings() -> Iterator[Renaming]:
    """Every renaming of workers and tasks: new names, whether tasks swap places, and the worker in each place."""
    for order in permutations(WORKERS):
        back = tuple(order.index(place) for place in WORKERS)
        for swapped in (False, True):
            yield (*order, NOBODY), swapped, back


def renamed_extras(extras: frozenset[Extra], workers: tuple[int, ...], *, swapped: bool) -> frozenset[Extra]:
    return frozenset(Extra(kind, workers[at], 1 - task if swapped else task, stale) for kind, at, task, stale in extras)


RENAMINGS = tuple(_renamings())


def _least(*, fixed: int) -> dict[tuple[int, int], list[tuple[int, Renaming]]]:
    """By the owners of the tasks: the renamings that give the least names to them, with their places."""
    least: dict[tuple[int, int], list[tuple[int, Renaming]]] = {}
    for first, second in product((*WORKERS, NOBODY), repeat=2):
        named: dict[tuple[int, int], list[tuple[int, Renaming]]] = {}
        for place, renaming in enumerate(RENAMINGS):
            workers, swapped, _ = renaming
            if not fixed or workers[0] == 0:
                owners = (workers[second], workers[first]) if swapped else (workers[first], workers[second])
                named.setdefault(owners, []).append((place, renaming))
        least[first, second] = named[min(named)]
    return least


LEAST_RENAMINGS = (_least(fixed=0), _least(fixed=1))
