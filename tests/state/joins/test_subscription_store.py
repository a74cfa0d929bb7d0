"""The store of subscriptions of joins by a foreign key, against a plain model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.serdes import Bytes
from millpond.state.builders import SubscriptionStoreBuilder
from millpond.state.memory.backend import MemoryBackend

PREFIXES = (b"\0\0\0\1a", b"\0\0\0\1b", b"\0\0\0\2aa", b"\xff\xff")
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(PREFIXES), st.sampled_from((b"", b"1", b"\xff")), st.binary(max_size=2)),
    st.tuples(st.just("delete"), st.sampled_from(PREFIXES), st.sampled_from((b"", b"1", b"\xff")), st.just(None)),
    st.tuples(st.sampled_from(("flush", "seal", "committed", "revert")), st.none(), st.none(), st.none()),
)


@given(st.lists(STEPS, max_size=30))
def test_subscribers_are_those_of_a_plain_model_at_every_moment(steps: list[Any]) -> None:
    """Between staging, flush, seal and commit; after a revert, those of the last commit."""
    backend = MemoryBackend()
    store = SubscriptionStoreBuilder(name="fk", value=Bytes).build(3, backend, "fk-changelog")
    now: dict[bytes, bytes] = {}
    committed: dict[bytes, bytes] = {}
    sealed: dict[bytes, bytes] | None = None
    rows: Any = None
    for kind, prefix, key, value in steps:
        if kind in ("put", "delete"):
            store.subscribe(prefix, prefix + key, value, 5)
            if value is None:
                now.pop(prefix + key, None)
            else:
                now[prefix + key] = value
        elif kind == "flush":
            store.flush([])
        elif kind == "seal":
            store.flush([])
            rows, sealed = store.seal(), dict(now)
        elif kind == "committed" and sealed is not None:
            backend.write([("fk", 3, rows)])
            store.committed()
            committed, sealed = sealed, None
        elif kind == "revert":
            store.revert()
            now, sealed = dict(committed), None
        for each in PREFIXES:
            assert store.subscribers(each) == sorted(item for item in now.items() if item[0].startswith(each))


def test_reading_the_subscribers_of_a_key_costs_nothing_per_uncommitted_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the rows of the key are read, however many others wait for their commit."""
    backend = MemoryBackend()
    store = SubscriptionStoreBuilder(name="fk", value=Bytes).build(0, backend, "fk-changelog")
    for number in range(1000):
        first = b"\0\0\0\x04%04d" % number
        store.subscribe(first, first + b"k", b"v", 1)
    monkeypatch.setattr(store, "_uncommitted_rows", lambda: pytest.fail("it looked at all rows"))
    assert store.subscribers(b"\0\0\0\x040007") == [(b"\0\0\0\x040007k", b"v")]
