from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given

from millpond_operator.resources import (
    APP_UID,
    claim_growth,
    claim_of,
    cleanup_job,
    controller_revision,
    finish,
    fixed_differences,
    labels,
    made_for,
    must_be_recreated,
    owned_by,
    pod_template,
    revision_of,
    stateful_set,
    template_of,
)
from tests.resources.examples import SURROUNDINGS, everything, stream_app, stream_apps, variables


def made(app, replicas=2, **options):
    template = pod_template(app, SURROUNDINGS)
    return stateful_set(app, template, revision_of(template), replicas, **options)


@given(stream_apps)
def test_everything_is_labelled_and_goes_with_the_application(app):
    """All objects have the labels of the application, and the StreamApp as their owner."""
    for manifest in everything(app):
        metadata = manifest["metadata"]
        component = "cleanup" if manifest["kind"] == "Job" else "worker"
        assert labels(app, component).items() <= metadata["labels"].items()
        assert metadata["namespace"] == "shop"
        assert owned_by(app, manifest) == (manifest["kind"] != "Job")
        assert json.loads(json.dumps(manifest)) == manifest, "it is JSON as it stands"


def test_stateful_set_updates_on_delete():
    """The StatefulSet restarts nothing by itself, and starts all workers in parallel."""
    spec = made(stream_app(), 7)["spec"]
    assert (spec["replicas"], spec["serviceName"]) == (7, "delays")
    assert (spec["updateStrategy"], spec["podManagementPolicy"]) == ({"type": "OnDelete"}, "Parallel")


def test_state_volume_follows_size_class_and_retention():
    """Size, class and retention are the user's."""
    policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    spec = made(stream_app(state={"size": "5Gi", "storageClassName": "fast", "retentionPolicy": policy}))["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "state"
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    assert claim["spec"]["storageClassName"] == "fast"
    assert spec["persistentVolumeClaimRetentionPolicy"] == policy
    assert all(volume["name"] != "state" for volume in spec["template"]["spec"]["volumes"])


def test_volumes_wait_for_workers_that_come_back():
    """While an application is suspended its volumes stay, whatever happens to them when it is scaled in."""
    spec = made(stream_app(), 0, keep_volumes=True)["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Delete", "whenScaled": "Retain"}


def test_ephemeral_state_has_no_volume_of_its_own():
    """It is in the pod, with a size limit."""
    spec = made(stream_app(state={"size": "5Gi", "ephemeral": True}))["spec"]
    assert "volumeClaimTemplates" not in spec
    assert "persistentVolumeClaimRetentionPolicy" not in spec
    volumes = {each["name"]: each for each in spec["template"]["spec"]["volumes"]}
    assert volumes["state"]["emptyDir"] == {"sizeLimit": "5Gi"}


@pytest.mark.parametrize(
    ("size", "there", "grown"),
    [("2Gi", "1Gi", "2Gi"), ("2Gi", "2048Mi", None), ("1Gi", "2Gi", None), (3_000_000_000, "2Gi", 3_000_000_000)],
)
def test_volumes_grow_and_never_shrink(size, there, grown):
    """A claim that has the size, or is larger, stays."""
    claim = {"spec": {"resources": {"requests": {"storage": there}}}}
    patch = claim_growth(stream_app(state={"size": size}), claim)
    assert patch == (None if grown is None else {"spec": {"resources": {"requests": {"storage": grown}}}})


def test_stateful_set_is_recreated_only_for_immutable_fields():
    """Another size, class or kind of volume; nothing else."""
    there = finish(made(stream_app()), 1)
    there["spec"]["volumeClaimTemplates"][0]["status"] = {"phase": "Pending"}
    assert not must_be_recreated(made(stream_app(state={"size": "1024Mi"}, image="b"), 9), there)
    assert not must_be_recreated(made(stream_app(), keep_volumes=True), there)
    for state in ({"size": "2Gi"}, {"storageClassName": "fast"}, {"ephemeral": True}):
        assert must_be_recreated(made(stream_app(state=state)), there), state
    assert must_be_recreated(made(stream_app()), made(stream_app(state={"ephemeral": True})))
    assert fixed_differences(made(stream_app(state={"size": "2Gi"})), there) == ("volumeClaimTemplates",)


def test_rounded_amounts_do_not_recreate_the_stateful_set():
    """The normalized size is equal."""
    app = stream_app(state={"size": "1.23456Gi"})
    there = json.loads(json.dumps(finish(made(app), 1)).replace("1.23456Gi", "1325598706238m"))
    assert there != finish(made(app), 1)
    assert not must_be_recreated(made(app), there)


@pytest.mark.parametrize(
    ("name", "its"),
    [("state-delays-0", True), ("state-delays-12", True), ("state-delays", False), ("state-delays-b-0", False),
     ("data-delays-0", False), ("state-delays-x", False)],
)  # fmt: skip
def test_volumes_of_workers_are_known_by_their_names(name, its):
    """Claims that only have the application's label belong to others."""
    assert claim_of(stream_app(), {"metadata": {"name": name}}) == its


def test_a_revision_keeps_the_template():
    """For a rollback."""
    app = stream_app()
    template = pod_template(app, SURROUNDINGS)
    revision = controller_revision(app, template, revision_of(template), 4)
    assert revision["metadata"]["name"] == f"delays-{revision_of(template)}"
    assert revision["revision"] == 4
    assert template_of(revision) == template


def test_objects_are_told_apart_from_those_of_a_namesake():
    """The cleanup Job has no owner, but the uid of its StreamApp."""
    app = stream_app()
    another = replace(app, uid="7b1d")
    for manifest in everything(app):
        assert made_for(app, manifest)
        assert not made_for(another, manifest)
    job = cleanup_job(app)
    assert not owned_by(app, job)
    pod = job["spec"]["template"]
    assert pod["metadata"]["labels"][APP_UID] == app.uid
    assert all(APP_UID not in each["metadata"]["labels"] for each in everything(app) if each["kind"] != "Job")


@given(stream_apps, stream_apps)
def test_cleanup_uses_the_last_working_workers_settings(wanted, worked):
    """It has image, topology, settings and files of the given workers, and nothing of a failed revision."""
    template = pod_template(worked, SURROUNDINGS)
    found, expected = cleanup_job(wanted, template), cleanup_job(worked)
    assert found == expected
    defaults = {"restartPolicy": "Always", "serviceAccount": "delays", "dnsPolicy": "ClusterFirst"}
    served = template | {"spec": template["spec"] | defaults}
    assert cleanup_job(wanted, served) == expected, "read from a StatefulSet"


def test_cleanup_job_has_a_deadline():
    """A missing image does not fail a Job by itself."""
    assert 60 <= cleanup_job(stream_app())["spec"]["activeDeadlineSeconds"] <= 3600


def test_cleanup_job_needs_no_objects_of_the_operator():
    """It runs while all other objects of the application may be deleted already."""
    app = stream_app(
        kafka={"bootstrapServers": "a:1", "credentialsSecret": "s"},
        config={"app.a": "1"},
        env=[{"name": "A", "value": "1"}],
        pod={"mounts": [{"name": "m", "path": "/m", "secret": "x"}]},
    )
    template = cleanup_job(app)["spec"]["template"]
    spec = template["spec"]
    assert "serviceAccountName" not in spec
    assert spec["restartPolicy"] == "Never"
    assert {each["name"] for each in spec["volumes"]} == {"tmp", "state", "credentials", "mount-m"}
    environment = variables(template)
    assert {"MILLPOND_APPLICATION_ID", "MILLPOND_CREDENTIALS_DIR", "MILLPOND_CONFIG_INLINE", "A"} <= environment.keys()
    assert not any("COORDINATOR" in name for name in environment)
