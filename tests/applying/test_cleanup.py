"""The Job that deletes what an application has in Kafka."""

from __future__ import annotations

import dataclasses

import pytest

from millpond_operator.controllers.reconcile.applier import NameTaken
from millpond_operator.controllers.rollout.problems import cleanup_problem
from millpond_operator.resources import cleanup_job, finish, pod_template, revision_of
from tests.applying.applier import SURROUNDINGS
from tests.support.kafka import eventually


def container(job):
    return job["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("kept", [False, True], ids=["still in the StatefulSet", "kept as a revision"])
def test_cleanup_job_uses_the_last_working_image(on_bench, api, namespace, kept):
    """The last wanted revision failed, so neither its image nor its topology can be used to clean up."""

    async def scenario(bench):
        good = revision_of(pod_template(bench.app, SURROUNDINGS))
        await bench.pass_by(bench.decision(current=good))
        bench.change(image="broken:4", topology="app:other")
        if kept:
            await bench.pass_by(bench.decision(current=good))
        await bench.applier.start_cleanup(bench.app, good)
        job = api.get("Job", namespace, "delays-cleanup")
        assert container(job)["image"] == "delays:3"
        assert container(job)["command"] == ["millpond", "reset", "app:delays", "--delete", "--yes"]
        assert bench.applier.cleanup_job(bench.app)["metadata"]["uid"] == job["metadata"]["uid"]

    on_bench(scenario)


def test_cleanup_job_uses_the_wanted_image_when_none_ran(on_bench, api, namespace):
    """With foreground deletion, the application's objects are deleted first."""

    async def scenario(bench):
        await bench.applier.start_cleanup(bench.app, "0123456789")
        assert container(api.get("Job", namespace, "delays-cleanup"))["image"] == "delays:3"

    on_bench(scenario)


def test_cleanup_job_of_a_former_stream_app_is_ignored(on_bench, api, namespace):
    """It finished for another StreamApp of that name; this one gets a Job of its own."""

    async def scenario(bench):
        former = dataclasses.replace(bench.app, uid="6a9c2b4e")
        theirs = api.apply(finish(cleanup_job(former), 3), manager="millpond-operator")
        await bench.see()
        assert bench.applier.cleanup_job(bench.app) is None
        with pytest.raises(NameTaken, match="wait until Kubernetes has deleted it"):
            await bench.applier.check_names(bench.app)  # it deletes what the new one would make
        await bench.applier.start_cleanup(bench.app, "")
        job = api.get("Job", namespace, "delays-cleanup")
        assert job["metadata"]["uid"] != theirs["metadata"]["uid"]
        assert bench.applier.cleanup_job(bench.app)["metadata"]["uid"] == job["metadata"]["uid"]
        await bench.applier.check_names(bench.app)

    on_bench(scenario)


def test_finished_cleanup_job_does_not_block_a_namesake(on_bench, api, namespace):
    """It is kept for its log."""

    async def scenario(bench):
        former = dataclasses.replace(bench.app, uid="6a9c2b4e")
        job = cleanup_job(former)
        job["spec"]["activeDeadlineSeconds"] = 1
        api.create(job)

        def over():
            conditions = api.get("Job", namespace, "delays-cleanup").get("status", {}).get("conditions") or ()
            return any((each["type"], each["status"]) == ("Failed", "True") for each in conditions)

        eventually(over, "the Job has failed")
        await bench.see()
        await bench.applier.check_names(bench.app)

    on_bench(scenario)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("DeadlineExceeded", "the Job took too long; check that the image"),
        ("BackoffLimitExceeded", "see the log of Job 'j'"),
    ],
)
def test_failed_cleanup_job_names_its_log(reason, told):
    """The pods of a Job that took too long are deleted, with their logs."""
    failed = {"type": "Failed", "status": "True", "reason": reason}
    problem = cleanup_problem({"metadata": {"name": "j"}, "status": {"conditions": [failed]}}, ())
    assert problem is not None
    assert (problem.reason, problem.persistent) == ("CleanupFailed", True)
    assert told in problem.message
    assert "Delete Job 'j' to try again" in problem.message
    running = {"metadata": {"name": "j"}, "status": {"conditions": [failed | {"status": "False"}]}}
    assert cleanup_problem(running, ()) is None
