"""The spread of workers over racks and other tags (KIP-708)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .model import AssignableWorker

__all__ = ("Score", "Tags")

Score = tuple[int, ...]
"""Number of distinct values of each tag among some workers, the most important tag first: more is better."""


class Tags:
    """The tags of some workers, in groups of workers with equal tags."""

    def __init__(self, workers: Mapping[str, AssignableWorker], keys: Sequence[str]) -> None:
        """Use the tags `keys` of `workers`; the racks if there are no keys.

        A worker without a tag neither shares a value of it with others nor adds one.
        """
        values = {worker.id: _values(worker, keys) for worker in workers.values()}
        # A tag that is different on every worker distinguishes nothing more than the workers' ids.
        distinguishing = [
            i
            for i in range(len(keys) or 1)
            if 1 < len({each[i] for each in values.values()} - {None}) < len(values)
        ]  # fmt: skip
        combinations = sorted({tuple(each[i] or "" for i in distinguishing) for each in values.values()})
        numbers = {combination: number for number, combination in enumerate(combinations)}
        self.group = {id_: numbers[tuple(each[i] or "" for i in distinguishing)] for id_, each in values.items()}
        """The group of each worker, a number from 0."""
        self.groups = range(len(combinations))
        self._combinations = combinations
        self._most = [len({combination[i] for combination in combinations} - {""}) for i in range(len(distinguishing))]
        self._scores: dict[frozenset[int], Score] = {}
        self._next: dict[frozenset[int], list[list[int]]] = {}

    def score(self, groups: Iterable[int]) -> Score:
        """Return the spread of workers of these groups; a greater value is better."""
        key = frozenset(groups)
        score = self._scores.get(key)
        if score is None:
            combinations = [self._combinations[group] for group in key]
            score = tuple(len({combination[i] for combination in combinations} - {""}) for i in range(len(self._most)))
            self._scores[key] = score
        return score

    def perfect(self, groups: Sequence[int]) -> bool:
        """Return whether no other workers, as many as these, could be spread better."""
        return all(
            have == min(most, len(groups)) for have, most in zip(self.score(groups), self._most, strict=True)
        )  # fmt: skip

    def next(self, groups: Iterable[int]) -> list[list[int]]:
        """Return the groups to take one more worker from, the best first; equally good ones together."""
        key = frozenset(groups)
        tiers = self._next.get(key)
        if tiers is None:
            by_score: dict[Score, list[int]] = {}
            for group in self.groups:
                by_score.setdefault(self.score(key | {group}), []).append(group)
            tiers = self._next[key] = [by_score[score] for score in sorted(by_score, reverse=True)]
        return tiers

    def no_worse(self, others: Iterable[int], group: int) -> list[int]:
        """Return the groups that may replace `group`, beside `others`."""
        key = frozenset(others)
        least = self.score(key | {group})
        return [each for each in self.groups if self.score(key | {each}) >= least]


def _values(worker: AssignableWorker, keys: Sequence[str]) -> tuple[str | None, ...]:
    return tuple(worker.tags.get(key) for key in keys) if keys else (worker.rack,)
