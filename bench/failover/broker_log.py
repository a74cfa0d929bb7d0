"""What the broker's log tells of a run: deaths of group members, and times in which the broker itself stood still."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

_SLOW: Final = re.compile(r"Exceptionally slow controller event \S+ took (\d+) ms")


def parse_death(line: str, group: str) -> int | None:
    """When `group`'s coordinator found one of its members dead, epoch microseconds, if that is what a line says.

    A line begins with a date and a time in the machine's time zone: `2026-11-21 06:34:09,082 …`.
    """
    if not line.rstrip().endswith(f" in group {group} has failed, removing it from the group."):
        return None
    return int(datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp() * 1e6)


def parse_stall(line: str) -> int | None:
    """For how many milliseconds the broker could not write its metadata log, if a line says so.

    A broker on a disk that others keep busy stands still then, and every task with it.
    """
    found = _SLOW.search(line)
    return None if found is None else int(found[1])
