from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given

from millpond.runtime.config.model import Config
from millpond_operator.resources import (
    RESTARTED_AT,
    Surroundings,
    cleanup_job,
    pod_template,
    revision_of,
    selector,
    stateful_set,
)
from tests.resources.examples import SURROUNDINGS, everything, stream_app, stream_apps, variables


def container(template):
    (only,) = template["spec"]["containers"]
    return only


def test_a_worker_runs_the_topology_under_its_pods_name():
    """The worker's id is the name of its pod, which is part of its address."""
    template = pod_template(stream_app(), SURROUNDINGS)
    assert container(template)["command"] == ["millpond", "run", "app:delays"]
    first, revision, *_ = container(template)["env"]
    assert first == {"name": "MILLPOND_WORKER_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert revision["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['millpond.dev/revision']"
    environment = variables(template)
    assert environment["MILLPOND_APPLICATION_SERVER"] == "http://$(MILLPOND_WORKER_ID).delays.shop.svc:8081"
    url = "https://millpond-coordinator.millpond-system.svc:7070/namespaces/shop/delays"
    assert environment["MILLPOND_COORDINATOR_URL"] == url


def test_fields_become_settings_that_workers_understand():
    """Every variable is a setting of millpond, with a valid value."""
    app = stream_app(
        applicationId="shop.delays",
        processingGuarantee="at_least_once",
        commitInterval="90s",
        sessionTimeout="500ms",
        config={"max.task.idle.ms": "7"},
        pod={"terminationGracePeriodSeconds": 100},
    )
    told = variables(pod_template(app, SURROUNDINGS))
    config = Config.load(environ={name: value or "found-at-the-start" for name, value in told.items()})
    assert config.worker_id == config.revision == "found-at-the-start"
    assert config.max_task_idle_ms == 7
    assert config.application_id == "shop.delays"
    assert config.bootstrap_servers == "kafka:9092"
    assert config.processing_guarantee == "at_least_once"
    assert (config.commit_interval_ms, config.shutdown_timeout_ms) == (90_000, 90_000)
    assert config.coordinator_session_timeout_ms == 500
    assert str(config.state_dir) == "/var/lib/millpond"
    assert (config.http_host, config.http_port, config.query_port) == ("0.0.0.0", 8080, 8081)
    assert str(config.coordinator_token_file) == "/var/run/millpond/token"
    assert str(config.coordinator_ca_file) == "/var/run/millpond/ca.crt"


def test_settings_reach_workers_as_they_were_written():
    """Kubernetes replaces `$(NAME)` in variables; in settings it must not."""
    config = {"app.price": "$(HOME) $$5 é\n", "topic.retention.ms": "1"}
    inline = variables(pod_template(stream_app(config=config), SURROUNDINGS))["MILLPOND_CONFIG_INLINE"]
    assert json.loads(inline.replace("$$", "$")) == config
    assert "MILLPOND_CONFIG_INLINE" not in variables(pod_template(stream_app(), SURROUNDINGS))


def test_user_variables_come_last_and_stay_unchanged():
    """They may refer to others; an empty one exists, and is empty."""
    env = [{"name": "B", "value": "$(A)"}, {"name": "A", "value": ""}]
    given = container(pod_template(stream_app(env=env), SURROUNDINGS))["env"]
    assert given[-2:] == [{"name": "B", "value": "$(A)"}, {"name": "A"}]


def test_credentials_are_mounted_and_never_read():
    """Manifests have only the name of the Secret; the pod has the files."""
    app = stream_app(kafka={"bootstrapServers": "a:1", "credentialsSecret": "delays-kafka"})
    template = pod_template(app, SURROUNDINGS)
    assert variables(template)["MILLPOND_CREDENTIALS_DIR"] == "/etc/millpond/credentials"
    volume = next(each for each in template["spec"]["volumes"] if each["name"] == "credentials")
    assert volume["secret"] == {"secretName": "delays-kafka", "defaultMode": 0o440}
    mount = next(each for each in container(template)["volumeMounts"] if each["name"] == "credentials")
    assert mount == {"name": "credentials", "mountPath": "/etc/millpond/credentials", "readOnly": True}


@given(stream_apps)
def test_every_pod_is_restricted(app):
    """Whatever a user sets, a pod has no more rights than the restricted standard, and no API token."""
    for template in (pod_template(app, SURROUNDINGS), cleanup_job(app)["spec"]["template"]):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert container(template)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        allowed = {"name", "emptyDir", "secret", "configMap", "projected"}
        assert all(volume.keys() <= allowed for volume in spec["volumes"])
        mounted = {mount["name"] for mount in container(template)["volumeMounts"]}
        assert {volume["name"] for volume in spec["volumes"]} | {"state"} == mounted


@given(stream_apps)
def test_selectors_hold_whatever_labels_a_person_gives(app):
    """Pods have the labels that the StatefulSet, the Service and others select."""
    template = pod_template(app, SURROUNDINGS)
    assert selector(app).items() <= template["metadata"]["labels"].items()
    found = {each["kind"]: each["spec"].get("selector") for each in everything(app) if "spec" in each}
    assert found["Service"] == selector(app)
    assert found["PodDisruptionBudget"] == found["StatefulSet"] == {"matchLabels": selector(app)}
    cleanup = cleanup_job(app)["spec"]["template"]["metadata"]["labels"]
    assert not selector(app).items() <= cleanup.items(), "the clean-up is no worker"


@given(stream_apps)
def test_a_revision_is_the_same_for_the_same_pods_only(app):
    """It depends only on the template, which depends on no leader and no certificate."""
    template = pod_template(app, SURROUNDINGS)
    revision = revision_of(template)
    assert len(revision) == 10
    assert int(revision, 16) >= 0
    later = replace(SURROUNDINGS, leader_epoch=9, ca_pem="ANOTHER")
    assert revision_of(pod_template(app, later)) == revision
    assert revision_of(json.loads(json.dumps(template, sort_keys=True))) == revision
    labels = stateful_set(app, template, revision, 1)["spec"]["template"]["metadata"]["labels"]
    assert labels["millpond.dev/revision"] == revision
    assert "millpond.dev/revision" not in template["metadata"]["labels"]


def test_revisions_are_the_same_in_every_process():
    """A restarted operator finds the revisions of the last one."""
    program = (
        "from tests.resources.examples import *;"
        "print(revision_of(pod_template(stream_app(config={'a': '1', 'b': '2'}), SURROUNDINGS)))"
    )
    template = pod_template(stream_app(config={"b": "2", "a": "1"}), SURROUNDINGS)
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"},
    )  # fmt: skip
    assert found.stdout.strip() == revision_of(template)


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 5},
        {"standbyReplicas": 1},
        {"maxWarmupReplicas": 1},
        {"acceptableRecoveryLag": 1},
        {"suspended": True},
        {"rollout": {"strategy": "Recreate", "minReady": "1s"}},
        {"deletion": {"kafka": "Delete"}},
        {"state": {"size": "2Gi"}},
        {"state": {"retentionPolicy": {"whenScaled": "Retain"}}},
    ],
)
def test_changes_outside_the_pod_keep_the_revision(spec):
    """No worker restarts."""
    before, after = (revision_of(pod_template(app, SURROUNDINGS)) for app in (stream_app(), stream_app(**spec)))
    assert before == after


@pytest.mark.parametrize(
    "spec",
    [{"image": "delays:4"}, {"topology": "app:other"}, {"config": {"max.task.idle.ms": "1"}}, {"sessionTimeout": "7s"},
     {"env": [{"name": "A", "value": "1"}]}, {"resources": {"limits": {"cpu": 1}}}, {"pod": {"labels": {"a": "b"}}}],
)  # fmt: skip
def test_changes_of_the_pod_change_the_revision(spec):
    """Workers restart, one at a time."""
    before, after = (revision_of(pod_template(app, SURROUNDINGS)) for app in (stream_app(), stream_app(**spec)))
    assert before != after


def test_a_restart_on_demand_is_another_revision():
    """A new value of the annotation restarts the workers."""
    revisions = {
        revision_of(pod_template(stream_app({RESTARTED_AT: value} if value else {}), SURROUNDINGS))
        for value in ("", "yesterday", "today")
    }
    assert len(revisions) == 3
    unrelated = stream_app({"example.com/note": "x"})
    assert revision_of(pod_template(unrelated, SURROUNDINGS)) in revisions


def test_workers_are_spread_over_nodes_unless_the_person_says_otherwise():
    """By default over as many nodes as possible, without keeping any from starting."""

    def constraints(**pod):
        return [
            (each["topologyKey"], each["maxSkew"], each["whenUnsatisfiable"])
            for each in pod_template(stream_app(pod=pod), SURROUNDINGS)["spec"]["topologySpreadConstraints"]
        ]

    assert constraints() == [("kubernetes.io/hostname", 1, "ScheduleAnyway")]
    chosen = [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    assert constraints(topologySpreadConstraints=chosen) == [("zone", 1, "DoNotSchedule")]


@pytest.mark.parametrize(("grace_s", "shutdown"), [(60, "50s"), (15, "7500ms"), (130, "2m")])
def test_shutdown_timeout_leaves_time_within_the_grace_period(grace_s, shutdown):
    """A worker has stopped before Kubernetes kills it."""
    template = pod_template(stream_app(pod={"terminationGracePeriodSeconds": grace_s}), SURROUNDINGS)
    assert template["spec"]["terminationGracePeriodSeconds"] == grace_s
    assert variables(template)["MILLPOND_SHUTDOWN_TIMEOUT"] == shutdown


def test_the_operator_in_another_namespace_is_found_there():
    """The surroundings are in the manifests that depend on them."""
    elsewhere = Surroundings("https://coordinator.ops.svc:7443", "CA", 1, "ops")
    made = {each["kind"]: each for each in everything(stream_app(), elsewhere)}
    url = variables(made["StatefulSet"]["spec"]["template"])["MILLPOND_COORDINATOR_URL"]
    assert url == "https://coordinator.ops.svc:7443/namespaces/shop/delays"
    assert made["ConfigMap"]["data"] == {"ca.crt": "CA"}
    assert '"kubernetes.io/metadata.name": "ops"' in json.dumps(made["NetworkPolicy"])
