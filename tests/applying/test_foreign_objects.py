"""Foreign objects are not touched, whenever they appear."""

from __future__ import annotations

import copy

import pytest

from millpond.protocol import Epoch, View
from millpond_operator.controllers.coordinator_host.assignment_store import KubernetesStore
from millpond_operator.controllers.preconditions import over
from millpond_operator.controllers.reconcile.applier import NameTaken
from millpond_operator.coordinator import StoreError
from millpond_operator.kubernetes import Conflict, kinds
from millpond_operator.resources import (
    APP,
    children,
    cleanup_job,
    controller_revision,
    finish,
    owned_by,
    pod_template,
    revision_of,
    stateful_set,
    stream_assignment,
)
from tests.applying.applier import SURROUNDINGS

VIEW = View("delays", Epoch(4, 1), None, ())


def everything(app):
    template = pod_template(app, SURROUNDINGS)
    revision = revision_of(template)
    return [
        *children(app, SURROUNDINGS),
        stateful_set(app, template, revision, 0),
        controller_revision(app, template, revision),
        cleanup_job(app),
        stream_assignment(app, VIEW),
    ]


def foreign(manifest):
    """Return an object of that name by a client that knows nothing of StreamApps."""
    made = copy.deepcopy(manifest)
    made["metadata"] = {key: made["metadata"][key] for key in ("name", "namespace")}
    if made["kind"] == "Job":  # its labels would become the Job's
        made["spec"]["template"]["metadata"] = {}
    return made


async def applied(bench, kind, manifest):
    """Return the object before and after a manifest was applied over it; controllers write to it as well."""
    while True:
        there = await bench.client.get(kind, bench.app.namespace, manifest["metadata"]["name"])
        try:
            return there, await bench.client.apply(kind, over(manifest, there))
        except Conflict:
            continue


def test_unread_object_is_not_overwritten(on_bench, api):
    """A manifest for a missing object creates it, but does not change one that appeared meanwhile."""

    async def scenario(bench):
        for manifest in everything(bench.app):
            kind = next(kind for kind in vars(kinds).values() if getattr(kind, "kind", "") == manifest["kind"])
            wanted = finish(manifest, 4)
            made = await bench.client.apply(kind, over(wanted, None))
            assert [each["operation"] for each in made["metadata"]["managedFields"]] == ["Apply"], kind
            with pytest.raises(Conflict):
                await bench.client.apply(kind, over(wanted, None))
            now, changed = await applied(bench, kind, finish(manifest, 5))
            assert changed["metadata"]["uid"] == made["metadata"]["uid"]
            with pytest.raises(Conflict):
                await bench.client.apply(kind, over(wanted, now))

    on_bench(scenario)


def test_foreign_object_created_during_a_pass_is_not_overwritten(on_bench, api, namespace):
    """An object of that name that is created between the read and the write is not taken over."""

    async def scenario(bench):
        app = bench.app
        await bench.applier.check_names(app)
        manifests = [each for each in everything(app) if each["kind"] != "StreamAssignment"]
        theirs = {each["kind"]: api.create(foreign(each)) for each in manifests}
        for manifest in manifests:
            kind = manifest["kind"]
            with pytest.raises(NameTaken, match=f"{kind} '{manifest['metadata']['name']}' exists and does not belong"):
                await bench.applier.apply(app, manifest)
            now = api.get(kind, namespace, manifest["metadata"]["name"])["metadata"]
            assert now["uid"] == theirs[kind]["metadata"]["uid"]
            assert "labels" not in now or APP not in now["labels"]
            assert "ownerReferences" not in now
        with pytest.raises(NameTaken):
            await bench.applier.check_names(app)
        for manifest in manifests:
            api.delete(manifest["kind"], namespace, manifest["metadata"]["name"], propagationPolicy="Background")
            await bench.applier.apply(app, manifest)
            assert APP in api.get(manifest["kind"], namespace, manifest["metadata"]["name"])["metadata"]["labels"]

    on_bench(scenario)


def test_foreign_assignment_is_not_changed(on_bench, api, namespace):
    """The coordinator does not save its decisions there, and reports the owner that it needs."""

    async def scenario(bench):
        store = KubernetesStore(bench.client, bench.cache, lambda: bench.app, 4)
        api.create(foreign(stream_assignment(bench.app, VIEW)))
        with pytest.raises(StoreError, match="does not belong to this StreamApp"):
            await store.save(VIEW)
        assert "ownerReferences" not in api.get("StreamAssignment", namespace, "delays")["metadata"]
        api.delete("StreamAssignment", namespace, "delays")
        await store.save(VIEW)
        assert await store.load() == VIEW

    on_bench(scenario)


def test_an_assignment_is_written_though_the_cache_is_behind(on_bench, api, namespace):
    """It was annotated, and no watch has shown that yet, or no watch shows it at all."""

    async def scenario(bench):
        store = KubernetesStore(bench.client, bench.cache, lambda: bench.app, 4)
        await store.save(VIEW)
        api.patch("StreamAssignment", namespace, "delays", {"metadata": {"annotations": {"a": "b"}}})
        later = View("delays", Epoch(4, 2), None, ())
        await store.save(later)
        assert await store.load() == later
        bench.cache.clear()
        latest = View("delays", Epoch(4, 3), None, ())
        await store.save(latest)
        assert await store.load() == latest

    on_bench(scenario)


def test_object_without_its_label_is_recognised(on_bench, api, namespace):
    """No watch shows it any more; it must not be recreated around its pods because of that."""

    async def scenario(bench):
        await bench.make_set(bench.decision(replicas=0))
        api.patch("StatefulSet", namespace, "delays", {"metadata": {"labels": {APP: None}}})
        await bench.see()
        shown = api.get("StatefulSet", namespace, "delays")
        bench.cache.remove(kinds.STATEFUL_SET, shown)  # as a watch with a selector tells it
        assert bench.cache.get(kinds.STATEFUL_SET, namespace, "delays") is None
        # A busy API server may not show it at once.
        while bench.cache.get(kinds.STATEFUL_SET, namespace, "delays") is None:
            with pytest.raises(Conflict):
                await bench.make_set(bench.decision(replicas=3))
            assert api.get("StatefulSet", namespace, "delays")["spec"]["replicas"] == 0, "it is decided anew first"
        await bench.pass_by(bench.decision(replicas=3))
        assert api.get("StatefulSet", namespace, "delays")["spec"]["replicas"] == 3

    on_bench(scenario)


def test_foreign_stateful_set_is_never_a_rollback_target(on_bench, api, namespace):
    """It has the operator's labels, but is neither kept, nor run, nor used for the cleanup."""

    async def scenario(bench):
        app = bench.app
        template = pod_template(app, SURROUNDINGS)
        theirs = stateful_set(app, template, "0123456789", 0)
        theirs["metadata"].pop("ownerReferences")
        api.create(theirs)
        revision = controller_revision(app, template, "9876543210")
        revision["metadata"].pop("ownerReferences")
        api.create(revision)
        await bench.see()
        assert bench.cache.get(kinds.STATEFUL_SET, namespace, "delays") is not None
        assert not bench.applier.templates.kept_revisions(app)
        with pytest.raises(NameTaken):
            await bench.make_set(bench.decision(current="0123456789"))
        names = {each["metadata"]["name"] for each in api.list("ControllerRevision", namespace)}
        assert "delays-0123456789" not in names
        assert not any(owned_by(app, each) for each in api.list("ControllerRevision", namespace))

    on_bench(scenario)
