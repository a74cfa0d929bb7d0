"""Notices where a case comes to a difference that is meant and that only a run can tell; see `rules.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from millpond.dsl.operators.table_joins.foreign_key.resubscribing import Resubscription
from millpond.state import SessionStore

__all__ = ("Noticed", "noticing")


class Noticed:
    """Whether the run has come to such a difference."""

    def __init__(self) -> None:
        self.found = False


@contextmanager
def noticing(case: dict[str, Any]) -> Iterator[Noticed]:
    """Run the block, and notice the differences that only a run can tell.

    They are outdated answers of joins (OUTDATED_ANSWERS), closed sessions (CLOSED_SESSIONS), and records at the
    millisecond in which a session closes (MOMENTS_OF_CLOSING), whose times operators may have made.
    """
    noticed = Noticed()
    once_more, find = Resubscription.once_more, SessionStore.find
    windows = [step["windows"] for step in case["steps"] if step.get("windows", {}).get("type") == "session"]
    reach = 2 * max((each["gap"] for each in windows), default=0)
    times: defaultdict[int, set[int]] = defaultdict(set)

    def noted_once_more(*given: Any) -> Any:
        noticed.found = True
        return once_more(*given)

    def noted_find(store: Any, raw_key: bytes, earliest_end: int, latest_start: int) -> Any:
        found = find(store, raw_key, earliest_end, latest_start)
        # A record looks for sessions from its time less the gap to its time and the gap; each time ends a session.
        time, gap = (earliest_end + latest_start) // 2, (latest_start - earliest_end) // 2
        seen = times[id(store)]
        seen.add(time)
        closing = {each["gap"] + each["grace"] for each in windows if each["gap"] == gap}
        if any(time - after in seen or time + after in seen for after in closing):
            noticed.found = True
        if len(find(store, raw_key, min(earliest_end, latest_start - reach), latest_start)) > len(found):
            noticed.found = True
        return found

    with ExitStack() as stack:
        stack.enter_context(patch.object(Resubscription, "once_more", noted_once_more))
        stack.enter_context(patch.object(SessionStore, "find", noted_find))
        yield noticed
