from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.protocol import Epoch, Mark, Member, SubtopologySummary, TopologySummary, View
from millpond_operator.resources import InvalidStreamAssignment, stream_assignment, view_of
from tests.resources.examples import stream_app

_workers = st.sampled_from([f"delays-{number}" for number in range(4)])
_tasks = st.sampled_from([f"{part}_{partition}" for part in range(2) for partition in range(3)])
_copies = st.dictionaries(_tasks, st.lists(_workers, min_size=1, unique=True).map(sorted).map(tuple))
_members = st.builds(
    Member,
    worker=_workers,
    address=st.none() | st.just("http://a:1"),
    incarnation=st.sampled_from(["", "i1"]),
    alive=st.booleans(),
    draining=st.booleans(),
    tags=st.dictionaries(st.just("zone"), st.sampled_from(["", "a"])),
    rack=st.none() | st.just("r"),
    replaced=st.lists(st.sampled_from(["i0", "j0"]), unique=True).map(tuple),
    revision=st.sampled_from(["", "0123456789"]),
)
_topologies = st.builds(
    TopologySummary,
    hash=st.just("h"),
    subtopologies=st.lists(
        st.builds(
            SubtopologySummary,
            id=st.integers(0, 3),
            partitions=st.integers(1, 3),
            stateful=st.booleans(),
            stores=st.lists(st.sampled_from(["a", "b"])).map(tuple),
            sources=st.dictionaries(st.sampled_from(["x", "y"]), st.integers(1, 3)),
        )
    ).map(tuple),
)
views = st.builds(
    View,
    application=st.just("delays"),
    epoch=st.builds(Epoch, st.integers(0, 2**62), st.integers(0, 2**62)),
    topology=st.none() | _topologies,
    members=st.lists(_members, unique_by=lambda each: each.worker)
    .map(lambda each: sorted(each, key=lambda one: one.worker))
    .map(tuple),
    owners=st.dictionaries(_tasks, _workers),
    active=st.dictionaries(_tasks, _workers),
    standby=_copies,
    warm_up=_copies,
    committed=st.dictionaries(_tasks, st.builds(Mark, st.integers(0, 2**62), st.integers(0, 2**62))),
)


@given(views)
def test_an_assignment_is_read_back_as_it_was_written(view):
    """Owners that are no longer members are kept too."""
    assert view_of(stream_assignment(stream_app(), view)) == view


@given(views)
def test_transient_fields_are_not_written(view):
    """A changed lag, waiting reason or silence writes nothing."""
    members = tuple(
        Member(each.worker, each.address, each.incarnation, each.alive, each.draining, 5, 6, each.tags, each.rack, {},
               each.replaced, each.revision)
        for each in view.members
    )  # fmt: skip
    noisy = View(
        view.application, view.epoch, view.topology, members, view.owners, view.active, view.standby, view.warm_up,
        waiting={"0_0": "for a copy"}, committed=view.committed,
    )  # fmt: skip
    assert stream_assignment(stream_app(), noisy) == stream_assignment(stream_app(), view)


def test_assignment_is_printed_by_worker():
    """As kubectl prints it."""
    topology = TopologySummary("h", (SubtopologySummary(0, 2, True), SubtopologySummary(1, 4, False)))
    members = (Member("delays-0"), Member("delays-1", alive=False))
    view = View("delays", Epoch(2, 5), topology, members, active={"0_0": "delays-0"}, standby={"0_0": ("delays-1",)})
    spec = stream_assignment(stream_app(), view)["spec"]
    assert (spec["term"], spec["number"], spec["workerCount"], spec["taskCount"]) == (2, 5, 1, 6)
    assert spec["workers"] == [
        {"name": "delays-0", "alive": True, "active": ["0_0"]},
        {"name": "delays-1", "standby": ["0_0"]},
    ]


def test_invalid_assignment_is_refused_with_a_cure():
    """It can be deleted: workers know everything in it."""
    broken = {"metadata": {"namespace": "shop", "name": "delays"}, "spec": {"application": "delays", "term": "three"}}
    with pytest.raises(InvalidStreamAssignment, match=r"Cannot decode .*'shop/delays' .*: delete it"):
        view_of(broken)
