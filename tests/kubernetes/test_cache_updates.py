"""Updates of the cache by watches and lists."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millpond_operator.kubernetes import Cache
from millpond_operator.kubernetes.cache_updates import CacheUpdates
from millpond_operator.kubernetes.kinds import POD, STREAM_APP
from tests.kubernetes.support import an_object

PATIENCE = timedelta(seconds=60)


class Taken:
    """The updates, their notifications, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[tuple[str, str]] = []
        self.cache = Cache()
        self.updates = CacheUpdates(self.cache, lambda *app: self.told.append(app), lambda: self.now)

    def late(self) -> list[str]:
        return [each.key.name for each in self.updates.overdue(PATIENCE)]


@pytest.fixture
def taken() -> Taken:
    return Taken()


def test_change_enqueues_its_application(taken: Taken) -> None:
    """A StreamApp is its own application; an object of an application notifies it; other objects notify none."""
    taken.updates.event(STREAM_APP, "ADDED", an_object(STREAM_APP, "a", 1))
    taken.updates.event(POD, None, an_object(POD, "a-0", 2, app="a"))
    taken.updates.event(POD, "ADDED", an_object(POD, "other", 3))
    taken.updates.put_listed(POD, an_object(POD, "b-0", 4, app="b"))
    taken.updates.event(POD, "DELETED", an_object(POD, "a-0", 5, app="a"))
    taken.updates.removed_by_list(POD, an_object(POD, "c-0", 4, app="c"))
    assert taken.told == [("ns", name) for name in ("a", "a", "b", "a", "c")]


def test_known_state_enqueues_nothing(taken: Taken) -> None:
    """A known state, such as from the operator's own writes, notifies nobody."""
    taken.cache.put(POD, an_object(POD, "a-0", 7, app="a"))
    taken.updates.event(POD, "MODIFIED", an_object(POD, "a-0", 7, app="a"))
    taken.updates.event(POD, "MODIFIED", an_object(POD, "a-0", 6, app="a"))
    taken.updates.put_listed(POD, an_object(POD, "a-0", 7, app="a"))
    assert taken.told == []


def test_change_of_owner_enqueues_both_applications(taken: Taken) -> None:
    """When the label changes, the former application is notified too."""
    taken.updates.event(POD, "ADDED", an_object(POD, "p", 1, app="a"))
    taken.updates.event(POD, "MODIFIED", an_object(POD, "p", 2, app="b"))
    assert sorted(taken.told[1:]) == [("ns", "a"), ("ns", "b")]


def test_a_watch_that_misses_what_a_list_shows_is_late(taken: Taken) -> None:
    """Not at once, but after its patience, counted from the first list that showed it."""
    taken.updates.put_listed(POD, an_object(POD, "p", 5))
    taken.now = 60.0
    assert taken.late() == []
    taken.updates.put_listed(POD, an_object(POD, "p", 6))
    taken.now = 60.1
    assert taken.late() == ["p"]
    taken.updates.reset()
    assert taken.late() == []


def test_a_watch_that_delivers_is_not_late(taken: Taken) -> None:
    """Delivering it before or after the list, or something newer, is enough; something older is not."""
    taken.updates.event(POD, "ADDED", an_object(POD, "before", 1))
    for name in ("before", "after", "newer", "older", "deleted"):
        taken.updates.put_listed(POD, an_object(POD, name, 5 if name != "before" else 1))
    taken.updates.event(POD, "MODIFIED", an_object(POD, "after", 5))
    taken.updates.event(POD, "MODIFIED", an_object(POD, "newer", 9))
    taken.updates.event(POD, "MODIFIED", an_object(POD, "older", 4))
    taken.updates.event(POD, "DELETED", an_object(POD, "deleted", 6))
    taken.now = 100.0
    assert taken.late() == ["older"]


def test_nothing_is_expected_of_a_watch_before_it_begins(taken: Taken) -> None:
    """A watch does not have to deliver what the first lists show."""
    taken.updates.put_listed(POD, an_object(POD, "p", 5), watched=False)
    taken.now = 100.0
    assert taken.late() == []


def test_deleted_objects_are_not_expected(taken: Taken) -> None:
    """A restarted watch does not report earlier deletions."""
    taken.updates.put_listed(POD, an_object(POD, "p", 5))
    taken.updates.put_listed(POD, an_object(POD, "q", 6))
    taken.cache.prune(POD, set(), 7, None)
    taken.updates.removed_by_list(POD, an_object(POD, "q", 6))
    taken.now = 100.0
    assert taken.late() == []
