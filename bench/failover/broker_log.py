"""Facts from the broker's log: deaths of group members, and stalls of the broker itself."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from millpond.times import EPOCH

_SLOW: Final = re.compile(r"Exceptionally slow controller event \S+ took (\d+) ms")


def parse_death(line: str, group: str) -> int | None:
    """Return when `group`'s coordinator detected the death of a member, epoch microseconds; None for other lines.

    A line begins with a date and a time in the machine's time zone: `2026-11-21 06:34:09,082 …`.
    """
    if not line.rstrip().endswith(f" in group {group} has failed, removing it from the group."):
        return None
    return (datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").astimezone() - EPOCH) // timedelta(microseconds=1)


def parse_stall(line: str) -> int | None:
    """Return for how many milliseconds the broker could not write its metadata log; None for other lines.

    A broker on a busy disk stalls then, and so do all tasks.
    """
    found = _SLOW.search(line)
    return None if found is None else int(found[1])
