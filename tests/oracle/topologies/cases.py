"""The register of cases, and what many cases use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from millpond.dsl import KStream, KTable, StreamsBuilder, TimeWindows
from millpond.serdes import String, Windowed
from millpond.state import KeyValueStoreBuilder
from millpond.topology import FixedKeyProcessor, Processor, RecordContext, Topology

Case = Callable[[], Topology]
CASES: dict[str, Case] = {}


def dsl(write: Callable[[StreamsBuilder], object]) -> Callable[[StreamsBuilder], object]:
    """Register a case that is written in the DSL, under its function's name."""

    def build() -> Topology:
        builder = StreamsBuilder()
        write(builder)
        return builder.build()

    CASES[write.__name__] = build
    return write


def plain(build: Case) -> Case:
    """Register a case that is a topology built by hand, under its function's name."""
    CASES[build.__name__] = build
    return build


class Nothing(Processor[str, str, str, str]):
    """Does nothing."""

    def process(self, record: Any) -> None:
        """Nothing."""


class NothingFixed(FixedKeyProcessor[str, str, str]):
    """Does nothing."""

    def process(self, record: Any) -> None:
        """Nothing."""


def stream(b: StreamsBuilder, topic: str) -> KStream[str, str]:
    return b.stream(topic, key=String, value=String)


def table(b: StreamsBuilder, topic: str) -> KTable[str, str]:
    return b.table(topic, key=String, value=String)


def key_value(name: str, *, logging: bool = True) -> KeyValueStoreBuilder[str, str]:
    return KeyValueStoreBuilder(name=name, key=String, value=String, persistent=False, logging=logging)


def by_carrier(key: str, _value: str, _context: RecordContext) -> str:
    return key


def always(_key: object, _value: object) -> bool:
    return True


def value_of(_key: object, value: str) -> str:
    return value


def pair(_key: object, value: str) -> tuple[str, str]:
    return value, value


def same(value: str) -> str:
    return value


def first(one: str, _other: object) -> str:
    return one


def keep(_key: object, _value: object, aggregate: str) -> str:
    return aggregate


def just_key(key: Windowed[str], _value: object) -> str:
    return key.key


HOUR = TimeWindows(timedelta(hours=1), grace=timedelta(minutes=10))
HOPPING = TimeWindows(timedelta(hours=1), advance=timedelta(minutes=5), grace=timedelta(minutes=10))
