"""A left or outer join after a restart: its stream time and the records that wait are those of the commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.dsl.operators.window_join.outer import OuterJoinWindow
from millpond.dsl.operators.window_join.times import EMIT_INTERVAL
from millpond.serdes import String
from millpond.state import MemoryBackend, OuterJoinStoreBuilder, WindowStoreBuilder
from tests.dsl.support import Node
from tests.state.helpers import commit


class Join:
    """Both sides of an outer join in one task, over a backend that outlives it."""

    def __init__(
        self, backend: MemoryBackend, remembered: dict[str, int] | None = None, *, emit_interval_ms: int = 0
    ) -> None:
        self.backend = backend
        self.now = 10_000_000
        sides = {
            name: WindowStoreBuilder(
                name=name, key=String, value=String, retention_ms=30, window_size_ms=20, retain_duplicates=True
            ).build(0, backend)
            for name in ("left", "right")
        }
        self.waiting = OuterJoinStoreBuilder(name="waiting", key=String, value=String, right=String).build(0, backend)
        self.left, self.right = (Node(remembered=remembered, waiting=self.waiting, **sides) for _ in range(2))
        self.left.task = self.right.task
        self.right.task.config = {EMIT_INTERVAL: emit_interval_ms}
        self.right.task.now_ms = lambda: self.now  # type: ignore[method-assign]
        self.put: dict[bool, Callable[..., Any]] = {
            right: OuterJoinWindow(
                "join", "left" if right else "right", "waiting", 10, 10, 10, lambda a, b: f"{a}+{b}", False,
                right=right, unmatched=True,
            ).bind(self.right if right else self.left)
            for right in (False, True)
        }  # fmt: skip

    def restarted(self, *, committed: bool) -> Join:
        """Return the join of the next task: after a commit, or after the process was killed."""
        if committed:
            commit(self.waiting, self.backend)
        return Join(self.backend, self.right.restarted() if committed else None)

    @property
    def sent(self) -> list[tuple[Any, ...]]:
        """What both sides sent."""
        return [*self.left.forwarded, *self.right.forwarded]


def test_late_record_is_late_after_a_restart() -> None:
    """It is sent at once, as without the restart, since stream time is committed with the offsets."""
    join = Join(MemoryBackend())
    join.put[True]("x", "b", 100)
    again = join.restarted(committed=True)
    again.put[False]("k", "late", 50)
    assert again.sent == [("k", "late+None", 50)]


def test_waiting_records_are_sent_after_a_restart_once() -> None:
    """Records of the last commit still wait after a crash; later ones are read from the input again."""
    join = Join(MemoryBackend())
    join.put[False]("k", "a", 100)
    again = join.restarted(committed=True)
    again.put[True]("x", "uncommitted", 121)
    assert again.sent == [("k", "a+None", 100)]
    killed = Join(again.backend, join.right.restarted())
    killed.put[True]("x", "b", 121)
    assert killed.sent == [("k", "a+None", 100)]
    last = killed.restarted(committed=True)
    last.put[True]("y", "c", 130)
    assert last.sent == []
    last.put[True]("y", "c", 142)
    assert last.sent == [("x", "None+b", 121)]


def test_records_do_not_wait_for_a_clock_that_is_set_back() -> None:
    """A clock that was an hour ahead must not hold them back for an hour."""
    join = Join(MemoryBackend(), emit_interval_ms=1000)
    join.put[False]("k", "a", 100)
    join.put[True]("x", "b", 200)
    join.now -= 3_600_000
    join.put[False]("y", "c", 300)
    assert join.sent == [("x", "None+b", 200), ("k", "a+None", 100)]
