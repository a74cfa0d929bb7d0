"""The expected results of joins of streams, and of joins with a table that wait: each pair once, each lone record once.

They do not depend on how the inputs interleave, since no record is late.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tests.chaos.operators.generating import FLUSH
from tests.support.kafka import Row

__all__ = ("PAIRED", "wrong_pairs")

_BEFORE_MS = {"stream-inner": 5_000, "stream-left": 3_000, "stream-outer": 5_000}
_AFTER_MS = 5_000
_IN_TIME = {"joined-in-time": False, "left-joined-in-time": True}
PAIRED = (*_BEFORE_MS, *_IN_TIME)
"""The outputs that are checked here."""

Result = tuple[str, str, int]
"""Key, value and timestamp."""


def wrong_pairs(name: str, rows: Iterable[Row], inputs: Mapping[str, Sequence[Row]]) -> Iterable[str]:
    """Return results of a join that are missing, or there too often."""
    wanted = Counter(
        _in_time(inputs["left"], inputs["versions"], left_join=_IN_TIME[name])
        if name in _IN_TIME
        else _streams(name, inputs["left"], inputs["right"])
    )
    found = Counter((_text(row.key), _text(row.value), row.timestamp) for row in rows)
    for result in sorted({*wanted, *found}):
        if wanted[result] != found[result]:
            yield f"{result} is there {found[result]} times instead of {wanted[result]}"


def _streams(name: str, left: Iterable[Row], right: Iterable[Row]) -> Iterable[Result]:
    before, others = _BEFORE_MS[name], _by_time(right)
    matched = set()
    for row in left:
        key, mine = _text(row.key), others[row.key or b""]
        first = bisect_left(mine, (row.timestamp - before,))
        last = bisect_right(mine, (row.timestamp + _AFTER_MS, "~"))
        for timestamp, value in mine[first:last]:
            matched.add(value)
            yield key, f"{_text(row.value)}/{value}", max(row.timestamp, timestamp)
        if first == last and name != "stream-inner" and not key.startswith(FLUSH):
            yield key, f"{_text(row.value)}/-", row.timestamp
    if name == "stream-outer":
        for row in right:
            key, value = _text(row.key), _text(row.value)
            if value not in matched and not key.startswith(FLUSH):
                yield key, f"null/{value}", row.timestamp


def _in_time(left: Iterable[Row], versions: Iterable[Row], *, left_join: bool) -> Iterable[Result]:
    """Yield one result for each record whose grace is over, with the value that was valid at its time."""
    history: dict[bytes, dict[int, str | None]] = defaultdict(dict)
    for row in versions:
        history[row.key or b""][row.timestamp] = None if row.value is None else _text(row.value)
    times = {key: sorted(values) for key, values in history.items()}
    for row in left:
        key = row.key or b""
        at = bisect_right(times.get(key, []), row.timestamp)
        value = history[key][times[key][at - 1]] if at else None
        if not key.startswith(FLUSH.encode()) and (left_join or value is not None):
            yield _text(row.key), f"{_text(row.value)}/{'-' if value is None else value}", row.timestamp


def _by_time(rows: Iterable[Row]) -> dict[bytes, list[tuple[int, str]]]:
    found: dict[bytes, list[tuple[int, str]]] = defaultdict(list)
    for row in rows:
        found[row.key or b""].append((row.timestamp, _text(row.value)))
    for values in found.values():
        values.sort()
    return found


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode()
