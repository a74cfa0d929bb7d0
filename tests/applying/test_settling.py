"""Objects that the API server changes are accepted as they are, and are not applied repeatedly."""

from __future__ import annotations

import copy

import pytest

from millpond_operator.controllers.rollout.observation import pods_of
from millpond_operator.kubernetes import kinds
from millpond_operator.resources import children, pod_template, revision_of, stateful_set
from tests.applying.applier import SURROUNDINGS

AMOUNTS = {
    "resources": {
        "requests": {"cpu": "0.12345", "memory": "1000.0001Mi", "ephemeral-storage": "1n"},
        "limits": {"memory": "1E30"},
    },
}


@pytest.mark.parametrize(
    "state", [{"size": "1.5Gi"}, {"size": "1.5Gi", "ephemeral": True}], ids=["volume", "ephemeral"]
)
def test_rounded_amounts_are_written_once(on_bench, state):
    """The StatefulSet is neither recreated nor patched again."""

    async def scenario(bench):
        assert await bench.pass_by()
        assert await bench.writes_of(bench.pass_by) == 0
        assert bench.applier.problem(bench.app) is None

    on_bench(scenario, state=state, **AMOUNTS)


def test_fractional_byte_size_recreates_nothing(on_bench, api, namespace):
    """An earlier CRD accepted such sizes."""

    async def scenario(bench):
        bench.change(state={"size": "1.23456Gi"})
        assert await bench.pass_by()
        assert await bench.writes_of(bench.pass_by) == 0

    on_bench(scenario)


def changed_by_a_webhook(bench, change):
    """Let a webhook change every StatefulSet from now on."""
    send = bench.client.apply

    async def apply(kind, object, **options):
        if kind is kinds.STATEFUL_SET:
            object = copy.deepcopy(object)
            change(object["spec"])
        return await send(kind, object, **options)

    bench.client.apply = apply


def test_stateful_set_is_recreated_once_per_wanted_change(on_bench, api, namespace):
    """A webhook changes an immutable field: that is reported, and the pods are not touched."""

    async def scenario(bench):
        def smaller(spec):
            spec["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] = "1Gi"

        await bench.pass_by()
        changed_by_a_webhook(bench, smaller)
        bench.change(state={"size": "2Gi"})
        made = api.get("StatefulSet", namespace, "delays")["metadata"]["uid"]
        assert not await bench.pass_by(), "it is deleted"
        while not await bench.pass_by():
            pass
        anew = api.get("StatefulSet", namespace, "delays")["metadata"]["uid"]
        assert anew != made
        for _ in range(3):
            assert await bench.pass_by()
        problem = bench.applier.problem(bench.app)
        assert problem is not None
        assert (problem.reason, problem.persistent) == ("StatefulSetDiffers", True)
        assert "volumeClaimTemplates" in problem.message
        assert api.get("StatefulSet", namespace, "delays")["metadata"]["uid"] == anew
        assert await bench.writes_of(bench.pass_by) == 0
        bench.change(state={"size": "1Gi"})
        assert await bench.pass_by()
        assert bench.applier.problem(bench.app) is None

    on_bench(scenario)


def test_change_undone_by_a_webhook_is_not_reapplied(on_bench, api, namespace):
    """Other changes are still reverted, and newly wanted ones are applied."""

    async def scenario(bench):
        def other_image(spec):
            spec["template"]["spec"]["containers"][0]["image"] = "mirror/delays:3"

        changed_by_a_webhook(bench, other_image)
        await bench.pass_by()
        assert await bench.writes_of(bench.pass_by) == 0
        api.patch("StatefulSet", namespace, "delays", {"spec": {"replicas": 5}})
        assert await bench.writes_of(bench.pass_by) == 1
        assert api.get("StatefulSet", namespace, "delays")["spec"]["replicas"] == 0
        await bench.pass_by(bench.decision(replicas=2))
        assert api.get("StatefulSet", namespace, "delays")["spec"]["replicas"] == 2
        bench.applier.forget(namespace, "delays")

    on_bench(scenario)


def test_children_are_written_once(on_bench):
    """The API server adds fields to them, and a second pass writes nothing."""

    async def scenario(bench):
        assert await bench.writes_of(lambda: bench.applier.children(bench.app)) == len(
            children(bench.app, SURROUNDINGS)
        )
        await bench.see()
        assert await bench.writes_of(lambda: bench.applier.children(bench.app)) == 0

    on_bench(scenario)


def claims(api, namespace, number, name="state-delays-{}"):
    """Create bound claims of 1Gi, of a class that does not allow expansion."""
    for ordinal in range(number):
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name.format(ordinal),
                "namespace": namespace,
                "labels": {"millpond.dev/app": "delays"},
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "none",
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": f"volume-{ordinal}",
            },
        }
        made = api.create(claim)
        status = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
        api.replace(made | {"status": status}, subresource="status")


def test_refused_volume_expansion_is_reported_and_retried_later(on_bench, api, namespace):
    """The rejected write is repeated when the user changes something, and after some time, but not in every pass."""

    async def scenario(bench):
        claims(api, namespace, 1)
        claims(api, namespace, 1, "foreign-{}")
        await bench.see()
        bench.change(state={"size": "2Gi"})

        async def grow():
            problem = await bench.applier.volumes.grow(bench.app)
            assert problem is not None
            assert (problem.reason, problem.persistent) == ("VolumeNotExpandable", True)
            assert "'state-delays-0' cannot grow to 2Gi" in problem.message
            assert "allowVolumeExpansion" in problem.message
            assert not problem.blames_revision

        assert [await bench.writes_of(grow) for _ in range(3)] == [1, 0, 0]
        bench.now += 60
        assert [await bench.writes_of(grow) for _ in range(2)] == [1, 0]
        bench.raw["metadata"].setdefault("annotations", {})["example.com/again"] = "1"
        assert [await bench.writes_of(grow) for _ in range(2)] == [1, 0]
        bench.change(state={"size": "1Gi"})
        assert await bench.applier.volumes.grow(bench.app) is None

    on_bench(scenario)


def test_volume_expansions_are_tried_a_few_at_a_time(on_bench, api, namespace):
    """All are tried in the end; the reported problem stays the same."""

    async def scenario(bench):
        claims(api, namespace, 5)
        await bench.see()
        bench.change(state={"size": "2Gi"})
        told = set()

        async def grow():
            told.add(await bench.applier.volumes.grow(bench.app))

        assert [await bench.writes_of(grow) for _ in range(3)] == [3, 2, 0]
        assert len(told) == 1

    on_bench(scenario)


def test_a_kept_revision_is_the_one_that_worked(on_bench, api, namespace):
    """The StatefulSet gets another template; that of the last good revision is kept."""

    async def scenario(bench):
        template = pod_template(bench.app, SURROUNDINGS)
        good = revision_of(template)
        await bench.pass_by()
        bench.change(image="delays:4")
        await bench.pass_by(bench.decision(current=good))
        await bench.see()
        assert good in bench.applier.templates.kept_revisions(bench.app)
        await bench.pass_by(bench.decision(revision=good, current=good))
        there = api.get("StatefulSet", namespace, "delays")
        wanted = stateful_set(bench.app, template, good, 0)["spec"]["template"]["spec"]["containers"][0]["image"]
        assert there["spec"]["template"]["spec"]["containers"][0]["image"] == wanted == "delays:3"

    on_bench(scenario)


def pod(**status):
    labels = {"millpond.dev/revision": "r"}
    return {"metadata": {"name": "delays-0", "uid": "u", "labels": labels}, "status": {"phase": "Pending"} | status}


@pytest.mark.parametrize(
    ("status", "creating"),
    [
        ({}, True),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, True),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}, False),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, True),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}, False),
    ],
)
def test_unschedulable_pod_needs_no_event_lookup(status, creating):
    """Its own status says why it waits; events are read only where nothing else does."""
    (found,) = pods_of([pod(**status)])
    assert found.creating == creating
