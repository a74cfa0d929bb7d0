"""Task ids as text."""

from __future__ import annotations

from millpond.topology import TaskId

__all__ = ("parse_task",)


def parse_task(text: str) -> TaskId:
    """Parse a task id as `str(TaskId)` writes it: ``<sub-topology>_<partition>``.

    Raises:
        ValueError: the text is not a task id.
    """
    subtopology, _, partition = text.partition("_")
    if not (subtopology.isascii() and subtopology.isdecimal() and partition.isascii() and partition.isdecimal()):
        raise ValueError(f"'{text}' is not a task id: write sub-topology and partition, as in 0_3.")
    return TaskId(int(subtopology), int(partition))
