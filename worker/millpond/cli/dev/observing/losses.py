"""How often workers of a session were lost although their processes exist, and the likely cause of a repeated loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from .input_ends import Partition

__all__ = ("RepeatedLosses", "is_stopped")

_MAX_NAMED = 3


def is_stopped(pid: int) -> bool:
    """Return whether a signal such as SIGSTOP has stopped a process; False where that is not known."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
            in "Tt"
        )
    except (OSError, IndexError):
        return False


class RepeatedLosses:
    """The losses of a session's workers and of their tasks.

    Args:
        session_timeout_s: the time without a heartbeat after which a worker is lost, in seconds.
    """

    def __init__(self, session_timeout_s: float) -> None:
        self._session_timeout_s = session_timeout_s
        self._workers: Counter[str] = Counter()
        self._tasks: Counter[str] = Counter()

    def note(self, worker: str, tasks: Collection[str]) -> int:
        """Count a loss; return how often this worker was lost so far."""
        self._workers[worker] += 1
        self._tasks.update(tasks)
        return self._workers[worker]

    def cause(self, worker: str, tasks: Collection[str], positions: Mapping[Partition, int]) -> str:
        """Return the likely cause and its cure, as a sentence; empty if neither worker nor tasks were lost before.

        Args:
            worker: the worker that is lost.
            tasks: its tasks.
            positions: the offsets of the next records of its tasks, as far as they are known, without those of
                partitions that have no further record.
        """
        if self._workers[worker] < 2 and all(self._tasks[task] < 2 for task in tasks):
            return ""
        named = [
            f"{topic}-{partition} from offset {offset}" for (topic, partition), offset in sorted(positions.items())
        ]
        where = (
            f"look at the next records of {', '.join(named[:_MAX_NAMED])}"
            if named
            else "look at the next records of its tasks"
        )
        return (
            "The likely cause is a function that holds the GIL for longer than the session timeout of "
            f"{self._session_timeout_s:g} s, such as a regular expression that backtracks or a call into C: {where}, "
            "and give that function a limit of time."
        )
