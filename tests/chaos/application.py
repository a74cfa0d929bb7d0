"""The application of chaos runs, and the names and formats that its verifier reads.

The key of an order is the customer's name, its value ``<number> <word> <amount>``; the numbers of each customer are 0,
1, 2, … The first sub-topology keeps a journal per customer (a checksum over its orders in their order), joins each
order with the customer's row, and sends it on by word. The second one tallies orders by word and window, and by word
alone; a third output has each window once, when it is closed.

The final result does not depend on the order of partitions: the orders of one customer stay in order everywhere, and
all sums commute.
"""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import Any

import millpond as mp

ORDERS, CUSTOMERS = "orders", "customers"
RESULTS, FINALS = "results", "finals"
JOURNAL, WINDOWS, TOTALS = "journal", "windows", "totals"
CLOSING = "closing"
BUFFER = f"{CLOSING}-store"
WORDS = "words"

PARTITIONS = 4
WINDOW = timedelta(seconds=10)
#: Windows close when the input has ended: for a worker that was down for long, records must not be late.
GRACE = timedelta(hours=1)
#: Long enough that no window leaves its store, so that all of them can be checked.
RETENTION = timedelta(hours=20)

WINDOW_KEY = mp.TimeWindowedSerde(mp.String, WINDOW)


class Tally(mp.Struct, frozen=True):
    """The totals of many orders."""

    count: int = 0
    total: int = 0
    """The sum of the amounts."""
    digest: int = 0
    """The sum of `digest_of` over the orders, which identifies them in any order."""
    last: str = ""
    """The newest order: customer and number."""


TALLY = mp.Json(Tally)


def digest_of(customer: str, number: int | str) -> int:
    """Return a number that identifies one order."""
    return zlib.crc32(f"{customer} {number}".encode())


def tallied(tally: Tally, customer: str, number: int | str, amount: int | str) -> Tally:
    """Return the tally with one more order."""
    return Tally(
        tally.count + 1, tally.total + int(amount), tally.digest + digest_of(customer, number), f"{customer} {number}"
    )


def journaled(entry: str | None, value: str) -> str:
    """Return a customer's journal after one more order: the number of orders, and their checksum in order."""
    count, _, checksum = (entry or "0 0").partition(" ")
    return f"{int(count) + 1} {zlib.crc32(value.encode(), int(checksum))}"


class Journal(mp.FixedKeyProcessor[str, str, str]):
    """Adds each order to the journal of its customer, and forwards it with the customer's name in its value."""

    def init(self, context: mp.FixedKeyProcessorContext[str, str]) -> None:
        super().init(context)
        self._journal: Any = context.get_state_store(JOURNAL)
        # Commits at irregular moments, and a timer that follows the wall clock through its jumps.
        context.schedule(timedelta(seconds=1), mp.PunctuationType.WALL_CLOCK_TIME, lambda _now: context.commit())

    def process(self, record: mp.FixedKeyRecord[str, str]) -> None:
        self._journal.put(record.key, journaled(self._journal.get(record.key), record.value))
        self.context.forward(record.with_value(f"{record.key} {record.value}"))


def _tally(_word: str, value: str, tally: Tally) -> Tally:
    customer, number, _, amount, _ = value.split(" ")
    return tallied(tally, customer, number, amount)


def topology() -> mp.Topology:
    """Return the application's topology."""
    builder = mp.StreamsBuilder()
    builder.add_state_store(mp.KeyValueStoreBuilder(name=JOURNAL, key=mp.String, value=mp.String))
    customers = builder.table(CUSTOMERS, key=mp.String, value=mp.String, store=CUSTOMERS)
    by_word = (
        builder.stream(ORDERS, key=mp.String, value=mp.String)
        .process_values(Journal, stores=[JOURNAL], value=mp.String)
        .join(customers, lambda value, version: f"{value} {version}", value=mp.String)
        .group_by(lambda _, value: value.split(" ")[2], key=mp.String, value=mp.String, name=WORDS)
    )
    windows = by_word.windowed_by(mp.TimeWindows(WINDOW, grace=GRACE)).aggregate(
        Tally, _tally, store=WINDOWS, value=TALLY, caching=False, retention=RETENTION
    )
    windows.to_stream().to(RESULTS, key=WINDOW_KEY, value=TALLY)
    windows.suppress(mp.until_window_closes(), name=CLOSING).to_stream().to(FINALS, key=WINDOW_KEY, value=TALLY)
    by_word.aggregate(Tally, _tally, store=TOTALS, value=TALLY).to_stream().to(TOTALS, key=mp.String, value=TALLY)
    return builder.build()
