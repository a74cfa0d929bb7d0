"""The application that these tests kill, in a child process: a count by word and window behind a repartition topic.

The key of a record is a sender, its value ``<number> <word>`` with unique numbers. The first sub-topology
counts records by sender in a key-value store, the second counts them by word and window. There is no cache, so each
record causes exactly one record in every topic, which makes lost and repeated records visible everywhere.

Events of the worker are written to a file at once, one JSON object per line, so that a kill loses none.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

import millpond as mp
from millpond.runtime.listeners import CommitStats
from millpond.runtime.states import WorkerState

SENDERS = "senders"
WORDS = "words"
WINDOW = timedelta(seconds=1)
GRACE = timedelta(hours=1)

MILLISECOND = timedelta(milliseconds=1)

#: The exit code of a worker that ended with one of millpond's errors; the message is in the evidence.
REFUSED = 3


class CountSender(mp.Processor[str, str, str, str]):
    """Counts the records of each sender and passes them on."""

    def init(self, context: mp.ProcessorContext[str, str]) -> None:
        self._context = context
        self._senders = context.get_state_store(SENDERS)

    def process(self, record: mp.Record[str, str]) -> None:
        self._senders.put(record.key, (self._senders.get(record.key) or 0) + 1)
        self._context.forward(record)


def topology(source: str, target: str) -> mp.Topology:
    """Return the application's topology."""
    builder = mp.StreamsBuilder()
    builder.add_state_store(mp.KeyValueStoreBuilder(name=SENDERS, key=mp.String, value=mp.Long))
    (
        builder.stream(source, key=mp.String, value=mp.String)
        .process(CountSender, stores=[SENDERS], key=mp.String, value=mp.String)
        .group_by(lambda _, value: value.partition(" ")[2], key=mp.String, name=WORDS)
        .windowed_by(mp.TimeWindows(WINDOW, grace=GRACE))
        .count(store=WORDS, caching=False)
        .to_stream()
        .to(target, key=mp.TimeWindowedSerde(mp.String, WINDOW), value=mp.Long)
    )
    return builder.build()


def joined(source: str, right: str, target: str) -> mp.Topology:
    """Return a left join by a foreign key, the first word of the left value."""
    builder = mp.StreamsBuilder()
    left = builder.table(source, key=mp.String, value=mp.String, store="left")
    (
        left.left_join(
            builder.table(right, key=mp.String, value=mp.String, store="right"),
            lambda mine, other: f"{mine}/{other}",
            on=lambda mine: None if mine.startswith("-") else mine.partition(" ")[0],
            name="fk",
        )
        .to_stream()
        .to(target, key=mp.String, value=mp.String)
    )
    return builder.build()


SEEN, RECENT, PAST, ROWS = "seen", "recent", "past", "rows"
#: Entries of the LRU store of a task.
MOST = 4
PROBE = "?"
WAIT = timedelta(seconds=10)
HISTORY_MS = 6 * 3_600_000


class Seen(mp.StateStore):
    """A store of one's own: the number of records of each key, and all keys by that number."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.by_count: dict[int, set[str]] = {}

    def add(self, key: str) -> None:
        count = self.counts.get(key, 0) + 1
        self.log(key.encode(), b"%d" % count)
        self._set(key, count)

    def restore(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self._set(key.decode(), int(value or b"0"))

    def clear(self) -> None:
        self.counts.clear()
        self.by_count.clear()

    def _set(self, key: str, count: int) -> None:
        self.by_count.get(self.counts.get(key, 0), set()).discard(key)
        self.counts[key] = count
        self.by_count.setdefault(count, set()).add(key)


class Remember(mp.Processor[str, str, str, str]):
    """Puts each record into stores of three kinds; for a probe, forwards what they have of its key."""

    stores = (
        mp.StateStoreBuilder(name=SEEN, supplier=Seen),
        mp.KeyValueStoreBuilder(name=RECENT, key=mp.String, value=mp.String, max_entries=MOST),
        mp.VersionedKeyValueStoreBuilder(name=PAST, key=mp.String, value=mp.String, history_retention_ms=HISTORY_MS),
    )

    def init(self, context: mp.ProcessorContext[str, str]) -> None:
        self.context = context
        self.seen = context.get_state_store(SEEN, Seen)
        self.recent = context.get_state_store(RECENT, mp.KeyValueStore[str, str])
        self.past = context.get_state_store(PAST, mp.VersionedKeyValueStore[str, str])

    def process(self, record: mp.Record[str, str]) -> None:
        key, value = record.key, record.value
        if value == PROBE:
            last = self.past.get(key)
            count = self.seen.counts.get(key, 0)
            assert not count or key in self.seen.by_count[count]
            found = [count, self.recent.get(key), None if last is None else last.value]
            self.context.forward(record.with_value(f"{PROBE}{json.dumps(found)}"))
            return
        self.seen.add(key)
        self.recent.get(f"k{record.timestamp % 7}")  # a use of another entry, which changes what is evicted next
        self.recent.put(key, value)
        self.past.put(key, value, record.timestamp)


def of_all_stores(source: str, right: str, target: str) -> mp.Topology:
    """Return a join with a versioned table that waits, beside a processor with further kinds of stores."""
    builder = mp.StreamsBuilder()
    rows = builder.table(right, key=mp.String, value=mp.String, store=ROWS, history_retention=HISTORY_MS * MILLISECOND)
    stream = builder.stream(source, key=mp.String, value=mp.String)
    stream.process(Remember, key=mp.String, value=mp.String).to(target, key=mp.String, value=mp.String)
    (
        stream.filter(lambda _, value: value != PROBE)
        .left_join(rows, lambda mine, row: f"{mine}/{row}", grace=WAIT, name="waiting")
        .to(target, key=mp.String, value=mp.String)
    )
    return builder.build()


def summed(source: str, target: str) -> mp.Topology:
    """Return sums of a table's rows by the last letter of their keys; the table is restored from its own topic."""
    builder = mp.StreamsBuilder()
    (
        builder.table(source, key=mp.String, value=mp.Long, store="rows")
        .group_by(lambda key, value: (key[-1], value), key=mp.String, value=mp.Long, name="by-letter")
        .reduce(lambda total, value: total + value, lambda total, value: total - value, store="sums", caching=False)
        .to_stream()
        .to(target, key=mp.String, value=mp.Long)
    )
    return builder.build(optimization="reuse.ktable.source.topics")


class Evidence(mp.WorkerListener):
    """Writes the worker's events to a file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def record(self, what: str, **facts: Any) -> None:
        os.write(self._file, json.dumps({"what": what, "at": time.monotonic(), **facts}).encode() + b"\n")

    def state_changed(self, state: WorkerState) -> None:
        self.record("state", state=state.value)

    def restore_started(self, store: str, partition: int, start: int, end: int) -> None:
        self.record("restore started", store=store, partition=partition, start=start, end=end)

    def update_started(self, store: str, partition: int, start: int) -> None:
        self.record("restore started", store=store, partition=partition, start=start, end=start)

    def restore_ended(self, store: str, partition: int, records: int) -> None:
        self.record("restore ended", store=store, partition=partition, records=records)

    def committed(self, stats: CommitStats) -> None:
        self.record("committed", records=stats.records, seconds=stats.seconds)


_MADE = {"joined": joined, "of_all_stores": of_all_stores}


def main(options: dict[str, Any]) -> int:
    """Run a worker until SIGTERM; return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    evidence = Evidence(options["evidence"])
    evidence.record("started")
    if crash := options.get("crash"):
        from tests.exactly_once import crashing

        crashing.arm(crash["step"], crash["occurrence"])
    config = mp.Config.of(options["settings"])
    source, right, target = options["source"], options.get("join"), options["target"]
    if options.get("sums"):
        made = summed(source, target)
    elif right is None:
        made = topology(source, target)
    else:
        made = _MADE[options.get("kind") or "joined"](source, right, target)
    worker = mp.Worker(made, config, evidence, take_over=options.get("take_over", False))
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    try:
        worker.run()
    except mp.MillpondError as error:
        evidence.record("refused", kind=type(error).__name__, sentence=str(error))
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
