"""The checks of every topic at the end, record by record, against results computed from the input.

Each check finds all violations in one place, so that a failed run shows where it began.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from tests.chaos.application import (
    BUFFER,
    CUSTOMERS,
    FINALS,
    JOURNAL,
    RESULTS,
    TOTALS,
    WINDOWS,
    WORDS,
    Tally,
    digest_of,
    journaled,
)
from tests.chaos.generating import CLOSER, Order
from tests.support.kafka import Row

__all__ = ("STORES", "Finding", "Truth", "Windowed", "find_in_changelogs", "find_in_topics")

#: Every store has a changelog.
STORES = (JOURNAL, CUSTOMERS, WINDOWS, TOTALS, BUFFER)

_long = struct.Struct(">q")
_start_and_sequence = struct.Struct(">qi")
_tally = msgspec.json.Decoder(Tally)

Windowed = tuple[str, int]
"""A word and the start of a window, epoch ms."""


class Finding(NamedTuple):
    """A violation."""

    place: str
    """Topic or store."""
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass(frozen=True, slots=True)
class Sums:
    """The expected result of a tally; the input does not determine which order is the last one."""

    count: int = 0
    total: int = 0
    digest: int = 0

    def plus(self, order: Order) -> Sums:
        return Sums(self.count + 1, self.total + order.amount, self.digest + digest_of(order.customer, order.number))


def sums(tally: Tally) -> Sums:
    """Return the sums of a tally."""
    return Sums(tally.count, tally.total, tally.digest)


@dataclass
class Truth:
    """The expected output, computed from the input."""

    orders: Mapping[str, Sequence[Order]]
    versions: Mapping[str, int]
    by_id: dict[str, Order] = field(init=False, default_factory=dict)
    windows: dict[Windowed, Sums] = field(init=False, default_factory=dict)
    times: dict[Windowed, int] = field(init=False, default_factory=dict)
    """The newest timestamp in each window."""
    closed: set[Windowed] = field(init=False, default_factory=set)
    words: dict[str, Sums] = field(init=False, default_factory=dict)
    journals: dict[str, list[str]] = field(init=False, default_factory=dict)
    """Each customer's journal after the first order, the second one, …"""

    def __post_init__(self) -> None:
        for customer, orders in self.orders.items():
            entry: str | None = None
            entries = self.journals[customer] = []
            for order in orders:
                self.by_id[f"{customer} {order.number}"] = order
                window = order.window
                self.windows[window] = self.windows.get(window, Sums()).plus(order)
                self.times[window] = max(order.timestamp, self.times.get(window, 0))
                self.words[order.word] = self.words.get(order.word, Sums()).plus(order)
                entry = journaled(entry, order.value)
                entries.append(entry)
                if customer != CLOSER:
                    self.closed.add(window)


def windowed_key(data: bytes) -> Windowed:
    """Return the parts of an output key: word, window start."""
    return data[:-8].decode(), _long.unpack_from(data, len(data) - 8)[0]


def changelog_key(data: bytes) -> Windowed:
    """Return the parts of a window store's changelog key: word, window start, sequence number."""
    at = len(data) - _start_and_sequence.size
    return data[:at].decode(), _start_and_sequence.unpack_from(data, at)[0]


def find_in_topics(topics: Mapping[str, Iterable[Row]], truth: Truth) -> list[Finding]:
    """Return violations in the repartition topic and in the outputs, by the application's names of topics."""
    found = [Finding(WORDS, text) for text in _repartitioned(topics[WORDS], truth)]
    found += [Finding(RESULTS, text) for text in _results(topics[RESULTS], truth)]
    found += [Finding(FINALS, text) for text in _finals(topics[FINALS], truth)]
    found += [Finding(TOTALS, text) for text in _totals(topics[TOTALS], truth)]
    return found


def _repartitioned(rows: Iterable[Row], truth: Truth) -> Iterable[str]:
    """Check that each order was repartitioned once, in its customer's order, with versions that never go back."""
    seen: dict[str, Row] = {}
    last: dict[tuple[int, str], tuple[int, int]] = {}
    for row in rows:
        customer, number_text, word, amount, version_text = (row.value or b"").decode().split(" ")
        name, number, version = f"{customer} {number_text}", int(number_text), int(version_text)
        order = truth.by_id.get(name)
        if order is None or (order.word, str(order.amount), order.timestamp) != (word, amount, row.timestamp):
            yield f"{name} differs from what was sent: {row}"
            continue
        if row.key != word.encode():
            yield f"{name} has the key {row.key!r}"
        if (before := seen.get(name)) is not None:
            yield f"{name} is there twice, at {_at(before)} and {_at(row)}"
            continue
        seen[name] = row
        last_number, last_version = last.get((row.partition, customer), (-1, 0))
        if number < last_number:
            yield f"{name} came after number {last_number}, at {_at(row)}"
        if not last_version <= version <= truth.versions[customer]:
            yield f"{name} was joined with version {version} after version {last_version}, at {_at(row)}"
        last[row.partition, customer] = number, version
    yield from (f"{name} is lost" for name in truth.by_id if name not in seen)


def _results(rows: Iterable[Row], truth: Truth) -> Iterable[str]:
    """Check that each order changed its window once: count, total and digest increased by that order only."""
    state: dict[Windowed, Sums] = {}
    times: dict[Windowed, int] = {}
    seen: set[str] = set()
    for row in rows:
        key, tally = windowed_key(row.key or b""), _tally.decode(row.value or b"{}")
        order = truth.by_id.get(tally.last)
        if order is None or order.window != key:
            yield f"{key} was changed by {tally.last}, which does not belong to it, at {_at(row)}"
            continue
        if tally.last in seen:
            yield f"{tally.last} was tallied twice, again at {_at(row)}"
        seen.add(tally.last)
        wanted = state.get(key, Sums()).plus(order)
        if sums(tally) != wanted:
            yield f"{key} should have {wanted} with {tally.last}, but has {sums(tally)}, at {_at(row)}"
        state[key] = sums(tally)
        times[key] = max(times.get(key, 0), order.timestamp)
        if row.timestamp != times[key]:
            yield f"{key} has the time {row.timestamp} instead of {times[key]}, at {_at(row)}"
    yield from (f"{name} is lost" for name in truth.by_id if name not in seen)
    yield from _differences(state, truth.windows)


def _finals(rows: Iterable[Row], truth: Truth) -> Iterable[str]:
    """Check that each closed window was output once, complete, with its newest time."""
    seen: dict[Windowed, Sums] = {}
    for row in rows:
        key, tally = windowed_key(row.key or b""), _tally.decode(row.value or b"{}")
        if key in seen:
            yield f"{key} is there again, at {_at(row)}"
        seen[key] = sums(tally)
        if row.timestamp != truth.times.get(key):
            yield f"{key} has the time {row.timestamp} instead of {truth.times.get(key)}, at {_at(row)}"
    yield from _differences(seen, {key: truth.windows[key] for key in truth.closed})


def _totals(rows: Iterable[Row], truth: Truth) -> Iterable[str]:
    """Check that the count of each word increases from record to record, up to the expected one."""
    last: dict[str, Sums] = {}
    for row in rows:
        word, tally = (row.key or b"").decode(), _tally.decode(row.value or b"{}")
        if tally.count <= (before := last.get(word, Sums()).count):
            yield f"{word} has the count {tally.count} after {before}, at {_at(row)}"
        last[word] = sums(tally)
    yield from _differences(last, truth.words)


def find_in_changelogs(changelogs: Mapping[str, Iterable[Row]], results: Iterable[Row], truth: Truth) -> list[Finding]:
    """Return violations in the changelogs, by store; windows in them have to equal the output."""
    came_out = {(windowed_key(row.key or b""), _tally.decode(row.value or b"{}")) for row in results}
    found = [Finding(_log(JOURNAL), text) for text in _journal(changelogs[JOURNAL], truth)]
    found += [Finding(_log(CUSTOMERS), text) for text in _customers(changelogs[CUSTOMERS], truth)]
    found += [Finding(_log(WINDOWS), text) for text in _windows(changelogs[WINDOWS], came_out, truth)]
    found += [Finding(_log(TOTALS), text) for text in _totals(changelogs[TOTALS], truth)]
    found += [Finding(_log(BUFFER), text) for text in _buffer(changelogs[BUFFER], truth)]
    return found


def _log(store: str) -> str:
    return f"changelog of {store}"


def _journal(rows: Iterable[Row], truth: Truth) -> Iterable[str]:
    last: dict[str, int] = {}
    for row in rows:
        customer, entry = (row.key or b"").decode(), (row.value or b"0").decode()
        count = int(entry.split(" ")[0])
        entries = truth.journals.get(customer, [])
        if not 0 < count <= len(entries) or entries[count - 1] != entry:
            yield f"{customer} has the wrong entry {entry}, at {_at(row)}"
        if count <= (before := last.get(customer, 0)):
            yield f"{customer} has {count} orders after {before}, at {_at(row)}"
        last[customer] = count
    yield from _differences(last, {customer: len(entries) for customer, entries in truth.journals.items()})


def _customers(rows: Iterable[Row], truth: Truth) -> Iterable[str]:
    last: dict[str, int] = {}
    for row in rows:
        customer, version = (row.key or b"").decode(), int(row.value or b"0")
        if version <= (before := last.get(customer, 0)):
            yield f"{customer} has version {version} after {before}, at {_at(row)}"
        last[customer] = version
    yield from _differences(last, dict(truth.versions))


def _windows(rows: Iterable[Row], came_out: set[tuple[Windowed, Tally]], truth: Truth) -> Iterable[str]:
    last: dict[Windowed, Sums] = {}
    for row in rows:
        key, tally = changelog_key(row.key or b""), _tally.decode(row.value or b"{}")
        if (key, tally) not in came_out:
            yield f"{key} is logged with {tally}, which is not in the output, at {_at(row)}"
        if tally.count <= (before := last.get(key, Sums()).count):
            yield f"{key} has the count {tally.count} after {before}, at {_at(row)}"
        last[key] = sums(tally)
    yield from _differences(last, truth.windows)


def _buffer(rows: Iterable[Row], truth: Truth) -> Iterable[str]:
    left = {}
    for row in rows:
        left[windowed_key(row.key or b"")] = row.value
    held = {key for key, value in left.items() if value is not None}
    yield from (f"{key} is still in the buffer" for key in sorted(held & truth.closed))
    yield from (f"{key} is not held back" for key in sorted(truth.windows.keys() - truth.closed - held))
    yield from (f"{key} was never in the buffer" for key in sorted(truth.closed - left.keys()))


def _differences(found: Mapping, wanted: Mapping) -> Iterable[str]:
    """Return differences of the final values."""
    yield from (
        f"{key} ends with {found.get(key)} instead of {wanted.get(key)}"
        for key in sorted(found.keys() | wanted.keys())
        if found.get(key) != wanted.get(key)
    )


def _at(row: Row) -> str:
    return f"{row.partition}:{row.offset}"
