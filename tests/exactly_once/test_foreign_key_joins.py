"""Joins by a foreign key through kill -9 and a lost disk."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.exactly_once.processes import Application
from tests.support import kafka

LEFT_KEYS, RIGHT_KEYS = 60, 12
CHANGES = 400
"""Changes of each round, after which the worker is killed."""
ROUNDS = 4


class Tables:
    """The tables as they were written, and what their left join has to be."""

    def __init__(self, seed: int) -> None:
        self._pick = random.Random(seed)
        self._number = 0
        self.left: dict[str, str | None] = {}
        self.right: dict[str, str | None] = {}

    def changes(self, count: int) -> tuple[list[Any], list[Any]]:
        """Return changes of both tables; a value is the foreign key, or "-" for none, and a unique number."""
        left, right = [], []
        for _ in range(count):
            self._number += 1
            if self._pick.random() < 0.8:
                on = self._pick.choice(("-", *(f"r{each}" for each in range(RIGHT_KEYS))))
                change = f"k{self._pick.randrange(LEFT_KEYS)}", self._value(f"{on} {self._number}")
                self.left.update([change])
                left.append(change)
            else:
                change = f"r{self._pick.randrange(RIGHT_KEYS)}", self._value(f"#{self._number}")
                self.right.update([change])
                right.append(change)
        return left, right

    def every_right_row(self) -> list[Any]:
        """Return a change of each row of the right table."""
        self.right = {f"r{each}": f"last {each}" for each in range(RIGHT_KEYS)}
        return list(self.right.items())

    def joined(self) -> dict[str, str]:
        return {
            key: f"{value}/{self.right.get(value.partition(' ')[0])}"
            for key, value in self.left.items()
            if value is not None
        }

    def _value(self, text: str) -> str | None:
        return None if self._pick.random() < 0.1 else text


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_join_by_a_foreign_key_is_exact_after_kills_and_a_lost_disk(
    application: Application, create_topic: Any, seed: int
) -> None:
    """Killed while changes of both tables flow, and at last without its disk: every row has its last result.

    The tables have different numbers of partitions. The changes of right rows at the end reach all subscribers only if
    the store of subscriptions was restored whole.
    """
    servers = application.bootstrap_servers
    right = create_topic("right", 3)
    tables = Tables(seed)
    for _ in range(ROUNDS):
        run = application.start(join=right)
        run.await_running()
        to_left, to_right = tables.changes(CHANGES)
        half = len(to_right) // 2
        before = run.commits()
        kafka.produce(servers, right, to_right[:half])
        kafka.produce(servers, application.source, to_left)
        kafka.produce(servers, right, to_right[half:])
        run.await_commits(after=before)
        run.kill()
    run = application.start(join=right, place="another-disk")
    run.await_running()
    kafka.produce(servers, right, tables.every_right_row())
    expected = tables.joined()

    def latest(rows: list[kafka.Row]) -> dict[str, str]:
        newest = {row.key.decode(): row.value for row in rows if row.key is not None}
        return {key: value.decode() for key, value in newest.items() if value is not None}

    kafka.read_until(servers, application.target, lambda rows: latest(rows) == expected, timeout_s=60)
    run.stop()
    assert latest(kafka.read(servers, application.target)) == expected
