"""Topologies with processors that read a store of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import millpond as mp

from .running import MINUTE, M, Types, shown


def read_only(b: mp.StreamsBuilder, t: Types) -> None:
    class Read(mp.Processor[str, int, str, str]):
        def process(self, record: mp.Record[str, int]) -> None:
            found = self.context.get_state_store("own").get(record.key)
            self.context.forward(record.with_value(shown(_plain(found))))

    class Keep(mp.Processor[str, Any, None, None]):
        def process(self, record: mp.Record[str, Any]) -> None:
            self.context.get_state_store("own").put(record.key, record.value)

    builder = mp.KeyValueStoreBuilder(name="own", key=mp.String, value=t.serde)
    b.add_read_only_state_store(builder, "rows", Keep, key=mp.String, value=t.serde)
    b.stream("in", key=mp.String, value=mp.Long).process(Read, stores=["own"], key=mp.String, value=mp.String).to("out")


def punctuated(b: mp.StreamsBuilder, t: Types) -> None:
    class Read(mp.Processor[str, int, str, str]):
        def init(self, context: mp.ProcessorContext[str, str]) -> None:
            context.schedule(MINUTE, mp.PunctuationType.STREAM_TIME, self.send)

        def send(self, now_ms: int) -> None:
            for key, row in self.context.get_state_store("own").all():
                self.context.forward(mp.Record(key, shown(row), now_ms))

        def process(self, record: mp.Record[str, int]) -> None:
            if record.value == 1:
                self.context.get_state_store("own").put(record.key, t.make(record.value))

    b.add_state_store(keys(t))
    b.stream("in", key=mp.String, value=mp.Long).process(Read, stores=["own"], key=mp.String, value=mp.String).to("out")


READS: dict[str, Callable[[Any, mp.Record[str, int]], Any]] = {
    "get": lambda store, record: [store.get(record.key)],
    "put_if_absent": lambda store, record: [store.put_if_absent(record.key, None)],
    "delete": lambda store, record: [store.delete(record.key)],
    "range": lambda store, record: [value for _, value in store.range("a", "z")],
    "reverse_range": lambda store, record: [value for _, value in store.reverse_range("a", "z")],
    "all": lambda store, record: [value for _, value in store.all()],
    "reverse_all": lambda store, record: [value for _, value in store.reverse_all()],
    "prefix_scan": lambda store, record: [value for _, value in store.prefix_scan(record.key, mp.String.serialize)],
}
WINDOW_READS: dict[str, Callable[[Any, mp.Record[str, int]], Any]] = {
    "fetch": lambda store, record: [store.fetch(record.key, 0)],
    "fetch of a span": lambda store, record: [value for _, value in store.fetch(record.key, 0, M)],
    "backward_fetch": lambda store, record: [value for _, value in store.backward_fetch(record.key, 0, M)],
    "fetch_range": lambda store, record: [value for _, value in store.fetch_range("a", "z", 0, M)],
    "fetch_all": lambda store, record: [value for _, value in store.fetch_all(0, M)],
    "all": lambda store, record: [value for _, value in store.all()],
}
SESSION_READS: dict[str, Callable[[Any, mp.Record[str, int]], Any]] = {
    "fetch": lambda store, record: [value for _, value in store.fetch(record.key)],
    "fetch_session": lambda store, record: [store.fetch_session(record.key, 0, 0)],
    "find_sessions": lambda store, record: [value for _, value in store.find_sessions(record.key, 0, M)],
}
VERSIONED_READS: dict[str, Callable[[Any, mp.Record[str, int]], Any]] = {
    "get": lambda store, record: [store.get(record.key)],
    "get as of": lambda store, record: [store.get(record.key, 1)],
}


def _plain(found: Any) -> Any:
    return getattr(found, "value", found)


def processor(builder: Callable[[Types], Any], put: Any, read: Any) -> Callable[[mp.StreamsBuilder, Types], None]:
    def build(b: mp.StreamsBuilder, t: Types) -> None:
        class Read(mp.Processor[str, int, str, str]):
            def process(self, record: mp.Record[str, int]) -> None:
                store = self.context.get_state_store("own")
                if record.value == 1:
                    put(store, record, t.make(record.value))
                    return
                for each in read(store, record):
                    self.context.forward(record.with_value(shown(_plain(each))))

        b.add_state_store(builder(t))
        b.stream("in", key=mp.String, value=mp.Long).process(Read, stores=["own"], key=mp.String, value=mp.String).to(
            "out"
        )

    return build


def keys(t: Types) -> Any:
    return mp.KeyValueStoreBuilder(name="own", key=mp.String, value=t.serde)


def timed_keys(t: Types) -> Any:
    return mp.KeyValueStoreBuilder(name="own", key=mp.String, value=t.serde, timestamped=True)


def few_keys(t: Types) -> Any:
    return mp.KeyValueStoreBuilder(name="own", key=mp.String, value=t.serde, max_entries=3)


def windows_of(t: Types) -> Any:
    return mp.WindowStoreBuilder(name="own", key=mp.String, value=t.serde, window_size_ms=M, retention_ms=10 * M)


def many_windows_of(t: Types) -> Any:
    return mp.WindowStoreBuilder(
        name="own", key=mp.String, value=t.serde, window_size_ms=M, retention_ms=10 * M, retain_duplicates=True
    )


def ordered_windows_of(t: Types) -> Any:
    return mp.WindowStoreBuilder(
        name="own",
        key=mp.String,
        value=t.serde,
        window_size_ms=M,
        retention_ms=10 * M,
        time_ordered=True,
        timestamped=True,
    )


def sessions_of(t: Types) -> Any:
    return mp.SessionStoreBuilder(name="own", key=mp.String, value=t.serde, retention_ms=10 * M)


def versions_of(t: Types) -> Any:
    return mp.VersionedKeyValueStoreBuilder(name="own", key=mp.String, value=t.serde, history_retention_ms=10 * M)


def _put(store: Any, record: Any, value: Any) -> None:
    store.put(record.key, value)


def _put_timed(store: Any, record: Any, value: Any) -> None:
    store.put(record.key, mp.ValueAndTimestamp(value, record.timestamp))


def _put_window(store: Any, record: Any, value: Any) -> None:
    store.put(record.key, value, 0)


def _put_timed_window(store: Any, record: Any, value: Any) -> None:
    store.put(record.key, mp.ValueAndTimestamp(value, record.timestamp), 0)


def _put_session(store: Any, record: Any, value: Any) -> None:
    store.put(mp.Windowed(record.key, 0, 0), value)


def _put_version(store: Any, record: Any, value: Any) -> None:
    store.put(record.key, value, 0)
