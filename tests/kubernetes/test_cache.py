"""The cache: the newest state wins, in whatever order states arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millpond_operator.kubernetes import Cache, Key
from millpond_operator.kubernetes.kinds import CONFIG_MAP, POD, SERVICE
from tests.kubernetes.support import an_object


def names(cache: Cache) -> list[str]:
    return sorted(key.name for key in cache.keys(POD))


def test_the_newer_state_wins() -> None:
    """A newer state is new; the same state again and older ones are not."""
    cache = Cache()
    assert cache.put(POD, an_object(POD, "p", 9))
    assert cache.put(POD, an_object(POD, "p", 10, spec={"x": 1}))
    assert not cache.put(POD, an_object(POD, "p", 10))
    assert not cache.put(POD, an_object(POD, "p", 9))
    found = cache.get(POD, "ns", "p")
    assert found is not None
    assert found["spec"] == {"x": 1}
    assert cache.version(POD, "ns", "p") == 10


def test_kinds_and_namespaces_are_separate() -> None:
    """Objects with one name in several kinds and namespaces are different objects."""
    cache = Cache()
    cache.put(POD, an_object(POD, "p", 1))
    cache.put(POD, an_object(POD, "p", 2, namespace="other"))
    cache.put(SERVICE, an_object(SERVICE, "p", 3))
    assert [cache.version(POD, "ns", "p"), cache.version(POD, "other", "p"), cache.version(SERVICE, "ns", "p")] == [
        1,
        2,
        3,
    ]
    assert cache.get(CONFIG_MAP, "ns", "p") is None
    assert (cache.count(POD), cache.count(SERVICE), cache.count(CONFIG_MAP)) == (2, 1, 0)


def test_deleted_object_stays_deleted() -> None:
    """A state from before a deletion does not restore the object; a new object with that name is stored."""
    cache = Cache()
    cache.put(POD, an_object(POD, "p", 5))
    assert cache.remove(POD, an_object(POD, "p", 7))
    assert cache.get(POD, "ns", "p") is None
    assert cache.version(POD, "ns", "p") == 7
    assert not cache.put(POD, an_object(POD, "p", 6))
    assert not cache.remove(POD, an_object(POD, "p", 7))
    assert cache.put(POD, an_object(POD, "p", 8))
    assert not cache.remove(POD, an_object(POD, "p", 7))
    assert names(cache) == ["p"]


def test_a_deletion_may_come_without_a_version() -> None:
    """An object that was found missing is removed in its known state, not in a newer one."""
    cache = Cache()
    cache.put(POD, an_object(POD, "p", 5))
    assert cache.remove(POD, Key("ns", "p"))
    assert not cache.put(POD, an_object(POD, "p", 5))
    assert cache.put(POD, an_object(POD, "p", 6))
    assert not cache.remove(POD, Key("ns", "unknown"))


def test_objects_are_found_by_their_application() -> None:
    """The application's label is an index, which follows changes and deletions."""
    cache = Cache()
    cache.put(POD, an_object(POD, "b", 2, app="a"))
    cache.put(POD, an_object(POD, "a", 1, app="a"))
    cache.put(POD, an_object(POD, "c", 3, app="a", namespace="other"))
    cache.put(POD, an_object(POD, "d", 4))
    assert [each["metadata"]["name"] for each in cache.of_app(POD, "ns", "a")] == ["a", "b"]
    cache.put(POD, an_object(POD, "b", 5, app="z"))
    cache.remove(POD, an_object(POD, "a", 6, app="a"))
    assert cache.of_app(POD, "ns", "a") == []
    assert [each["metadata"]["name"] for each in cache.of_app(POD, "ns", "z")] == ["b"]
    assert cache.app_of(POD, Key("ns", "b")) == "z"


def test_returned_objects_are_copies() -> None:
    """Changing a returned object does not change the cache."""
    cache = Cache()
    cache.put(POD, an_object(POD, "p", 1, spec={"x": 1}))
    found = cache.get(POD, "ns", "p")
    assert found is not None
    found["spec"]["x"] = 2
    again = cache.get(POD, "ns", "p")
    assert again is not None
    assert again["spec"] == {"x": 1}


def test_managed_fields_are_dropped() -> None:
    """Fields that only server-side apply needs take no memory."""
    cache = Cache()
    pod = an_object(POD, "p", 1)
    pod["metadata"]["managedFields"] = [{"manager": "somebody"}]
    cache.put(POD, pod)
    found = cache.get(POD, "ns", "p")
    assert found is not None
    assert "managedFields" not in found["metadata"]


def test_a_list_adds_updates_and_removes() -> None:
    """After a list the cache equals the list, except for newer objects."""
    cache = Cache()
    cache.put(POD, an_object(POD, "old", 3))
    cache.put(POD, an_object(POD, "same", 4))
    cache.put(POD, an_object(POD, "missing", 5))
    cache.put(POD, an_object(POD, "newer", 25))
    news = cache.resynced(
        POD, [an_object(POD, "old", 11), an_object(POD, "same", 4), an_object(POD, "unknown", 12)], "20"
    )
    assert sorted(each["metadata"]["name"] for each in news) == ["missing", "old", "unknown"]
    assert names(cache) == ["newer", "old", "same", "unknown"]
    assert not cache.put(POD, an_object(POD, "missing", 19))


def test_list_of_one_namespace_leaves_others() -> None:
    """Objects of other namespaces stay."""
    cache = Cache()
    cache.put(POD, an_object(POD, "p", 1))
    cache.put(POD, an_object(POD, "p", 2, namespace="other"))
    cache.resynced(POD, [], "10", "ns")
    assert cache.keys(POD) == [Key("other", "p")]


def test_an_older_list_is_ignored() -> None:
    """A list from a stale replica neither restores deleted objects nor removes new ones."""
    cache = Cache()
    cache.resynced(POD, [an_object(POD, "there", 15)], "20")
    assert cache.resynced(POD, [an_object(POD, "gone", 3)], "10") == []
    assert names(cache) == ["there"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=12).flatmap(
        lambda history: st.tuples(st.just(history), st.lists(st.integers(0, len(history) - 1), max_size=40))
    )
)
def test_any_order_with_repetitions_ends_the_same(case: tuple[list[tuple[str, bool]], list[int]]) -> None:
    """However events are mixed and repeated, in the end the cache has the last state."""
    history, order = case
    cache = Cache()
    for index in [*order, *reversed(range(len(history)))]:
        name, there = history[index]
        if there:
            cache.put(POD, an_object(POD, name, index + 1))
        else:
            cache.remove(POD, an_object(POD, name, index + 1))
    last = dict(history)
    assert names(cache) == sorted(name for name, there in last.items() if there)
