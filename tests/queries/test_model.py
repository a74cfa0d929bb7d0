"""Every kind of query returns what a dictionary would, from every worker, also while partitions move."""

from __future__ import annotations

import random
import threading
import uuid
from datetime import timedelta

import pytest

import millpond as mp
from millpond.queries import local
from tests.queries.application import RETENTION_MS, STORES, WINDOW_MS, Point
from tests.support.generated import examples

KEYS = {
    "counts": [f"{prefix}{number}" for prefix in ("", "a", "ab", "b", "é/ %+?&#", "k,") for number in range(12)],
    "points": [Point(y, x) for y in range(6) for x in range(-6, 6)],
    "memory": list(range(-30, 30)),
    "uuids": [uuid.UUID(int=number << 64) for number in range(40)],
    "windows": ["", "a", "a\0", "ab", "b", "\0", "zz"],
    "fleeting": ["", "a", "a\0", "ab", "b", "\0", "zz"],
    "visits": ["", "a", "a\0", "ab", "b", "\0", "zz"],
    "brief": ["", "a", "a\0", "ab", "b", "\0", "zz"],
}
SERDES = {each.name: (each.key, each.value) for each in STORES}
TIMESTAMPED = {each.name: getattr(each, "timestamped", False) for each in STORES}
SESSIONS = ("visits", "brief")
KINDS = {"get", "range", "prefix", "all", "one", "fetch", "one session", "sessions", "sessions range"}
"""The kinds of queries."""


def value_for(store, chance):
    number = chance.randrange(1000)
    made = {
        "counts": number,
        "points": {"n": number, "t": "ü\n"},
        "memory": [number] * 3,
        "uuids": bytes([number % 256]) * 4,
        "windows": number / 2,
        "fleeting": number,
        "visits": number,
        "brief": [number] * 2,
    }[store]
    return None if chance.random() < 0.15 else made


class Model:
    """The expected content of the stores, committed and uncommitted, by store and row key."""

    def __init__(self, application, chance):
        self.application = application
        self.chance = chance
        self.staged = {each.name: {} for each in STORES}
        self.committed = {each.name: {} for each in STORES}
        self.observed = {True: {}, False: {}}
        self.partition = {}

    def put(self):
        """Put one random row, committed or only staged."""
        chance, application = self.chance, self.application
        store = chance.choice(list(KEYS))
        key = chance.choice(KEYS[store])
        value = value_for(store, chance)
        timestamp = chance.randrange(1, 10**12)
        given = mp.ValueAndTimestamp(value, timestamp) if TIMESTAMPED[store] and value is not None else value
        row = (value, timestamp if TIMESTAMPED[store] else None)
        commit = chance.random() < 0.7
        if store in ("windows", "fleeting"):
            start = chance.randrange(0, 60) * WINDOW_MS
            partition = application.put(store, key, given, start, commit=commit)
            seen = self.observed[False]
            seen[store, partition] = max(seen.get((store, partition), -1), start)
            name = (key, start)
        elif store in SESSIONS:
            end = chance.randrange(0, 60) * WINDOW_MS
            start = max(0, end - chance.randrange(4) * WINDOW_MS)
            partition = application.put(store, key, given, start, end, commit=commit)
            seen = self.observed[False]
            seen[store, partition] = max(seen.get((store, partition), -1), end)
            name = (key, start, end)
        else:
            partition = application.put(store, key, given, commit=commit)
            name = key
        self.partition[store, name] = partition
        self.staged[store][name] = row
        if commit:
            self._commit(partition)

    def commit_all(self):
        """Commit every partition."""
        for partition, owner in self.application.owners.items():
            owner.do(lambda owner=owner, partition=partition: owner.commit(partition))
            self._commit(partition)

    def _commit(self, partition):
        for store, rows in self.staged.items():
            for name, row in rows.items():
                if self.partition[store, name] == partition:
                    self.committed[store][name] = row
            if (store, partition) in self.observed[False]:
                self.observed[True][store, partition] = self.observed[False][store, partition]

    def rows(self, store, committed=True):
        """Return the expected rows in the order of the stores' bytes: key or (key, start), value, timestamp."""
        source = self.committed if committed else self.staged
        serialize = SERDES[store][0].serialize
        found = []
        for name, (value, timestamp) in source[store].items():
            if value is None:
                continue
            if isinstance(name, tuple):
                key = name[0]
                observed = self.observed[committed][store, self.partition[store, name]]
                if name[-1] <= observed - RETENTION_MS:
                    continue
                times = b"".join(time.to_bytes(8, "big") for time in reversed(name[1:]))
                place = (name[-1] // (RETENTION_MS // 2), serialize(key) + times)
                found.append((place, name, value, timestamp))
            else:
                found.append((serialize(name), name, value, timestamp))
        found.sort(key=lambda row: row[0])
        return [row[1:] for row in found]


def seen(store_name, rows):
    def name(row):
        if not hasattr(row, "window"):
            return row.key
        times = (row.window.start, row.window.end) if store_name in SESSIONS else (row.window.start,)
        return (row.key, *times)

    return [(name(row), row.value, row.timestamp) for row in rows]


def check(model, clients, chance, committed=True):
    """Run one random query and compare it with the model."""
    store_name = chance.choice(list(KEYS))
    key_serde, value_serde = SERDES[store_name]
    client = chance.choice(clients)
    store = client.store(store_name, key=key_serde, value=value_serde)
    options = {} if committed else {"isolation": "read_uncommitted"}
    expected = model.rows(store_name, committed)
    by_name = {name: (value, timestamp) for name, value, timestamp in expected}
    if chance.random() < 0.3:
        options["reverse"] = True
    if chance.random() < 0.3:
        options["limit"] = chance.randrange(1, 10)
    single = {name: given for name, given in options.items() if name == "isolation"}
    keys = sorted(KEYS[store_name], key=key_serde.serialize)
    key = chance.choice(keys)
    low, high = chance.choice([None, *keys]), chance.choice([None, *keys])
    encode = key_serde.serialize

    def within(other):
        raw = encode(other)
        return (low is None or encode(low) <= raw) and (high is None or raw <= encode(high))

    if store_name in SESSIONS:
        first, last = sorted(chance.randrange(0, 70) * WINDOW_MS for _ in range(2))
        kind = chance.choice(["one session", "sessions", "sessions range", "all"])
        if kind == "one session":
            length = chance.randrange(4) * WINDOW_MS
            session = (key, max(0, first - length), first)
            assert store.fetch_session(*session, **single) == by_name.get(session, (None, None))[0]
            return kind
        if kind == "sessions":
            found = store.sessions(key, first, last, **options)
            expected = [row for row in expected if row[0][0] == key and row[0][2] >= first and row[0][1] <= last]
        elif kind == "sessions range":
            found = store.sessions_range(low, high, first, last, **options)
            expected = [row for row in expected if within(row[0][0]) and row[0][2] >= first and row[0][1] <= last]
        else:
            found = store.sessions_range(**options)
    elif store_name in ("windows", "fleeting"):
        first, last = sorted(chance.randrange(0, 70) * WINDOW_MS for _ in range(2))
        kind = chance.choice(["one", "fetch", "range", "all"])
        if kind == "one":
            assert store.fetch_one(key, first, **single) == by_name.get((key, first), (None, None))[0]
            return kind
        if kind == "fetch":
            found = store.fetch(key, first, last, **options)
            expected = [row for row in expected if row[0][0] == key and first <= row[0][1] <= last]
        elif kind == "range":
            found = store.fetch_range(low, high, first, last, **options)
            expected = [row for row in expected if within(row[0][0]) and first <= row[0][1] <= last]
        else:
            found = store.fetch_range(**options)
    else:
        kind = chance.choice(["get", "range", "prefix", "all"])
        if kind == "get":
            answer = store.lookup(key, **single)
            value, timestamp = by_name.get(key, (None, None))
            assert (answer.found, answer.value, answer.timestamp) == (key in by_name, value, timestamp)
            assert answer.position[f"in-{answer.partition}"] == model.application.committed[answer.partition]
            return kind
        if kind == "prefix":
            prefix = encode(key)[: chance.randrange(0, 4)]
            found = store.prefix(prefix, **options)
            expected = [row for row in expected if encode(row[0]).startswith(prefix)]
        elif kind == "range":
            found = store.range(low, high, **options)
            expected = [row for row in expected if within(row[0])]
        else:
            found = store.all(**options)
    if options.get("reverse"):
        expected = expected[::-1]
    assert seen(store_name, found) == expected[: options.get("limit")], (store_name, kind, options)
    assert found.complete
    assert found.count == len(expected[: options.get("limit")])
    return kind


@pytest.mark.parametrize("alone", [True, False], ids=["one worker without a coordinator", "three workers"])
def test_all_queries_agree_with_a_dictionary(start, chance, alone):
    """Random puts into all kinds of stores, committed or not, between random queries to random workers."""
    application = start(1, 3, alone=True) if alone else start(3, 6)
    model = Model(application, chance)
    clients = [application.client(worker) for worker in application.workers]
    kinds = set()
    for _ in range(examples(40)):
        for _ in range(15):
            model.put()
        if chance.random() < 0.3 and not alone:
            model.commit_all()
            partition = chance.randrange(application.partitions)
            application.move(partition, chance.choice(application.workers))
        for _ in range(5):
            kinds.add(check(model, clients, chance))
            check(model, clients, chance, committed=False)
    while kinds != KINDS:
        kinds.add(check(model, clients, chance))


def test_rows_dropped_and_restored_during_a_read_are_read_again(start, monkeypatch):
    """The partition is closed and reopened during a read: rows read in between are not returned."""
    application = start(2, 1)
    keys = [f"k{number}" for number in range(5)]
    for number, key in enumerate(keys):
        application.put("counts", key, mp.ValueAndTimestamp(number, 1))
    here, there = application.workers
    read, moves = local.committed_rows, []

    def read_in_between(*arguments):
        if moves:
            return read(*arguments)
        moves.append(0)
        here.drop(0)
        rows = read(*arguments)
        there.take(0)
        there.drop(0)
        here.take(0)
        return rows

    monkeypatch.setattr(local, "committed_rows", read_in_between)
    key_serde, value_serde = SERDES["counts"]
    store = application.client(here).store("counts", key=key_serde, value=value_serde)
    assert [row.key for row in store.all()] == keys
    moves.clear()
    assert store.get("k3") == 3


def test_queries_stay_right_while_partitions_move(start, chance, monkeypatch):
    """Partitions move all the time and the coordinator learns of it late: no query fails or is wrong."""
    monkeypatch.setattr("millpond.queries.local.PIECE_ROWS", 7)  # so that moves hit the middle of answers
    application = start(3, 6)
    model = Model(application, chance)
    for _ in range(examples(400)):
        model.put()
    model.commit_all()
    moving = random.Random(chance.random())
    over = threading.Event()
    moves = []

    def move():
        while not over.is_set():
            partition = moving.randrange(application.partitions)
            worker = moving.choice(application.workers)
            if worker is not application.owners[partition]:
                application.move(partition, worker, tell=moving.random() < 0.5)
                moves.append(partition)
            over.wait(0.01)
            application.publish()

    mover = threading.Thread(target=move)
    mover.start()
    try:
        clients = [application.client(worker, timeout=timedelta(seconds=30)) for worker in application.workers]
        for _ in range(80):
            check(model, clients, chance)
    finally:
        over.set()
        mover.join()
    assert len(moves) > 10
