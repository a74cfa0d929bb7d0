"""The newest events of a worker's tasks with their instructions, for error messages and replays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from .events import Event
from .instructions import Instruction

__all__ = ("Story", "replay")

_LENGTH = 2_000


class Story:
    """The newest events, each with its instructions.

    Args:
        length: the number of events to keep.
    """

    def __init__(self, length: int = _LENGTH) -> None:
        self._steps: deque[tuple[Event, tuple[Instruction, ...]]] = deque(maxlen=length)

    def add(self, event: Event, instructions: Iterable[Instruction]) -> None:
        """Record one step."""
        self._steps.append((event, tuple(instructions)))

    def __iter__(self) -> Iterator[tuple[Event, tuple[Instruction, ...]]]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def text(self, last: int = 20) -> str:
        """Return the last steps, one line each."""
        steps = list(self._steps)[-last:]
        return "\n".join(
            f"{event} -> {', '.join(map(str, instructions)) or 'nothing'}" for event, instructions in steps
        )


def replay(story: Story, handle: Callable[[Event], Iterable[Instruction]]) -> None:
    """Replay a whole story, and compare the instructions.

    Args:
        story: recorded from the start of a state machine.
        handle: the method of a new state machine that was created with the same arguments.

    Raises:
        AssertionError: the instructions differ.
    """
    for number, (event, recorded) in enumerate(story):
        again = tuple(handle(event))
        assert again == recorded, f"step {number}, {event}: recorded {recorded}, replayed {again}"
