"""The versions of a store at two offsets of its changelog are equal, whatever was swept, or the wrong one is found."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond import serdes
from millpond.inspection.comparing import Change, Difference, compare
from millpond.inspection.version_rows import VersionsOf, accepted_puts, live_rows
from millpond.snapshots.layouts import layout_of
from millpond.state import MemoryBackend, VersionedKeyValueStoreBuilder
from millpond.state.formats import partition_prefix
from tests.support import generated

_PREFIX = partition_prefix(0)
_KEYS = st.sampled_from([b"", b"\0", b"\0\0", bytes(8), bytes(9), b"a", b"a\0", b"a" + bytes(8), b"b"])
_PUTS = st.lists(
    st.tuples(_KEYS, st.one_of(st.none(), st.sampled_from([b"", b"1", b"2"])), st.integers(0, 300)), max_size=25
)


def _store(backend: Any, retention: int, interval: int) -> Any:
    return _builder(retention, interval).build(0, backend, None)


def _builder(retention: int, interval: int) -> VersionedKeyValueStoreBuilder[bytes, bytes]:
    return VersionedKeyValueStoreBuilder(
        name="s", key=serdes.Bytes, value=serdes.Bytes, history_retention_ms=retention, segment_interval_ms=interval
    )


def _rows(puts: list[Any], retention: int, interval: int, each: int) -> tuple[list[Any], int]:
    """Return the rows and the stream time after some puts, with a commit after so many."""
    backend = MemoryBackend()
    store = _store(backend, retention, interval)
    for at, (key, value, timestamp) in enumerate(puts, 1):
        store.put_raw(key, value, timestamp)
        if at % each == 0 or at == len(puts):
            store.flush([])
            backend.write([("s", 0, store.seal())], {("s", 0): (1, store.metadata())})
            store.committed()
    return list(backend.range("s", b"", None)), store.observed_stream_time


@settings(max_examples=generated.examples(300))
@given(
    puts=_PUTS,
    at=st.integers(0, 25),
    each=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    times=st.sampled_from([(0, 1), (7, 10), (50, 1), (100, 30)]),
)
@example(puts=[(b"\0", b"1", 5), (b"", b"1", 5), (bytes(9), b"2", 9)], at=1, each=(1, 1), times=(100, 30))
def test_right_versions_never_differ_and_a_wrong_one_is_found(
    puts: list[Any], at: int, each: tuple[int, int], times: tuple[int, int]
) -> None:
    """Also of keys that begin with another key, and of rows that are expired on one side only."""
    layout = layout_of(_builder(*times))
    older, observed = _rows(puts[:at], *times, each[0])
    newer, last = _rows(puts, *times, each[1])
    between = [
        Change(number, _PREFIX + key, value, timestamp) for number, (key, value, timestamp) in enumerate(puts[at:])
    ]
    accepted, reached = accepted_puts(between, layout, observed)
    assert reached == last
    expected = list(live_rows(older, accepted, layout, last))
    found = list(live_rows(newer, {}, layout, last))
    assert expected == found == sorted(found)
    if found:
        key, value = found[-1]
        wrong = compare(expected, found[:-1], undecided=VersionsOf(set()), expired=lambda _key: False, examples=9)
        assert wrong.examples == [Difference(key, value, None)]
        later = VersionsOf({key[:-8]})
        assert compare(expected, found[:-1], undecided=later, expired=lambda _key: False, examples=9).wrong == 0
