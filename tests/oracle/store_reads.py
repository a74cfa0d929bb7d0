"""The stores of java/StoreReads.java, and the calls that both are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import millpond as mp
from tests.oracle.topologies.by_hand import Dice

RECORDS = 120
KEYS = ("", "a", "aa", "ab", "b", "ba", "c", "zz")
String = mp.String


def stores() -> dict[str, Any]:
    """Return the builder of each case."""
    common: dict[str, Any] = {"name": "s", "key": String, "value": String}
    windows = {**common, "retention_ms": 200_000, "window_size_ms": 10_000}
    sessions = {**common, "retention_ms": 200_000, "logging": False}
    return {
        "key-value-disk": mp.KeyValueStoreBuilder(**common),
        "key-value-disk-cached": mp.KeyValueStoreBuilder(**common, caching=True),
        "key-value-memory": mp.KeyValueStoreBuilder(**common, persistent=False),
        "key-value-lru": mp.KeyValueStoreBuilder(**common, max_entries=4),
        "key-value-lru-one": mp.KeyValueStoreBuilder(**common, max_entries=1),
        "key-value-times": mp.KeyValueStoreBuilder(**common, timestamped=True),
        "key-value-times-lru": mp.KeyValueStoreBuilder(**common, timestamped=True, max_entries=3),
        "window-disk": mp.WindowStoreBuilder(**windows),
        "window-memory": mp.WindowStoreBuilder(**windows, persistent=False),
        "window-disk-duplicates": mp.WindowStoreBuilder(**windows, retain_duplicates=True),
        "window-memory-duplicates": mp.WindowStoreBuilder(**windows, retain_duplicates=True, persistent=False),
        "session-disk": mp.SessionStoreBuilder(**sessions),
        "session-memory": mp.SessionStoreBuilder(**sessions, persistent=False),
    }


def run(name: str) -> str:
    """Make the generated calls, and return them with their results, as the Java side does."""
    builder = mp.StreamsBuilder()
    builder.add_state_store(stores()[name])
    builder.stream("in", key=String, value=String).process(Caller, stores=["s"]).to("out", key=String, value=String)
    calls = Calls(name)
    lines: list[str] = []
    with mp.testing.TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        in_ = driver.create_input_topic("in", key=String, value=String)
        out = driver.create_output_topic("out", key=String, value=String)
        log = driver.create_output_topic("app-s-changelog", key=mp.Bytes, value=mp.Bytes)
        for at in range(RECORDS):
            in_.pipe_input("k", calls.next(), 1000 + at)
            lines += out.read_value().splitlines()
            logged = {
                _hex(record.key): f"{_hex(record.value)} {record.timestamp}" for record in log.read_records_to_list()
            }
            if name != "key-value-times-lru":  # Kafka Streams' store with timestamps does not log evictions
                lines += [f"log: {key} {logged[key]}" for key in sorted(logged)]
    return "\n".join([*lines, ""])


def _hex(data: bytes | None) -> str:
    return "null" if data is None else data.hex()


class Calls:
    """Generates calls, with the same arithmetic as StoreReads.java."""

    def __init__(self, name: str) -> None:
        self.kind = name.split("-", maxsplit=1)[0]
        self.memory, self.duplicates, self.lru = "memory" in name, "duplicates" in name, "lru" in name
        self.roll = Dice(len(name) * 1000 + ord(name[-1])).roll
        self.now = 50_000

    def key(self) -> str:
        return KEYS[self.roll(len(KEYS))]

    def bound(self) -> str:
        return "~" if self.roll(5) == 0 else self.key()

    def value(self) -> str:
        return "~" if self.roll(6) == 0 else f"v{self.roll(100)}"

    def time(self) -> int:
        return max(0, self.now - self.roll(30) * 10_000)

    def before(self, end: int, sides: int) -> int:
        return max(0, end - self.roll(sides) * 10_000)

    def next(self) -> str:
        draw = {"key": self.key_value, "window": self.window, "session": self.session}[self.kind]
        return ";".join([draw() for _ in range(1 + self.roll(4))])

    def key_value(self) -> str:
        call = self.roll(14)
        if call < 6:
            return f"put:{self.key()}:{self.value()}"
        match call:
            case 6:
                return f"delete:{self.key()}"
            case 7:
                return f"put_if_absent:{self.key()}:w{self.roll(100)}"
            case 8:
                return f"get:{self.key()}"
            case 9:
                return f"range:{self.bound()}:{self.bound()}"
            case 10:
                return f"reverse_range:{self.bound()}:{self.bound()}"
            case 11:
                return "all" if self.roll(2) == 0 else "reverse_all"
            case 12:
                return f"prefix_scan:{KEYS[1 + self.roll(len(KEYS) - 1)]}"
            case _ if self.lru:  # there, put_all() logs evictions before the puts of the evicted entries
                return f"get:{self.key()}"
            case _:
                return f"put_all:{self.key()}:{self.value()}:{self.key()}:{self.value()}"

    def window(self) -> str:
        call = self.roll(16)
        if call < 8:
            self._advance()
            return f"put:{self.key()}:{self.value()}:{self.time()}"
        back = "" if self.roll(2) == 0 else "backward_"
        match call:
            case 8:
                return f"fetch:{self.key()}:{self.time()}"
            case 9:
                return f"{back}all"
            case 10:
                return f"{back}fetch_all:{self.time()}:{self.time()}"
            case 11 | 12:
                bound = self.key if self.duplicates else self.bound
                return f"{back}fetch_range:{bound()}:{bound()}:{self.time()}:{self.time()}"
            case _:
                return f"{back}fetch:{self.key()}:{self.time()}:{self.time()}"

    def session(self) -> str:
        call = self.roll(18)
        if call < 8:
            self._advance()
            end = self.time()
            return f"put:{self.key()}:{self.before(end, 4)}:{end}:{self.value()}"
        back = "" if self.roll(2) == 0 else "backward_"
        match call:
            case 8 | 9:
                end = self.time()
                method = "fetch_session" if call == 8 else "remove"
                return f"{method}:{self.key()}:{self.before(end, 3)}:{end}"
            case 10 | 11:
                return f"{back}fetch:{self.key()}"
            case 12:
                return f"{back}fetch_range:{ordered(self.bound(), self.bound())}"
            case 13 | 14:
                return f"{back}find_sessions:{self.key()}:{self.time()}:{self.time()}"
            case 15 if self.memory:
                first, last = sorted((self.time(), self.time()))
                return f"find_sessions_ending:{first}:{last}"
            case 15:
                return f"{back}fetch:{self.key()}"
            case _:
                return f"{back}find_sessions_range:{self.bound()}:{self.bound()}:{self.time()}:{self.time()}"

    def _advance(self) -> None:
        if self.roll(4) == 0:
            self.now += self.roll(4) * 10_000


def ordered(one: str, other: str) -> str:
    """Return a range of keys the right way round; the original's store in memory fails for some that are not."""
    return f"{other}:{one}" if "~" not in (one, other) and other < one else f"{one}:{other}"


class Caller(mp.Processor[str, str, str, str]):
    """Makes the calls of each record, and forwards their results."""

    def process(self, record: mp.Record[str, str]) -> None:
        store: Any = self.context.get_state_store("s")
        text = "".join(
            f"{call} -> {_made(store, call.split(':'), record.timestamp)}\n" for call in record.value.split(";")
        )
        self.context.forward(record.with_value(text))


def _made(store: Any, call: list[str], now: int) -> str:
    method, *rest = call
    arguments: list[Any] = [None if each == "~" else each for each in rest]
    timed = hasattr(store, "window_size_ms")
    if type(store).__name__.startswith("Timestamped"):
        arguments = [_at(now, each) for each in arguments] if method.startswith("put") else arguments
        arguments[::2] = [each.value if isinstance(each, mp.ValueAndTimestamp) else each for each in arguments[::2]]
    if hasattr(store, "find_sessions"):
        return _session_call(store, method, arguments)
    if method == "put_all":
        store.put_all([tuple(arguments[:2]), tuple(arguments[2:])])
        return ""
    if timed:
        arguments = [_number(each) if at else each for at, each in enumerate(arguments)]
        if method in ("fetch_all", "backward_fetch_all"):
            arguments[0] = int(arguments[0])
    if method == "put":
        store.put(*arguments)
        return ""
    return _shown(getattr(store, method)(*arguments))


def _at(now: int, value: str | None) -> Any:
    return None if value is None else mp.ValueAndTimestamp(value, now)


def _number(text: str | None) -> Any:
    return int(text) if text is not None and text.isdigit() else text


def _session_call(store: Any, method: str, arguments: list[Any]) -> str:
    if method == "put":
        store.put(mp.Windowed(arguments[0], int(arguments[1]), int(arguments[2])), arguments[3])
        return ""
    if method == "remove":
        store.remove(mp.Windowed(arguments[0], int(arguments[1]), int(arguments[2])))
        return ""
    return _shown(getattr(store, method)(*map(_number, arguments)))


def _shown(found: Any) -> str:
    if isinstance(found, Iterator):
        return " ".join(f"{_place(key)}={_value(value)}" for key, value in found)
    return _value(found)


def _place(key: Any) -> str:
    return f"{key.key}@{key.start_ms}-{key.end_ms}" if isinstance(key, mp.Windowed) else str(key)


def _value(value: Any) -> str:
    if isinstance(value, mp.ValueAndTimestamp):
        return f"<{value.value},{value.timestamp}>"
    return "null" if value is None else str(value)
