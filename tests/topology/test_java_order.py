"""The emulated sets have the iteration order of Java's."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millpond.topology.describing.java_order import TreeSet, hash_order


@given(st.lists(st.integers()))
def test_tree_set_with_stable_order_is_sorted(items: list[int]) -> None:
    """As long as the order does not change, iteration is sorted and duplicates are gone."""
    tree: TreeSet[int] = TreeSet(lambda one, other: one - other)
    for item in items:
        tree.add(item)
    assert list(tree) == sorted(set(items))
    assert len(tree) == len(set(items))


@given(st.lists(st.integers(), min_size=1, max_size=300))
def test_a_tree_set_stays_balanced(items: list[int]) -> None:
    """No path is longer than in a red-black tree: after a change of order, places depend on the shape."""
    tree: TreeSet[int] = TreeSet(lambda one, other: one - other)
    for item in items:
        tree.add(item)

    def check(entry: Any) -> int:
        if entry is None:
            return 1
        left, right = entry.left, entry.right
        assert not (entry.red and any(child is not None and child.red for child in (left, right)))
        assert check(left) == check(right)
        return check(left) + (not entry.red)

    assert tree._root is not None
    assert not tree._root.red
    check(tree._root)


@given(st.lists(st.text(max_size=8)))
def test_hash_order_is_a_permutation_of_the_distinct_names(names: list[str]) -> None:
    """No item is lost or doubled, in whatever order the set was filled."""
    for copied in (False, True):
        assert sorted(hash_order(names, copied=copied)) == sorted(set(names))


def test_hash_order_of_known_sets() -> None:
    """The order is that of a JVM; twelve copied names get a larger table than twelve added ones."""
    topics = ["orders", "payments", "clicks", "views", "returns", "a", "b"]
    assert hash_order(topics) == ["a", "b", "payments", "clicks", "orders", "returns", "views"]
    twelve = [f"store-{number * 37}" for number in range(12)]
    assert hash_order(twelve) != hash_order(twelve, copied=True)
