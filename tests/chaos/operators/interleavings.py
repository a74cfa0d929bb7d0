"""The check of results that depend on how two inputs of a task interleave: those of one interleaving are right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.support.kafka import Row

__all__ = ("INTERLEAVED", "wrong_interleaving")

Text = str | None
_TABLES = {"table-inner": (False, False), "table-left": (True, False), "table-outer": (True, True)}
"""Whether there are results without a row of the second table, and of the first one."""
_VALID = {"stream-table": "table", "stream-table-left": "table", "stream-versioned": "versions"}
INTERLEAVED = (*_TABLES, *_VALID, "cogroup")
"""The outputs that are checked here."""
_SHOWN = 3


def wrong_interleaving(name: str, rows: Iterable[Row], inputs: Mapping[str, Sequence[Row]]) -> Iterable[str]:
    """Return the keys whose results are those of no interleaving."""
    found = _by_key(rows)
    if name in _TABLES:
        one, two = _by_key(inputs["table"]), _by_key(inputs["other"])
        check: Callable[[list[Row], list[Row], list[Row]], str | None] = _TablesOf(name)
    elif name in _VALID:
        one, two = _by_key(inputs["left"]), _by_key(inputs[_VALID[name]])
        check = _StreamOf(name)
    else:
        one, two = _by_key(inputs["left"]), _by_key(inputs["right"])
        check = _cogrouped
    for key in sorted({*one, *two, *found}):
        wrong = check(found.get(key, []), one.get(key, []), two.get(key, []))
        if wrong is not None:
            yield f"{key!r}: {wrong}"


class _TablesOf:
    """Joins of two tables: each change of a table has at most one result, by the rows that are there then."""

    def __init__(self, name: str) -> None:
        self._without_second, self._without_first = _TABLES[name]

    def __call__(self, found: list[Row], one: list[Row], two: list[Row]) -> str | None:
        first = [None, *(_text(row) for row in one)]
        second = [None, *(_text(row) for row in two)]
        places = self._silently({(0, 0)}, first, second)
        for number, row in enumerate(found):
            value = _text(row)
            places = self._silently(
                {
                    after
                    for place in places
                    for after in _steps(place, first, second)
                    if value in self._results(place, after, first, second)
                },
                first,
                second,
            )
            if not places:
                return f"record {number}, {_shown(found, number)}, follows from no change of the tables"
        if (len(one), len(two)) not in places:
            return (
                f"after its {len(found)} records, changes of the tables have had no result; it ends with {found[-1:]}"
            )
        return None

    def _silently(
        self, places: set[tuple[int, int]], first: Sequence[Text], second: Sequence[Text]
    ) -> set[tuple[int, int]]:
        """Add the places that are reached by changes without a result."""
        open_ = list(places)
        while open_:
            place = open_.pop()
            for after in _steps(place, first, second):
                if after not in places and _SILENT in self._results(place, after, first, second):
                    places.add(after)
                    open_.append(after)
        return places

    def _results(
        self, before: tuple[int, int], after: tuple[int, int], first: Sequence[Text], second: Sequence[Text]
    ) -> tuple[object, ...]:
        one, two = first[after[0]], second[after[1]]
        of_first = after[0] > before[0]
        partner = two if of_first else one
        needed = not (self._without_second if of_first else self._without_first)
        if partner is None and needed:
            return (_SILENT,)
        if one is None and two is None:
            # The deletion of a row that does not exist has no result; `other` does not send its old rows on.
            if of_first:
                return (_SILENT,) if first[before[0]] is None else (None,)
            return (_SILENT, None)
        if (one is None and not self._without_first) or (two is None and not self._without_second):
            return (None,)
        return (f"{one or 'null'}/{'-' if two is None else two}",)


_SILENT = object()


def _steps(place: tuple[int, int], first: Sequence[Text], second: Sequence[Text]) -> Iterable[tuple[int, int]]:
    one, two = place
    if one + 1 < len(first):
        yield one + 1, two
    if two + 1 < len(second):
        yield one, two + 1


class _StreamOf:
    """Joins of a stream with a table: one result for each record, with a row that is never older than the last one."""

    def __init__(self, name: str) -> None:
        self._all = name == "stream-table-left"
        self._by_time = name == "stream-versioned"

    def __call__(self, found: list[Row], one: list[Row], two: list[Row]) -> str | None:
        changes = 0
        results = iter(found)
        result = next(results, None)
        for record in one:
            value = _text(record)
            row: Text = None
            if result is not None and (_text(result) or "").split("/")[0] == value:
                row = (_text(result) or "").split("/")[1]
                row = None if row == "-" else row
                if result.timestamp != record.timestamp:
                    return f"{_text(result)} has the time {result.timestamp} instead of {record.timestamp}"
                result = next(results, None)
            elif self._all:
                return f"{value} has no result, or not in its order; the next result is {result}"
            changes_then = next(
                (number for number in range(changes, len(two) + 1) if self._valid(two[:number], record) == row), None
            )
            if changes_then is None:
                return f"{value} was joined with {row}, which was not valid after {changes} of {len(two)} changes"
            changes = changes_then
        return None if result is None else f"{result} belongs to no record, or is there twice"

    def _valid(self, changes: Sequence[Row], record: Row) -> Text:
        if not self._by_time:
            return _text(changes[-1]) if changes else None
        newest = max((each for each in changes if each.timestamp <= record.timestamp), key=_time, default=None)
        if newest is None:
            return None
        return _text([each for each in changes if each.timestamp == newest.timestamp][-1])


def _cogrouped(found: list[Row], one: list[Row], two: list[Row]) -> str | None:
    """Check that each record of both inputs was added once, in the order of its input."""
    first, second, total = [_text(row) or "" for row in one], [(_text(row) or "").upper() for row in two], ""
    for number, row in enumerate(found):
        for queue in (first, second):
            if queue and (after := f"{total}{queue[0]}"[-12:]) == _text(row):
                total = after
                queue.pop(0)
                break
        else:
            return f"record {number}, {_shown(found, number)}, adds neither {first[:1]} nor {second[:1]}"
    return (
        f"{len(first) + len(second)} records are not in it, such as {[*first, *second][0]}" if first or second else None
    )


def _by_key(rows: Iterable[Row]) -> dict[bytes, list[Row]]:
    found: dict[bytes, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.key or b""].append(row)
    return found


def _text(row: Row) -> Text:
    return None if row.value is None else row.value.decode()


def _time(row: Row) -> int:
    return row.timestamp


def _shown(found: Sequence[Row], number: int) -> str:
    return " after ".join(str(_text(row)) for row in reversed(found[max(0, number - _SHOWN) : number + 1]))
