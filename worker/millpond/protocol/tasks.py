"""Task ids as text."""

from __future__ import annotations

from millpond.topology import TaskId

__all__ = ("parse_task",)


def parse_task(text: str) -> TaskId:
    """The task id that `str(TaskId)` wrote: ``<sub-topology>_<partition>``.

    Raises:
        ValueError: it is none.
    """
    subtopology, _, partition = text.partition("_")
    if not (subtopology.isascii() and subtopology.isdecimal() and partition.isascii() and partition.isdecimal()):
        raise ValueError(f"'{text}' is no task id: those look like 0_3, sub-topology and partition.")
    return TaskId(int(subtopology), int(partition))
