"""The stores of a worker share the memory of the row cache: only the largest ones give way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.serdes import Long, String
from millpond.state import KeyValueStoreBuilder, MemoryBackend, WindowStoreBuilder
from millpond.state.stores.row_cache import RowCache, fair_share


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(0, 10_000))
def test_shares_use_the_limit_and_no_more(sizes: list[int], limit: int) -> None:
    if sum(sizes) <= limit:
        return
    share = fair_share(sizes, limit)
    assert sum(min(size, share) for size in sizes) <= limit
    assert sum(min(size, share + 1) for size in sizes) > limit, "a larger share exceeds it"


@pytest.mark.parametrize(
    ("sizes", "limit", "share"), [([100, 100], 100, 50), ([10, 500, 500], 410, 200), ([10, 20, 500], 130, 100)]
)
def test_a_small_store_leaves_its_part_to_the_others(sizes: list[int], limit: int, share: int) -> None:
    assert fair_share(sizes, limit) == share


def filled(name: str, count: int) -> object:
    """Return a key-value store with `count` committed rows."""
    store = KeyValueStoreBuilder(name=name, key=String, value=Long).build(0, MemoryBackend(), None)
    for number in range(count):
        store.put(f"{number:08}", number)
    commit(store)
    return store


def commit(store: object) -> None:
    store.flush([])
    backend = store._backend
    backend.write([(store.name, 0, store.seal())], {(store.name, 0): (None, store.metadata())})
    store.committed()


def test_within_the_limit_nothing_is_evicted_however_uneven_the_stores_are() -> None:
    large, small = filled("large", 2000), filled("small", 10)
    before = large.cache_bytes(), small.cache_bytes()
    RowCache(sum(before)).shrink([large, small], [])
    assert (large.cache_bytes(), small.cache_bytes()) == before


def test_above_the_limit_the_largest_stores_give_way() -> None:
    large, middle, small = filled("large", 4000), filled("middle", 1000), filled("small", 10)
    before = middle.cache_bytes(), small.cache_bytes()
    limit = large.cache_bytes() // 2 + sum(before)
    RowCache(limit).shrink([large, middle, small], [large])
    assert (middle.cache_bytes(), small.cache_bytes()) == before
    left = large.cache_bytes() + sum(before)
    assert limit * 0.9 < left <= limit
    assert large.get("00000000") == 0, "an evicted row is read again"


def test_only_changed_stores_are_measured_and_closed_ones_do_not_count() -> None:
    one, other = Measured(600), Measured(600)
    cache = RowCache(1000)
    cache.shrink([one], [one])
    cache.shrink([one, other], [other])
    assert (one.measured, other.measured) == (1, 1)
    assert [one.size, other.size] == [469, 469]
    one.size = 900
    cache.shrink([one, other], [one])
    assert [one.size, other.size] == [469, 469], "the size of the other one is known"
    assert (one.measured, other.measured) == (2, 1)
    one.size = 990
    cache.shrink([one], [one])
    assert one.size == 990, "a closed store takes nothing"


class Measured:
    """A store that counts how often it is measured."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.measured = 0

    def cache_bytes(self) -> int:
        self.measured += 1
        return self.size

    def shrink(self, limit: int) -> None:
        self.size = min(self.size, limit)


def test_writes_that_are_not_committed_stay() -> None:
    store = filled("one", 100)
    for number in range(100, 200):
        store.put(f"{number:08}", number)
    store.flush([])
    sealed = store.seal()
    for number in range(200, 300):
        store.put(f"{number:08}", number)
    RowCache(0).shrink([store], [store])
    assert [store.get(f"{number:08}") for number in (100, 199, 200, 299)] == [100, 199, 200, 299]
    assert len(sealed) == 100


def test_rows_of_a_join_that_are_sealed_stay() -> None:
    """A commit that is not complete yet has them: the backend does not."""
    backend = MemoryBackend()
    builder = WindowStoreBuilder(
        name="one", key=String, value=String, retention_ms=1000, window_size_ms=500, retain_duplicates=True
    )
    store = builder.build(0, backend, None)
    store.attach(_Context())
    for time in range(300):
        store.append(b"key", "key", f"value {time}", time, time)
    store.flush([])
    store.seal()
    RowCache(0).shrink([store], [store])
    assert [row[0] for row in store.matches(b"key", 0, 299)] == list(range(300))


class _Context:
    headers = None
    timestamp = 0
    message = None
    origin = None

    def now_ms(self) -> int:
        return 0
