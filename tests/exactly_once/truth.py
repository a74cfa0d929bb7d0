"""Known input, and checks of everything that an application produced from it.

Each topic and store has the strictest possible check, so that a record that was lost, repeated or committed in part is
found where it happened, not only in a final sum.
"""

from __future__ import annotations

import contextlib
import random
import struct
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer

from millpond.serdes import Long, String
from millpond.state import KeyValueStoreBuilder, StateFile, WindowStoreBuilder
from tests.exactly_once.application import GRACE, SENDERS, WINDOW, WORDS
from tests.exactly_once.processes import Application
from tests.support import kafka
from tests.support.kafka import Row, committed_offsets, eventually, read, read_until

WINDOW_MS = int(WINDOW.total_seconds() * 1000)
GRACE_MS = int(GRACE.total_seconds() * 1000)
PARTITIONS = 3

#: Recent, since brokers delete records older than a topic's retention.
_START_MS = int(time.time() * 1000) - 300_000
_JITTER_MS = 700
_TICK_S = 0.02
_long = struct.Struct(">q")
_start_and_sequence = struct.Struct(">qi")


def show(text: str) -> None:
    """Print a line to the test's output, which pytest shows for failed tests."""
    sys.stdout.write(f"{text}\n")


WindowedWord = tuple[str, int]
"""A word and the start of a window, epoch ms."""


class Sent(NamedTuple):
    """One input record."""

    number: int
    sender: str
    word: str
    timestamp: int

    @property
    def value(self) -> str:
        return f"{self.number} {self.word}"

    @property
    def window(self) -> WindowedWord:
        return self.word, self.timestamp // WINDOW_MS * WINDOW_MS


class Generator:
    """Sends records at a bounded rate in a thread until the block ends, and remembers them.

    Event time advances with the number of records; records are out of order by up to most of a window.
    """

    def __init__(self, application: Application, seed: int, rate: float) -> None:
        self._application = application
        self._random = random.Random(seed)
        self._rate = rate
        self._done = threading.Event()
        self._failure: Any = None
        self._thread = threading.Thread(target=self._run, name="generator")
        self.sent: list[Sent] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the input; return when the broker has all records."""
        self._done.set()
        self._thread.join()
        assert self._failure is None, f"the input could not be produced: {self._failure}"

    def _next(self) -> Sent:
        pick = self._random
        number = len(self.sent)
        return Sent(
            number,
            f"sender-{pick.randrange(40)}",
            f"word-{min(pick.randrange(60), pick.randrange(60))}",
            _START_MS + number * 2 - pick.randrange(_JITTER_MS),
        )

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._application.bootstrap_servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 5,
            },
            logger=kafka.log,
        )

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self._failure = error

        started = time.monotonic()
        while not self._done.wait(_TICK_S):
            due = int((time.monotonic() - started) * self._rate) - len(self.sent)
            for _ in range(due):
                record = self._next()
                producer.produce(
                    self._application.source, record.value.encode(), record.sender.encode(),
                    timestamp=record.timestamp, on_delivery=delivered,
                )  # fmt: skip
                self.sent.append(record)
            producer.poll(0)
        if producer.flush(30):
            self._failure = "the broker did not accept all records"


@dataclass
class Truth:
    """The expected output, computed from the input."""

    sent: list[Sent]
    words: dict[WindowedWord, int] = field(init=False)
    """The number of records by word and window."""
    times: dict[WindowedWord, int] = field(init=False)
    """The newest timestamp by word and window."""
    senders: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.words = dict(Counter(record.window for record in self.sent))
        self.senders = dict(Counter(record.sender for record in self.sent))
        self.times = {}
        for record in self.sent:
            self.times[record.window] = max(record.timestamp, self.times.get(record.window, 0))


def drain(application: Application, truth: Truth) -> None:
    """Wait until a running worker has committed an output record for each input record.

    A time-out is no failure here: the following checks report better what is missing, and where.
    """
    with contextlib.suppress(AssertionError):
        read_until(application.bootstrap_servers, application.target, len(truth.sent), timeout_s=120)


def await_caught_up(application: Application) -> None:
    """Wait until a running worker has committed all input."""
    address = application.bootstrap_servers

    def caught_up() -> bool:
        for topic in (application.source, application.repartition):
            last = {row.partition: row.offset + 1 for row in read(address, topic)}
            committed = committed_offsets(address, application.app_id, topic)
            if any(committed[partition][0] < end for partition, end in last.items()):
                return False
        return True

    eventually(caught_up, "all input is processed and committed", 90)


def verify_exactly_once(application: Application, truth: Truth, state: Path) -> None:
    """Check after a graceful stop that every topic and every store has each input record exactly once.

    Args:
        application: the application.
        truth: the expected output.
        state: the state directory of the worker that has all tasks.
    """
    address = application.bootstrap_servers
    verify_repartition(read(address, application.repartition, settled=True), truth)
    verify_output(read(address, application.target, settled=True), truth)
    changelogs = {store: read(address, application.changelog(store), settled=True) for store in (SENDERS, WORDS)}
    verify_changelogs(changelogs, truth)
    verify_state(state, changelogs, truth.words, truth.times, truth.senders)


def verify_repartition(rows: Iterable[Row], truth: Truth) -> None:
    """Check that each input record is in the repartition topic once, and records of a sender are in order."""
    by_number = {record.number: record for record in truth.sent}
    seen: Counter[int] = Counter()
    last: dict[tuple[int, str], int] = {}
    for row in rows:
        number, word = (row.value or b"").decode().split(" ")
        record = by_number[int(number)]
        seen[record.number] += 1
        assert (row.key, row.timestamp) == (word.encode(), record.timestamp)
        before = last.get((row.partition, record.sender), -1)
        assert before < record.number, f"{record} came after number {before} of the same sender"
        last[row.partition, record.sender] = record.number
    doubled = {number: times for number, times in seen.items() if times > 1}
    lost = by_number.keys() - seen.keys()
    assert not doubled, f"{len(doubled)} records were repartitioned more than once, such as {_some(doubled)}"
    assert not lost, f"{len(lost)} records are not in the repartition topic, such as {_some(sorted(lost))}"


def verify_output(rows: Iterable[Row], truth: Truth) -> None:
    """Check that counts of each word and window are 1, 2, 3, … to the expected one, and times never go back."""
    counts: defaultdict[WindowedWord, list[int]] = defaultdict(list)
    times: dict[WindowedWord, int] = {}
    for row in rows:
        key = windowed_key(row.key or b"")
        counts[key].append(_long.unpack(row.value or b"")[0])
        assert row.timestamp >= times.get(key, 0), f"the time of {key} went back"
        times[key] = row.timestamp
    wrong = {key: found for key, found in counts.items() if found != list(range(1, truth.words.get(key, 0) + 1))}
    assert not wrong, f"{len(wrong)} of {len(truth.words)} words have other counts than 1, 2, 3, …: {_some(wrong)}"
    assert counts.keys() == truth.words.keys()
    assert times == truth.times


def verify_changelogs(changelogs: Mapping[str, list[Row]], truth: Truth) -> None:
    """Check that counts in the changelog increase from commit to commit, and the last one is as expected."""
    senders: defaultdict[str, list[int]] = defaultdict(list)
    for row in changelogs[SENDERS]:
        senders[(row.key or b"").decode()].append(_long.unpack(row.value or b"")[0])
    words: defaultdict[WindowedWord, list[int]] = defaultdict(list)
    for row in changelogs[WORDS]:
        words[changelog_key(row.key or b"")].append(_long.unpack(row.value or b"")[0])
    counts: dict[Any, list[int]] = {**senders, **words}
    wanted: dict[Any, int] = {**truth.senders, **truth.words}
    wrong = {
        key: found
        for key, found in counts.items()
        if found[-1] != wanted.get(key) or any(before >= after for before, after in pairwise(found))
    }
    assert not wrong, f"{len(wrong)} of {len(wanted)} keys are wrong in the changelog: {_some(wrong)}"
    assert counts.keys() == wanted.keys()


def verify_state(
    directory: Path,
    changelogs: Mapping[str, list[Row]],
    words: Mapping[WindowedWord, int],
    times: Mapping[WindowedWord, int],
    senders: Mapping[str, int],
) -> None:
    """Check that the state file has these counts, at the last committed offset of each changelog."""
    found_words, found_times, found_senders = read_state(directory)
    assert found_senders == senders
    assert found_words == words
    assert found_times == times
    with StateFile(directory) as file:
        for store, rows in changelogs.items():
            ends = {row.partition: row.offset + 1 for row in rows}
            assert {number: file.offset(store, number) for number in ends} == ends, f"offsets of {store}"


def read_state(directory: Path) -> tuple[dict[WindowedWord, int], dict[WindowedWord, int], dict[str, int]]:
    """Return the content of a worker's state file: counts and times by word and window, counts by sender."""
    words: dict[WindowedWord, int] = {}
    times: dict[WindowedWord, int] = {}
    senders: dict[str, int] = {}
    with StateFile(directory) as file:
        assert file.set_aside is None
        assert not file.rebuilt
        for partition in range(PARTITIONS):
            by_sender: Any = KeyValueStoreBuilder(name=SENDERS, key=String, value=Long).build(partition, file)
            for sender, count in by_sender.all():
                assert sender not in senders, f"{sender} is in two partitions"
                senders[sender] = count
            by_word: Any = WindowStoreBuilder(
                name=WORDS, key=String, value=Long, timestamped=True,
                retention_ms=WINDOW_MS + GRACE_MS, window_size_ms=WINDOW_MS,
            ).build(partition, file)  # fmt: skip
            for windowed, entry in by_word.all():
                key = (windowed.key, windowed.start_ms)
                assert key not in words, f"{key} is in two partitions"
                words[key], times[key] = entry
    return words, times, senders


def verify_at_least_once(application: Application, truth: Truth, state: Path) -> None:
    """Check after a graceful stop that nothing is lost, and the state equals the ends of the changelogs."""
    address = application.bootstrap_servers
    numbers = {int((row.value or b"").split(b" ")[0]) for row in read(address, application.repartition)}
    lost = {record.number for record in truth.sent} - numbers
    assert not lost, f"{len(lost)} records are not in the repartition topic, such as {_some(sorted(lost))}"
    changelogs = {store: read(address, application.changelog(store)) for store in (SENDERS, WORDS)}
    senders = {(row.key or b"").decode(): _long.unpack(row.value or b"")[0] for row in changelogs[SENDERS]}
    words = {changelog_key(row.key or b""): _long.unpack(row.value or b"")[0] for row in changelogs[WORDS]}
    times = {changelog_key(row.key or b""): row.timestamp for row in changelogs[WORDS]}
    last = {
        windowed_key(row.key or b""): _long.unpack(row.value or b"")[0] for row in read(address, application.target)
    }
    stores: list[tuple[str, dict[Any, int], dict[Any, int]]] = [
        (SENDERS, senders, truth.senders),
        (WORDS, words, truth.words),
    ]
    for name, found, wanted in stores:
        assert found.keys() == wanted.keys(), name
        short = {key: (count, wanted[key]) for key, count in found.items() if count < wanted[key]}
        assert not short, f"{len(short)} {name} have counts that are too low: {_some(short)}"
    assert times == truth.times
    assert last == words, "the output does not end with the content of the store"
    verify_state(state, changelogs, words, times, senders)


def changelog_key(data: bytes) -> WindowedWord:
    """Return the parts of a window store's changelog key: word, window start, sequence number."""
    at = len(data) - _start_and_sequence.size
    start, sequence = _start_and_sequence.unpack_from(data, at)
    assert sequence == 0
    return data[:at].decode(), start


def windowed_key(data: bytes) -> WindowedWord:
    """Return the parts of an output key: word, window start."""
    at = len(data) - _long.size
    return data[:at].decode(), _long.unpack_from(data, at)[0]


# Replays


@dataclass(frozen=True)
class Replay:
    """The records that one restart read from one changelog partition."""

    store: str
    partition: int
    start: int
    end: int
    rows: int
    """The number of committed records."""
    transactions: int
    """The number of their transactions."""


def replays(application: Application) -> list[list[Replay]]:
    """Return the replays of each run that started to restore, by changelog partition.

    The end of a transaction takes one offset in each partition that it wrote to, so offsets are consecutive within a
    transaction, but not between two transactions.
    """
    address = application.bootstrap_servers
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for store in (SENDERS, WORDS):
        for row in read(address, application.changelog(store)):
            offsets[store, row.partition].append(row.offset)
    found: list[list[Replay]] = []
    for run in application.runs:
        of_run: list[Replay] = []
        for fact in run.facts("restore started"):
            start, end = fact["start"], fact["end"]
            inside = [offset for offset in offsets[fact["store"], fact["partition"]] if start <= offset < end]
            gaps = sum(after != before + 1 for before, after in pairwise(inside))
            of_run.append(Replay(fact["store"], fact["partition"], start, end, len(inside), gaps + 1 if inside else 0))
        if of_run:
            found.append(of_run)
    return found


def await_changelogs(application: Application) -> None:
    """Wait until every changelog partition has committed records."""

    def all_have() -> bool:
        return all(
            {row.partition for row in read(application.bootstrap_servers, application.changelog(store))}
            == set(range(PARTITIONS))
            for store in (SENDERS, WORDS)
        )

    eventually(all_have, "every changelog partition has committed records")


def _some(of: Mapping[Any, Any] | list[Any]) -> Any:
    return dict(list(of.items())[:3]) if isinstance(of, Mapping) else of[:3]
