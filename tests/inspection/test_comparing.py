"""Rows at two offsets of a changelog are equal, or the keys that differ are named."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.inspection.comparing import Change, Difference, apply, compare, split_changes
from tests.support import generated

_keys = st.sampled_from([b"", b"a", b"a\0", b"b", b"c", b"\xff"])
_changes = st.lists(st.tuples(_keys, st.one_of(st.none(), st.sampled_from([b"", b"1", b"2"]))), max_size=30)


def replay(changes: list[Change], end: int) -> dict[bytes, bytes]:
    """Return the rows after the changes before an offset, by a plain loop."""
    rows: dict[bytes, bytes] = {}
    for offset, key, value, _ in changes:
        if offset < end:
            rows.pop(key, None)
            if value is not None:
                rows[key] = value
    return rows


def compacted(changes: list[Change], gone: list[bool]) -> list[Change]:
    """Return changes that compaction may leave: a change is removed only if a later one of its key exists."""
    return [
        each
        for number, each in enumerate(changes)
        if not (gone[number] and any(later.key == each.key for later in changes[number + 1 :]))
    ]


@settings(max_examples=generated.examples(300))
@given(data=st.data(), made=_changes)
def test_right_rows_never_differ_and_a_wrong_one_is_named(data: st.DataObject, made: list) -> None:
    """For any two offsets, and whatever compaction removed meanwhile."""
    changes = [Change(2 * number, *each) for number, each in enumerate(made)]
    gone = data.draw(st.lists(st.booleans(), min_size=len(made), max_size=len(made)))
    offsets = st.integers(0, 2 * len(made))
    lower, higher = sorted((data.draw(offsets), data.draw(offsets)))
    between, later = split_changes(compacted(changes, gone), lower, higher)
    expected = sorted(replay(changes, higher).items())
    continued = list(apply(sorted(replay(changes, lower).items()), between))

    def compared(found: list) -> tuple:
        result = compare(continued, found, undecided=later, expired=lambda _key: False, examples=9)
        return result, (result.differ, result.missing, result.extra)

    result, wrong = compared(expected)
    assert wrong == (0, 0, 0)
    assert (result.rows, result.examples) == (len(expected), [])
    if (settled := [key for key, _ in expected if key not in later]) != []:
        key = data.draw(st.sampled_from(settled))
        value = dict(expected)[key]
        result, wrong = compared([(each, b"9" if each == key else has) for each, has in expected])
        assert (wrong, result.examples) == ((1, 0, 0), [Difference(key, value, b"9")])
        result, wrong = compared([each for each in expected if each[0] != key])
        assert (wrong, result.examples) == ((0, 1, 0), [Difference(key, value, None)])
    if b"d" not in later:
        result, wrong = compared(sorted([*expected, (b"d", b"9")]))
        assert (wrong, result.examples) == ((0, 0, 1), [Difference(b"d", None, b"9")])


def test_expired_rows_count_and_are_not_compared() -> None:
    """One side may already have deleted them."""
    result = compare([], [(b"x", b"1")], undecided=(), expired=lambda key: key == b"x", examples=9)
    assert (result.rows, result.compared, result.wrong) == (1, 0, 0)


def test_number_of_examples_is_limited() -> None:
    """The counts are of all differences."""
    rows = [(bytes([number]), b"") for number in range(50)]
    result = compare([], rows, undecided=(), expired=lambda _key: False, examples=3)
    assert (result.extra, [each.key for each in result.examples]) == (50, [b"\0", b"\1", b"\2"])
