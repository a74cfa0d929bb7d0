"""Helm installs, upgrades and uninstalls the chart on a real API server; e2e/test_chart.py does so with nodes."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from helm.generate import CHART
from tests.chart.rendering import merged
from tests.cluster.installing import await_rights
from tests.support.programs.helm import HELM_3, HELM_4

_RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(params=[HELM_3, HELM_4])
def run(request, helm, api, api_server, crds, namespace, tmp_path):
    """Run one of the Helms with an account that has all rights in its namespace, and none outside it."""
    metadata = {"name": "installer", "namespace": namespace}
    subject = {"kind": "ServiceAccount", "name": "installer", "namespace": namespace}
    role = {"apiGroup": _RBAC, "kind": "Role", "name": "installer"}
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    for each in (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [subject],
        },
    ):
        api.apply(each)
    access = api_server.service_account(api.token(namespace, "installer"))
    await_rights(api, f"system:serviceaccount:{namespace}:installer", namespace, rules)
    kubeconfig = access.write_kubeconfig(tmp_path / "kubeconfig")
    home = {name: str(tmp_path / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}

    def run(*arguments, values=None, program=helm[request.param]) -> subprocess.CompletedProcess[str]:
        command = [program, *arguments, "--namespace", namespace, "--kubeconfig", kubeconfig]
        given = ["--values", "-"] if values is not None else []
        return subprocess.run(
            [*map(str, command), *given], input=json.dumps(values or {}), env={**os.environ, **home},
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    return run


def test_rights_in_one_namespace_are_enough_to_install(run, api, namespace, helm, tmp_path):
    """Install the previous chart, upgrade to this one with other values, and uninstall: nothing is left of it."""
    subprocess.run([helm[HELM_4], "package", CHART, "--version", "0.0.9", "--destination", tmp_path], check=True,
                   capture_output=True)  # fmt: skip
    values = {"crds": {"install": False}, "rbac": {"clusterRights": False}, "watchNamespaces": [namespace]}
    done = run("install", "own", tmp_path / "millpond-0.0.9.tgz", values=values)
    assert done.returncode == 0, done.stderr
    assert f"It serves the namespaces {namespace}." in done.stdout
    assert "crds.install is false" in done.stdout
    done = run("upgrade", "own", CHART, "--reset-then-reuse-values", values={"operator": {"concurrency": 9}})
    assert done.returncode == 0, done.stderr
    deployment = api.get("Deployment", namespace, "own-millpond-operator")
    assert deployment["metadata"]["labels"]["helm.sh/chart"] != "millpond-0.0.9"
    environment = {
        each["name"]: each.get("value") for each in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert environment["MILLPOND_OPERATOR_CONCURRENCY"] == "9"
    assert environment["MILLPOND_OPERATOR_WATCH_NAMESPACES"] == namespace
    assert run("uninstall", "own", "--no-hooks").returncode == 0
    assert api.find("Deployment", namespace, "own-millpond-operator") is None
    assert api.find("Role", namespace, "own-millpond-operator") is None


@pytest.mark.parametrize(("keep", "refused"), [(False, True), (True, False)])
def test_upgrade_that_would_delete_the_definitions_is_refused(keep, refused, run, api, namespace, rendering):
    """Definitions that the release does not keep go with `crds.install: false`, and all StreamApps with them."""
    values = {"crds": {"install": False}, "rbac": {"clusterRights": False}, "watchNamespaces": [namespace]}
    assert run("install", "own", CHART, values=values).returncode == 0
    # As a release with definitions has it. The account of this test may not install them, and other tests use them.
    with_definitions = merged(values, {"crds": {"install": True, "keep": keep}})
    installed = rendering.one("Deployment", "own-millpond-operator", with_definitions, release="own")
    deployment = api.get("Deployment", namespace, "own-millpond-operator")
    deployment["metadata"]["annotations"] |= installed["metadata"].get("annotations", {})
    api.replace(deployment)
    done = run("upgrade", "own", CHART, values=values)
    if refused:
        assert done.returncode != 0
        assert "crds.keep: false" in done.stderr
        assert "Upgrade with crds.install: true and crds.keep: true first" in done.stderr
    else:
        assert done.returncode == 0, done.stderr


def test_cluster_rights_need_an_administrator(run, api, namespace):
    """The API server refuses the ClusterRoles of an account without them, and Helm says which."""
    done = run("install", "own", CHART, values={"crds": {"install": False}})
    assert done.returncode != 0
    assert "clusterroles" in done.stderr
