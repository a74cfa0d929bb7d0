"""User code of the application with every operator: timers, a store of one's own, steps over batches."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import ClassVar

import millpond as mp

__all__ = ("Answers", "Counted", "Seen", "SentByStreamTime", "SentByWallClock", "answered", "exclaimed", "sent_twice")

_ANSWER_S = 0.002


class Counted(mp.ValueTransformerWithKey[str, str, str]):
    """Adds the number of the change of its key to each value of a table."""

    stores: ClassVar = (mp.KeyValueStoreBuilder(name="changes", key=mp.String, value=mp.Long),)

    def init(self, context: mp.ValueTransformerContext) -> None:
        self._changes = context.get_state_store("changes", mp.KeyValueStore[str, int])

    def transform(self, key: str, value: str | None) -> str | None:
        number = (self._changes.get(key) or 0) + 1
        self._changes.put(key, number)
        return None if value is None else f"{value}#{number}"


class Seen(mp.StateStore):
    """A store of one's own: the number of records by key, and the keys by number."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.keys: dict[int, set[str]] = {}

    def add(self, key: str) -> tuple[int, int]:
        """Count a record; return the number of its key's records, and of the keys with as many."""
        count = self.counts.get(key, 0) + 1
        self.log(key.encode(), b"%d" % count)
        self._change(key, count)
        return count, len(self.keys[count])

    def _change(self, key: str, count: int) -> None:
        self.keys.get(self.counts.get(key, 0), set()).discard(key)
        self.keys.setdefault(count, set()).add(key)
        self.counts[key] = count

    def restore(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self._change(key.decode(), int(value or 0))

    def clear(self) -> None:
        self.counts.clear()
        self.keys.clear()


class Answers(mp.FixedKeyProcessor[str, str, str]):
    """Forwards each value with what the store of one's own says about its key."""

    def process(self, record: mp.FixedKeyRecord[str, str]) -> None:
        count, ties = self.context.get_state_store("seen", Seen).add(record.key)
        self.context.forward(record.with_value(f"{record.value} {count} {ties}"))


class _Sent(mp.Processor[str, str, str, str]):
    """Keeps records in a store, and a timer forwards and deletes them."""

    _store: ClassVar[str]
    _kind: ClassVar[mp.PunctuationType]
    _interval: ClassVar[timedelta]

    def init(self, context: mp.ProcessorContext[str, str]) -> None:
        self._waiting = context.get_state_store(self._store, mp.KeyValueStore[str, str])
        context.schedule(self._interval, self._kind, self._send)

    def process(self, record: mp.Record[str, str]) -> None:
        assert record.key is not None
        self._waiting.put(record.value, record.key)

    def _send(self, now_ms: int) -> None:
        for value, key in list(self._waiting.all()):
            self._waiting.delete(value)
            self.context.forward(mp.Record(key, value, now_ms))


class SentByWallClock(_Sent):
    """Sends all records that have arrived, every 0.3 s by the wall clock."""

    _store, _kind, _interval = "waiting-for-clock", mp.PunctuationType.WALL_CLOCK_TIME, timedelta(seconds=0.3)
    stores: ClassVar = (mp.KeyValueStoreBuilder(name=_store, key=mp.String, value=mp.String),)


class SentByStreamTime(_Sent):
    """Sends all records that have arrived, for every 2 s of stream time."""

    _store, _kind, _interval = "waiting-for-stream", mp.PunctuationType.STREAM_TIME, timedelta(seconds=2)
    stores: ClassVar = (mp.KeyValueStoreBuilder(name=_store, key=mp.String, value=mp.String),)


def exclaimed(values: list[str]) -> list[str]:
    """Return the values of a batch with a mark."""
    return [f"{value}!" for value in values]


async def answered(value: str) -> str:
    """Return the answer of a service that takes a while."""
    await asyncio.sleep(_ANSWER_S)
    return f"{value}?"


async def sent_twice(record: mp.Record[str, str]) -> list[mp.Record[str, str]]:
    """Return two records for one."""
    await asyncio.sleep(_ANSWER_S)
    return [record.with_value(f"{record.value} {part}") for part in "ab"]
