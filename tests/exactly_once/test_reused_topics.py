"""A table that is restored from the topic that it is read from, through kill -9 and lost disks."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.exactly_once.processes import Application
from tests.support import kafka

KEYS = 40
CHANGES = 300
"""Changes of each round, after which the worker is killed."""
ROUNDS = 4


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_sums_of_a_table_without_a_changelog_are_exact_after_kills_and_lost_disks(
    application: Application, seed: int
) -> None:
    """Each change subtracts the row before it, which a restore must not have replaced by a later one.

    Every second worker begins without a disk. The application has no changelog topic for the table.
    """
    servers, pick = application.bootstrap_servers, random.Random(seed)
    rows: dict[str, int | None] = {}
    for number in range(ROUNDS):
        changes = [
            (f"k{pick.randrange(KEYS)}", None if pick.random() < 0.1 else pick.randrange(1000)) for _ in range(CHANGES)
        ]
        rows.update(changes)
        run = application.start(sums=True, place=f"disk-{number // 2}")
        run.await_running()
        before = run.commits()
        kafka.produce(
            servers,
            application.source,
            [(key, None if value is None else value.to_bytes(8, "big")) for key, value in changes],
        )
        run.await_commits(after=before)
        run.kill()
    run = application.start(sums=True, place="last-disk")
    run.await_running()
    expected: Counter[str] = Counter()
    for key, value in rows.items():
        if value is not None:
            expected[key[-1]] += value

    def done(found: list[kafka.Row]) -> bool:
        latest = {row.key: row.value for row in found}
        return {letter: int.from_bytes(latest.get(letter.encode()) or b"", "big") for letter in expected} == expected

    kafka.read_until(servers, application.target, done, timeout_s=60)
    run.stop()
    assert done(kafka.read(servers, application.target))
    internal = {topic for topic in kafka.topic_names(servers) if topic.startswith(f"{application.app_id}-")}
    assert internal == {f"{application.app_id}-by-letter-repartition", application.changelog("sums")}
