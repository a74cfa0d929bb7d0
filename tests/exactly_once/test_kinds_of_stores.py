"""Stores of one's own, versioned stores, LRU stores and buffers of joins through kill -9 and a lost disk."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from millpond.state import MemoryBackend, StateFile
from millpond.state.formats import partition_prefix
from tests.exactly_once.application import MOST, PAST, PROBE, RECENT, ROWS, SEEN, WAIT, of_all_stores
from tests.exactly_once.processes import Application, Run
from tests.exactly_once.truth import PARTITIONS
from tests.support import kafka

KEYS = [f"k{number}" for number in range(24)]
RECORDS = 60
"""Records before each commit."""
COMMITS = 4
"""Commits of each round; then the worker is killed while it has further records."""
ROUNDS = 4
START_MS = int(time.time() * 1000) - 3_600_000
STEP_MS = 100
LONG_MS = ROUNDS * (COMMITS + 1) * RECORDS * STEP_MS


class Written:
    """What was written, and what has to follow from it."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.number = 0
        self.counts = dict.fromkeys(KEYS, 0)
        self.last: dict[str, str] = {}
        self.joined: set[str] = set()
        self.rows: dict[str, list[tuple[int, str]]] = {key: [] for key in KEYS}

    def table(self) -> list[Any]:
        """Return rows for all of the time, in no order of time for a key, with their timestamps."""
        changes = []
        for number in range(200):
            key, time_ms = (
                self.pick.choice(KEYS),
                START_MS + self.pick.randrange(LONG_MS),
            )
            changes.append((key, f"#{number}", time_ms))
            self.rows[key] = [each for each in self.rows[key] if each[0] != time_ms] + [(time_ms, f"#{number}")]
        return changes

    def stream(self, count: int) -> list[Any]:
        records = []
        for _ in range(count):
            self.number += 1
            key, time_ms, value = self.pick.choice(KEYS), START_MS + self.number * STEP_MS, str(self.number)
            records.append((key, value, time_ms))
            self.counts[key] += 1
            self.last[key] = value
            row = max((each for each in self.rows[key] if each[0] <= time_ms), default=(0, None))[1]
            self.joined.add(f"{value}/{row}")
        return records

    @property
    def end_ms(self) -> int:
        return START_MS + self.number * STEP_MS + 2 * int(WAIT.total_seconds() * 1000)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_stores_of_all_kinds_equal_their_changelogs_after_kills_and_a_lost_disk(
    application: Application, create_topic: Any, seed: int
) -> None:
    """Every record is joined and counted once; what stores return and have on disk is what their changelogs have."""
    servers, right = application.bootstrap_servers, create_topic("right", PARTITIONS)
    written = Written(seed)
    kafka.produce(servers, right, written.table())
    run = start(application, right)
    await_processed(application, right)
    for _ in range(ROUNDS):
        for _ in range(COMMITS):
            before = run.commits()
            kafka.produce(servers, application.source, written.stream(RECORDS))
            run.await_commits(after=before)
        kafka.produce(servers, application.source, written.stream(RECORDS))
        run.kill()
        run = start(application, right)
    await_processed(application, application.source)
    run.kill()

    run = start(application, right)
    compare_probes(application, written)
    run.stop()
    compare_rows(application, right, application.state_directory())

    run = start(application, right, place="another-disk")
    compare_probes(application, written)
    # As late as that, nothing has to wait any more.
    last = [(key, f"last {key}", written.end_ms) for key in KEYS]
    kafka.produce(servers, application.source, last)
    await_processed(application, application.source)
    run.stop()
    compare_rows(application, right, application.state_directory(place="another-disk"))
    results = [row.value.decode() for row in kafka.read(servers, application.target, settled=True) if not is_probe(row)]
    assert sorted(results) == sorted(written.joined)


def start(application: Application, right: str, place: str = "state") -> Run:
    run = application.start(join=right, kind="of_all_stores", place=place)
    run.await_running()
    return run


def await_processed(application: Application, topic: str) -> None:
    """Wait until the application has committed everything in a topic."""
    servers = application.bootstrap_servers
    ends = kafka.end_offsets(servers, topic)

    def processed() -> bool:
        found = kafka.committed_offsets(servers, application.app_id, topic)
        return {partition: max(0, offset) for partition, (offset, _) in found.items()} == ends

    kafka.eventually(processed, f"{topic} is processed", 60)


def is_probe(row: kafka.Row) -> bool:
    assert row.value is not None
    return row.value.startswith(PROBE.encode())


def compare_probes(application: Application, written: Written) -> None:
    """Ask the stores for every key: they have what was written, and the LRU store what its changelog has."""
    servers = application.bootstrap_servers
    before = sum(map(is_probe, kafka.read(servers, application.target)))
    kafka.produce(servers, application.source, [(key, PROBE, written.end_ms - 1 - WAIT.seconds * 1000) for key in KEYS])
    kafka.read_until(
        servers, application.target, lambda rows: sum(map(is_probe, rows)) == before + len(KEYS), timeout_s=60
    )
    await_processed(application, application.source)
    live: dict[tuple[int, str], str] = {}
    for row in kafka.read(servers, application.changelog(RECENT), settled=True):
        assert row.key is not None
        place = row.partition, row.key.decode()
        live.pop(place, None)
        if row.value is not None:
            live[place] = row.value.decode()
        assert sum(partition == row.partition for partition, _ in live) <= MOST, "a restore would evict another entry"
    recent = {key: value for (_, key), value in live.items()}
    probes = [row for row in kafka.read(servers, application.target) if is_probe(row)]
    latest = {row.key.decode(): json.loads((row.value or b"")[len(PROBE) :]) for row in probes if row.key is not None}
    assert latest == {key: [written.counts[key], recent.get(key), written.last.get(key)] for key in KEYS}


def compare_rows(application: Application, right: str, directory: Any) -> None:
    """Compare the rows on disk with those of a replay of the changelogs, by bytes."""
    topology = of_all_stores(application.source, right, application.target)
    (subtopology,) = topology.subtopologies()
    compared = []
    with StateFile(directory) as file:
        for builder in subtopology.stores:
            if not builder.persistent:
                continue
            topic = application.changelog(builder.name)
            changelog = kafka.read(application.bootstrap_servers, topic, settled=True)
            for partition in range(PARTITIONS):
                backend = MemoryBackend()
                copy = builder.build(partition, backend)
                records = [
                    (row.key, row.value, row.timestamp, list(row.headers))
                    for row in changelog
                    if row.partition == partition
                ]
                backend.write([(builder.name, partition, copy.restore(records))])
                bounds = builder.name, partition_prefix(partition), partition_prefix(partition + 1)
                assert list(file.range(*bounds)) == list(backend.range(*bounds)), (builder.name, partition)
            compared.append(builder.name)
    assert {SEEN, PAST, ROWS} < set(compared), "the buffer of the join is compared, too"
