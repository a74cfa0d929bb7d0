"""Changes by other clients to the operator's objects are reverted and reported, and are a problem when they return."""

from __future__ import annotations

import json

import pytest

from millpond_operator.kubernetes import Conflict, kinds
from millpond_operator.resources import children, pod_template, revision_name, revision_of
from tests.applying.applier import SURROUNDINGS


def container(api, namespace):
    return api.get("StatefulSet", namespace, "delays")["spec"]["template"]["spec"]["containers"][0]


def set_env(api, namespace, name="DEBUG", value="1"):
    """Change the StatefulSet as `kubectl set env statefulset/delays DEBUG=1` does."""
    containers = [{"name": "worker", "env": [{"name": name, "value": value}]}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/delays?fieldManager=kubectl-set"
    api.request("PATCH", path, patch, content="application/strategic-merge-patch+json")


def variables(api, namespace):
    return {each["name"]: each.get("value") for each in container(api, namespace)["env"]}


def test_an_added_variable_is_taken_out(on_bench, api, namespace):
    """It is removed before a restart or the next change, and the event says who added what."""

    async def scenario(bench):
        await bench.pass_by()
        before = container(api, namespace)
        set_env(api, namespace)
        assert "DEBUG" in variables(api, namespace)
        await bench.pass_by()
        assert container(api, namespace) == before
        ((type, reason, sentence),) = bench.applier.drift.take_events(bench.app)
        assert (type, reason) == ("Warning", "ChangeUndone")
        assert (
            "'kubectl-set' added spec.template.spec.containers[worker].env[DEBUG] to StatefulSet 'delays'" in sentence
        )
        assert await bench.writes_of(bench.pass_by) == 0
        assert bench.applier.problem(bench.app) is None

    on_bench(scenario)


def test_a_variable_with_another_source_is_put_back(on_bench, api, namespace):
    """A value and a source cannot exist together, so the source is removed first."""

    async def scenario(bench):
        await bench.pass_by()
        before = container(api, namespace)
        source = {"configMapKeyRef": {"name": "other", "key": "servers"}}
        place = next(i for i, each in enumerate(before["env"]) if each["name"] == "MILLPOND_BOOTSTRAP_SERVERS")
        pointer = f"/spec/template/spec/containers/0/env/{place}"
        api.patch(
            "StatefulSet",
            namespace,
            "delays",
            [{"op": "replace", "path": pointer, "value": {"name": "MILLPOND_BOOTSTRAP_SERVERS", "valueFrom": source}}],
        )
        await bench.pass_by()
        assert container(api, namespace) == before
        assert await bench.writes_of(bench.pass_by) == 0
        # What was put back is the operator's to drop: nobody else holds on to it.
        bench.change(kafka={"bootstrapServers": "other:9092"})
        await bench.pass_by()
        assert variables(api, namespace)["MILLPOND_BOOTSTRAP_SERVERS"] == "other:9092"

    on_bench(scenario)


def test_what_was_put_back_goes_when_it_is_not_wanted_any_more(on_bench, api, namespace):
    """A field that a patch restored can still be dropped later."""

    async def scenario(bench):
        bench.change(env=[{"name": "GREETING", "value": "hello"}])
        await bench.pass_by()
        place = next(i for i, each in enumerate(container(api, namespace)["env"]) if each["name"] == "GREETING")
        pointer = f"/spec/template/spec/containers/0/env/{place}"
        source = {"configMapKeyRef": {"name": "other", "key": "word"}}
        value = {"name": "GREETING", "valueFrom": source}
        api.patch("StatefulSet", namespace, "delays", [{"op": "replace", "path": pointer, "value": value}])
        await bench.pass_by()
        assert variables(api, namespace)["GREETING"] == "hello"
        bench.change(env=[])
        await bench.pass_by()
        assert "GREETING" not in variables(api, namespace)
        assert await bench.writes_of(bench.pass_by) == 0

    on_bench(scenario)


def test_a_changed_image_is_put_back_and_told(on_bench, api, namespace):
    """The event names the client that changed it."""

    async def scenario(bench):
        await bench.pass_by()
        patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "delays:debug"}]
        api.patch("StatefulSet", namespace, "delays", patch)
        await bench.pass_by()
        assert container(api, namespace)["image"] == "delays:3"
        told = {
            sentence for _, _, sentence in bench.applier.drift.take_events(bench.app)
        }  # once more where a status came between
        assert len(told) == 1
        assert "changed StatefulSet 'delays'; the operator reverts it" in told.pop()

    on_bench(scenario)


def test_a_stateful_set_that_others_scale_is_put_back_and_told(on_bench, api, namespace):
    """`kubectl scale` writes a subresource, and stops workers that were not drained."""

    async def scenario(bench):
        await bench.pass_by(bench.decision(replicas=2))
        path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/delays/scale?fieldManager=kubectl"
        for replicas, who in ((1, "'kubectl'"), (0, "Another client")):  # the API server does not note who scales to 0
            api.request("PATCH", path, {"spec": {"replicas": replicas}}, content="application/merge-patch+json")
            await bench.pass_by(bench.decision(replicas=2))
            assert api.get("StatefulSet", namespace, "delays")["spec"]["replicas"] == 2
            told = {sentence for _, _, sentence in bench.applier.drift.take_events(bench.app)}
            assert len(told) == 1
            assert f"{who} changed StatefulSet 'delays'; the operator reverts it" in told.pop()
        assert await bench.writes_of(lambda: bench.pass_by(bench.decision(replicas=2))) == 0

    on_bench(scenario)


CHANGES = {
    "Service": {"spec": {"selector": {"more": "x"}, "sessionAffinity": "ClientIP"}},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "maxUnavailable": None}},
    "NetworkPolicy": {"spec": {"podSelector": {"matchLabels": {"more": "x"}}, "egress": [{}]}},
    "StatefulSet": {
        "spec": {"minReadySeconds": 7, "template": {"spec": {"hostPID": True, "nodeSelector": {"disk": "fast"}}}}
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", CHANGES)
def test_fields_that_others_add_go_from_every_kind(on_bench, api, namespace, kind):
    """Another kind of budget, a selector that matches nothing, a policy that blocks all traffic."""

    async def scenario(bench):
        async def everything():
            while True:
                await bench.see()
                try:
                    await bench.make_set()
                    await bench.applier.children(bench.app)
                    return
                except Conflict:  # controllers write a status
                    continue

        await everything()
        before = api.get(kind, namespace, "delays")["spec"]
        api.patch(kind, namespace, "delays", CHANGES[kind])
        assert api.get(kind, namespace, "delays")["spec"] != before
        await everything()
        assert api.get(kind, namespace, "delays")["spec"] == before
        assert await bench.writes_of(everything) == 0

    on_bench(scenario)


def test_whoever_adds_again_and_again_is_named_and_not_fought(on_bench, api, namespace):
    """A controller that sets the same field repeatedly is reported as a problem, and reverted again after a while."""

    async def scenario(bench):
        await bench.pass_by()
        set_env(api, namespace)
        await bench.pass_by()
        set_env(api, namespace)
        for _ in range(3):
            await bench.see()
            assert await bench.writes_of(bench.pass_by) == 0
        problem = bench.applier.problem(bench.app)
        assert (problem.reason, problem.persistent) == ("FieldsAdded", True)
        assert "'kubectl-set' adds spec.template.spec.containers[worker].env[DEBUG]" in problem.message
        bench.now += 60
        await bench.pass_by()
        assert "DEBUG" not in variables(api, namespace)
        assert bench.applier.problem(bench.app) == problem, "it may be back in a moment"
        bench.now += 60
        await bench.pass_by()
        assert bench.applier.problem(bench.app) is None

    on_bench(scenario)


def test_the_next_change_is_not_refused_for_what_others_added(on_bench, api, namespace):
    """A revision that is kept already is not written again, even if the template changed; the new one is applied."""

    async def scenario(bench):
        good = revision_of(pod_template(bench.app, SURROUNDINGS))
        await bench.pass_by()
        bench.change(image="delays:4")
        await bench.pass_by(bench.decision(current=good))
        bench.change(image="delays:3")
        await bench.pass_by()
        set_env(api, namespace)
        bench.change(image="delays:5")
        await bench.pass_by(bench.decision(current=good))
        assert container(api, namespace)["image"] == "delays:5"
        assert "DEBUG" not in variables(api, namespace)
        kept = api.get("ControllerRevision", namespace, revision_name(bench.app, good))
        env = kept["data"]["spec"]["containers"][0]["env"]
        assert "DEBUG" not in {each["name"] for each in env}

    on_bench(scenario)


def test_a_template_is_not_kept_with_what_others_added(on_bench, api, namespace):
    """A rollback to it would run something that nobody asked for."""

    async def scenario(bench):
        good = revision_of(pod_template(bench.app, SURROUNDINGS))
        await bench.pass_by()
        set_env(api, namespace)
        bench.change(image="delays:4")
        await bench.pass_by(bench.decision(current=good))
        await bench.see()
        # If the StatefulSet controller wrote in between, a second attempt finds and keeps the restored template.
        kept = bench.cache.get(kinds.CONTROLLER_REVISION, namespace, revision_name(bench.app, good))
        assert kept is None or "DEBUG" not in json.dumps(kept)
        assert container(api, namespace)["image"] == "delays:4"

    on_bench(scenario)


def test_a_template_that_was_seen_clean_is_kept(on_bench, api, namespace):
    """A field that is owned together with another client is not a change."""

    async def scenario(bench):
        good = revision_of(pod_template(bench.app, SURROUNDINGS))
        await bench.pass_by()
        there = api.get("StatefulSet", namespace, "delays")
        template = {"spec": {"containers": [{"name": "worker", "image": "delays:3"}]}}
        co_owner = {key: there[key] for key in ("apiVersion", "kind")} | {
            "metadata": {"name": "delays", "namespace": namespace},
            "spec": {"template": template},
        }
        path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/delays?fieldManager=gitops&force=true"
        api.request("PATCH", path, co_owner, content="application/apply-patch+yaml")
        await bench.pass_by()
        assert good in bench.applier.templates.kept_revisions(bench.app)
        bench.change(image="delays:4")
        await bench.pass_by(bench.decision(current=good))
        await bench.see()
        assert good in bench.applier.templates.kept_revisions(bench.app)

    on_bench(scenario)


def test_children_are_unaffected_by_each_others_drift(on_bench, api, namespace):
    """One object is restored; the others are not written."""

    async def scenario(bench):
        await bench.applier.children(bench.app)
        api.patch("Service", namespace, "delays", CHANGES["Service"])
        await bench.see()
        writes = await bench.writes_of(lambda: bench.applier.children(bench.app))
        assert 1 <= writes <= 2 < len(children(bench.app, SURROUNDINGS))

    on_bench(scenario)
