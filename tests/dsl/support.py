"""A task in memory for bodies: lists keep what they forward, drop and report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millpond.drops import Drop
from millpond.dsl.operators.guard import FATAL
from millpond.state import MemoryBackend, StoreBuilder
from millpond.topology import Body, TaskId
from millpond.topology.user_metrics import TaskMetrics, UserMetrics


class Task:
    """A TaskContext whose attributes tests set."""

    def __init__(self) -> None:
        self.task_id = TaskId(0, 0)
        self.application_id = "app"
        self.headers: list[tuple[str, bytes | None]] | None = None
        self.topic: str | None = "topic"
        self.partition = 0
        self.offset = 0
        self.timestamp = 0
        self.message: Any = None
        self.origin: Any = None
        self.released = False
        self.stream_time = -1
        self.config: Mapping[str, object] = {}
        self.commits = 0
        self.metrics = TaskMetrics(UserMetrics())
        self.key_serde: Any = None
        self.value_serde: Any = None

    def now_ms(self) -> int:
        return 0

    def state_dir(self) -> Path:
        raise NotImplementedError

    def request_commit(self) -> None:
        self.commits += 1


class Node:
    """A NodeContext that keeps what a body does."""

    def __init__(self, name: str = "node", remembered: Mapping[str, int] | None = None, **stores: Any) -> None:
        self.name = name
        self.task = Task()
        self.forwarded: list[tuple[Any, ...]] = []
        self.forwarded_headers: list[Any] = []
        self.children: dict[str, list[tuple[Any, ...]]] = {}
        self.errors: list[Exception] = []
        self.drops = 0
        self.lates = 0
        self.scheduled: list[tuple[int, bool, Callable[[int], None]]] = []
        self.closing: list[Callable[[], None]] = []
        self.batch_ends: list[Callable[[], None]] = []
        self.memory: dict[str, Callable[[], int]] = {}
        self.waiting: dict[str, Callable[[], tuple[int, int, int] | None]] = {}
        self._remembered = dict(remembered or {})
        self._stores = stores

    def forward(self, *record: Any) -> None:
        self.forwarded.append(record)
        self.forwarded_headers.append(self.task.headers)

    def child(self, name: str) -> Callable[..., None]:
        received = self.children.setdefault(name, [])
        return lambda *record: received.append(record)

    def store(self, name: str) -> Any:
        return self._stores[name]

    def is_read_only(self, store: str) -> bool:
        return False

    def key_serde(self, serde: Any, topic: str) -> Any:
        return serde.for_topic(topic, True)

    def value_serde(self, serde: Any, topic: str) -> Any:
        return serde.for_topic(topic, False)

    def on_init(self, callback: Callable[[], None]) -> None:
        callback()

    def failed(self, error: Exception, _key: Any, _value: Any, _timestamp: int) -> None:
        if isinstance(error, FATAL):
            raise error
        self.errors.append(error)

    def dropped(self, _reason: Drop, *, counted: bool = True) -> None:
        self.drops += counted

    def unjoined(self, _join: str, _late_ms: int) -> None:
        self.lates += 1

    def late(self, _start: int, _end: int, _closes: int, _stream_time: int) -> None:
        self.drops += 1
        self.lates += 1

    def schedule(
        self, interval_ms: int, wall_clock: bool, callback: Callable[[int], None], start_ms: int | None = None
    ) -> Any:
        self.scheduled.append((interval_ms, wall_clock, callback))

    def on_batch_end(self, callback: Callable[[], None]) -> None:
        self.batch_ends.append(callback)

    def on_close(self, callback: Callable[[], None]) -> None:
        self.closing.append(callback)

    def holds_back(self, store: str, waiting: Callable[[], tuple[int, int, int] | None]) -> None:
        self.waiting[store] = waiting

    def remember(self, name: str, value: Callable[[], int]) -> int | None:
        self.memory[name] = value
        return self._remembered.get(name)

    def share(self, key: str, value: Callable[[], int]) -> int | None:
        return self.remember(key, value)

    def restarted(self) -> dict[str, int]:
        """The values that a commit would write now, for the next `Node(remembered=…)`."""
        return {name: value() for name, value in self.memory.items()}

    def bind(self, body: Body) -> Callable[..., None]:
        return body.bind(self)


def build(builder: StoreBuilder[Any, Any]) -> Any:
    """A store of the builder's kind, in memory."""
    return builder.build(0, MemoryBackend())
