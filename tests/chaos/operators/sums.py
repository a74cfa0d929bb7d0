"""The check of results of which only sums are determined, or the last record of each key, or each record by itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.chaos.operators.application import WINDOW_MS
from tests.chaos.operators.generating import FLUSH
from tests.support.kafka import Row

__all__ = ("SUMMED", "wrong_sums")

Inputs = Mapping[str, Sequence[Row]]


def _rekeyed(rows: Iterable[Row], inputs: Inputs) -> Iterable[str]:
    """Check that each record of `left` was added once to the sum of its letter."""
    wanted: dict[bytes, list[int]] = defaultdict(list)
    for row in inputs["left"]:
        wanted[_value(row)[:1]].append(_digit(row))
    yield from _added(rows, wanted)


def _cogroup_of_two(rows: Iterable[Row], inputs: Inputs) -> Iterable[str]:
    """Check that each record of both streams was added once to its window."""
    wanted: dict[bytes, list[int]] = defaultdict(list)
    for row in (*inputs["left"], *inputs["right"]):
        start = row.timestamp // WINDOW_MS * WINDOW_MS
        wanted[(row.key or b"") + start.to_bytes(8, "big")].append(_digit(row))
    yield from _added(rows, wanted)


def _added(rows: Iterable[Row], wanted: Mapping[bytes, list[int]]) -> Iterable[str]:
    """Check the steps of sums, whose order is not determined."""
    steps: dict[bytes, list[int]] = defaultdict(list)
    sums: dict[bytes, int] = defaultdict(int)
    for row in rows:
        key, value = row.key or b"", int(_value(row))
        steps[key].append(value - sums[key])
        sums[key] = value
    for key in sorted({*steps, *wanted}):
        mine, theirs = Counter(steps.get(key, [])), Counter(wanted.get(key, []))
        if mine != theirs:
            yield f"{key!r} has too many steps {dict(mine - theirs)}, and lacks {dict(theirs - mine)}"


def _cached(rows: Iterable[Row], inputs: Inputs) -> Iterable[str]:
    """Check that sums of a cached table only grow, up to the expected ones."""
    wanted: dict[bytes, int] = defaultdict(int)
    for row in inputs["left"]:
        wanted[row.key or b""] += _digit(row)
    last: dict[bytes, int] = {}
    for row in rows:
        key, value = row.key or b"", int(_value(row))
        if value < last.get(key, 0):
            yield f"{key!r} has {value} after {last[key]}"
        last[key] = value
    yield from _different(last, wanted)


def _regrouped(rows: Iterable[Row], inputs: Inputs) -> Iterable[str]:
    """Check the last sum of each letter, and the number of changes."""
    table: dict[bytes, bytes | None] = {}
    changes: Counter[bytes] = Counter()
    for row in inputs["table"]:
        changes.update({value[:1] for value in (table.get(row.key or b""), row.value) if value is not None})
        table[row.key or b""] = row.value
    wanted = dict.fromkeys(changes, 0)
    for value in table.values():
        if value is not None:
            wanted[value[:1]] += int(value[-1:])
    found = list(rows)
    yield from _different({row.key or b"": int(_value(row)) for row in found}, wanted)
    yield from _different(Counter(row.key or b"" for row in found), changes, "changes ")


def _foreign(rows: Iterable[Row], inputs: Inputs, *, left_join: bool) -> Iterable[str]:
    """Check the last row of each key, and that every row is one of a record of each table."""
    table, other = ({row.key or b"": row.value for row in inputs[name]} for name in ("table", "other"))
    wanted: dict[bytes, bytes] = {}
    for key, value in table.items():
        partner = None if value is None else other.get(_partner(value))
        if value is not None and (partner is not None or left_join):
            wanted[key] = value + b"/" + (b"-" if partner is None else partner)
    last = {}
    values = {row.value for name in ("table", "other") for row in inputs[name]} | {b"-"}
    for row in rows:
        last[row.key or b""] = row.value
        if row.value is not None and not values.issuperset(row.value.split(b"/")):
            yield f"{row.key!r} has {row.value!r}, which is in no input"
    kept = {key: value for key, value in last.items() if value is not None}
    if not left_join:
        kept = {key: value for key, value in kept.items() if key in wanted or not _outrun(key, value, inputs["table"])}
    yield from _different(kept, wanted)


def _outrun(key: bytes, value: bytes, table: Iterable[Row]) -> bool:
    """Return whether an inner join may keep a result although the row of its key has no partner any more.

    In Kafka Streams, the answer that unsets a result is dropped if the row has changed again when it arrives, and a
    change without a partner has no answer unless it changes the foreign key. So it takes two changes of the row, or,
    when the partner was deleted, one that leaves the foreign key as it was.
    """
    *before, last = (row.value for row in table if row.key == key)
    joined = value.split(b"/")[0]
    if last is None or joined not in before:
        return False
    return joined in before[:-1] or _partner(joined) == _partner(last)


def _partner(value: bytes) -> bytes:
    """Return the foreign key of a row of `table`."""
    return b"k" + value[-1:]


def _foreign_inner(rows: Iterable[Row], inputs: Inputs) -> Iterable[str]:
    return _foreign(rows, inputs, left_join=False)


def _foreign_left(rows: Iterable[Row], inputs: Inputs) -> Iterable[str]:
    return _foreign(rows, inputs, left_join=True)


def _all_sent(rows: Iterable[Row], inputs: Inputs) -> Iterable[str]:
    """Check that timers sent each record once."""
    wanted = Counter((row.key, row.value) for row in inputs["left"])
    found = Counter((row.key, row.value) for row in rows)
    for each in sorted({*wanted, *found}, key=repr):
        closing = (each[0] or b"").startswith(FLUSH.encode())  # it may wait for the next timer
        if found[each] != wanted[each] and not (closing and not found[each]):
            yield f"{each} is there {found[each]} times instead of {wanted[each]}"


SUMMED: Mapping[str, Callable[[Iterable[Row], Inputs], Iterable[str]]] = {
    "rekeyed": _rekeyed,
    "cogroup-of-two": _cogroup_of_two,
    "cached": _cached,
    "regrouped": _regrouped,
    "foreign-inner": _foreign_inner,
    "foreign-left": _foreign_left,
    "by-wall-clock": _all_sent,
    "by-stream-time": _all_sent,
}
"""The outputs that are checked here."""


def wrong_sums(name: str, rows: Iterable[Row], inputs: Inputs) -> Iterable[str]:
    """Return what is wrong with an output."""
    return SUMMED[name](rows, inputs)


def _different(found: Mapping[bytes, object], wanted: Mapping[bytes, object], what: str = "") -> Iterable[str]:
    for key in sorted({*found, *wanted}):
        if found.get(key) != wanted.get(key):
            yield f"{what}{key!r} ends with {found.get(key)!r} instead of {wanted.get(key)!r}"


def _value(row: Row) -> bytes:
    return row.value or b"0"


def _digit(row: Row) -> int:
    return int(_value(row)[-1:])
