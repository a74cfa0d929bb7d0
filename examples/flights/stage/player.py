"""The player, which sends the year to Kafka: first both tables, then the flights by scheduled departure."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from examples.flights.stage import data

__all__ = ("Player", "Sender", "closing_flight", "flight", "known", "play_tables")

_NEW_YEAR_MS = 1_356_998_400_000  # 2013-01-01T00:00Z, before the first flight
_FAR_LATER = "2014-02-01T00:00:00Z"
_TIMEOUT_S = 60.0
_BATCH = 500
_encode = msgspec.json.encode


def play_tables(bootstrap_servers: str) -> None:
    """Send the airlines and the planes, with timestamps before the first flight.

    A stream-table join uses the rows that are older than the record, so these timestamps make the planes known before
    all flights.
    """
    sender = Sender(bootstrap_servers)
    for row in data.airlines():
        sender.send("airlines", row["carrier"], {"name": row["name"]}, _NEW_YEAR_MS)
    for row in data.planes():
        sender.send("planes", row["tailnum"], {"seats": int(row["seats"])}, _NEW_YEAR_MS)
    sender.finish()


class Player(threading.Thread):
    """Sends flights at an even pace, keyed by tail number.

    After the last flight it sends one more per airport, dated a month later: a window closes when stream time passes
    its end and grace, and only records advance stream time. The windows of these closing flights stay open, so they are
    in no result.

    Args:
        bootstrap_servers: the broker.
        rows: the flights, in this order.
        seconds: the duration; 0 for as fast as possible.

    Attributes:
        played: the number of records sent, closing flights included.
        total: the number of all records, closing flights included.
        day: the date of the last flight sent.
        error: why it stopped early; None if it did not.
    """

    def __init__(self, bootstrap_servers: str, rows: Sequence[data.Row], seconds: float) -> None:
        super().__init__(name="player", daemon=True)
        self._sender = Sender(bootstrap_servers)
        self._rows = rows
        self._seconds = seconds
        self._airports = sorted({row["origin"] for row in rows})
        self._stop = threading.Event()
        self.played = 0
        self.total = len(rows) + len(self._airports)
        self.day = rows[0]["scheduled"][:10]
        self.error: Exception | None = None

    def stop(self) -> None:
        """Stop after the current batch."""
        self._stop.set()

    def run(self) -> None:
        """Send all flights."""
        try:
            self._play()
        except Exception as error:
            self.error = error

    def _play(self) -> None:
        rows, sender = self._rows, self._sender
        pause = self._seconds / len(rows)
        started_at = time.monotonic()
        for start in range(0, len(rows), _BATCH):
            if self._stop.wait(max(0.0, started_at + start * pause - time.monotonic())):
                return
            for row in rows[start : start + _BATCH]:
                sender.send("flights", known(row["tailnum"]), flight(row))
            self.played = min(start + _BATCH, len(rows))
            self.day = rows[self.played - 1]["scheduled"][:10]
        for airport in self._airports:
            sender.send("flights", "none", closing_flight(airport))
        sender.finish()
        self.played = self.total


def flight(row: data.Row) -> dict[str, object]:
    """Return the record of a flight."""
    delay = known(row["dep_delay"])
    return {
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "origin": row["origin"],
        "dest": row["dest"],
        "scheduled": row["scheduled"],
        "delay": None if delay is None else int(delay),
    }


def closing_flight(airport: str) -> dict[str, object]:
    """Return the record that advances the stream time of an airport beyond the year."""
    return {"carrier": "UA", "origin": airport, "scheduled": _FAR_LATER, "delay": None}


def known(text: str) -> str | None:
    """Return a value of the data; None if it is unknown."""
    return None if text in {"NA", ""} else text


class Sender:
    """A producer that encodes JSON and fails when a record is lost."""

    def __init__(self, bootstrap_servers: str) -> None:
        # murmur2, like the Java clients: the join needs equal tail numbers in partitions with equal numbers.
        settings = {"partitioner": "murmur2_random", "enable.idempotence": True, "linger.ms": 5, "log_level": 2}
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **settings})
        self._lost: KafkaError | None = None

    def send(self, topic: str, key: str | None, value: dict[str, object], timestamp_ms: int = 0) -> None:
        """Send a record; timestamp 0 is now."""
        while True:
            try:
                self._producer.produce(
                    topic, key=key, value=_encode(value), timestamp=timestamp_ms, on_delivery=self._delivered
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until Kafka has all records.

        Raises:
            RuntimeError: a record was not delivered.
        """
        left = self._producer.flush(_TIMEOUT_S)
        if left or self._lost:
            raise RuntimeError(f"Kafka did not accept all records: {self._lost or f'{left} are not delivered'}")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._lost = self._lost or error
