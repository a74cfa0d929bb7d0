"""The objects that the chart renders, by what they are for."""

from __future__ import annotations

import json

import pytest
import yaml

from helm.generate import CHART, ROOT
from tests.chart.rendering import pods_of

NAMESPACED = {"rbac": {"clusterRights": False}, "watchNamespaces": ["shop", "bank"], "crds": {"install": False}}


def rules_of(objects, kind, name, namespace=None) -> list[dict]:
    (found,) = (
        each
        for each in objects
        if each["kind"] == kind and each["metadata"]["name"] == name and each["metadata"].get("namespace") == namespace
    )
    return found["rules"]


def environment_of(objects) -> dict[str, str]:
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {
        each["name"].removeprefix("MILLPOND_OPERATOR_"): each["value"] for each in container["env"] if "value" in each
    }


def test_the_definitions_are_those_of_crds(rendering):
    """They have all that `crds/` has, and are kept on uninstall."""
    rendered = {
        each["metadata"]["name"]: each for each in rendering.objects() if each["kind"] == "CustomResourceDefinition"
    }
    assert len(rendered) == 3
    for file in (ROOT / "crds").glob("*.yaml"):
        source = yaml.safe_load(file.read_text())
        made = rendered[source["metadata"]["name"]]
        assert made["spec"] == source["spec"]
        assert made["metadata"]["annotations"].items() >= source["metadata"]["annotations"].items()
        assert made["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_definitions_that_are_not_kept_are_deleted_by_helm(rendering):
    """And the hook refuses while there is any StreamApp."""
    objects = rendering.objects({"crds": {"keep": False}})
    definitions = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    assert definitions
    assert not any("helm.sh/resource-policy" in each["metadata"]["annotations"] for each in definitions)
    (job,) = (each for each in objects if each["kind"] == "Job")
    assert "--definitions-go-too" in job["spec"]["template"]["spec"]["containers"][0]["command"]


def test_namespaced_rights_need_no_object_of_the_cluster(rendering):
    """Roles and RoleBindings only, in the release's namespace and in the served ones."""
    objects = rendering.objects(NAMESPACED)
    assert {each["metadata"]["namespace"] for each in objects} == {"millpond-system", "shop", "bank"}
    assert not [each["kind"] for each in objects if each["kind"].startswith("Cluster")]
    whole = rendering.objects({"crds": {"install": False}})
    for namespace in ("shop", "bank"):
        rules = rules_of(objects, "Role", "millpond-operator-served", namespace)
        everywhere = rules_of(whole, "ClusterRole", "millpond-operator")
        assert json.dumps(rules) == json.dumps(everywhere).replace('"clusterroles"', '"roles"')
        driver = rules_of(objects, "Role", "millpond-snapshot-driver", namespace)
        assert driver == rules_of(whole, "ClusterRole", "millpond-snapshot-driver")
    environment = environment_of(objects)
    assert environment["TOKEN_VERIFICATION"] == "keys"
    assert environment["WATCH_NAMESPACES"] == "shop,bank"
    assert environment["SNAPSHOT_DRIVER_ROLE"] == "Role/millpond-snapshot-driver"


def test_watched_namespaces_are_bound_one_by_one(rendering):
    """With cluster rights the roles are cluster-wide, and the bindings are not, but for reviews of tokens."""
    objects = rendering.objects({"watchNamespaces": ["shop", "bank"], "crds": {"install": False}})
    bindings = [each for each in objects if each["kind"] == "ClusterRoleBinding"
                and "helm.sh/hook" not in each["metadata"].get("annotations", {})]  # fmt: skip
    assert [each["roleRef"]["name"] for each in bindings] == ["millpond-operator-cluster"]
    assert rules_of(objects, "ClusterRole", "millpond-operator-cluster") == [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
    ]
    served = {each["metadata"]["namespace"] for each in objects if each["kind"] == "RoleBinding"
              and each["roleRef"]["name"] == "millpond-operator" != each["metadata"]["name"]}  # fmt: skip
    assert served == {"shop", "bank"}
    (policy,) = (each for each in objects if each["kind"] == "NetworkPolicy")
    (expression,) = policy["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchExpressions"]
    assert expression["values"] == ["shop", "bank"]


def test_without_rbac_there_are_no_rights(rendering):
    """Somebody else grants them."""
    kinds = {each["kind"] for each in rendering.objects({"rbac": {"create": False}})}
    assert not {each for each in kinds if "Role" in each}


def test_all_names_follow_the_release(rendering):
    """Two releases share no object but the definitions, and each operator is told its names."""
    first = rendering.objects({"crds": {"install": False}})
    second = rendering.objects({"crds": {"install": False}}, release="green")

    def names(objects):
        return {(each["kind"], each["metadata"]["name"]) for each in objects}

    assert not names(first) & names(second)
    assert all(name.startswith("green-millpond-") for _, name in names(second))
    assert environment_of(first) == {}
    assert environment_of(second) == {
        "COORDINATOR_SERVICE": "green-millpond-coordinator",
        "CONSOLE_SERVICE": "green-millpond-console",
        "SNAPSHOT_DRIVER_ROLE": "green-millpond-snapshot-driver",
        "LEASE_NAME": "green-millpond-operator",
        "CERTIFICATE_SECRET": "green-millpond-coordinator-tls",
    }
    own = rules_of(second, "Role", "green-millpond-operator", "millpond-system")
    named = {name for rule in own for name in rule.get("resourceNames", ())}
    assert {
        environment_of(second)[each] for each in ("LEASE_NAME", "COORDINATOR_SERVICE", "CERTIFICATE_SECRET")
    } <= named


def test_long_names_of_releases_are_cut(rendering):
    """Names stay below the limit of a label."""
    objects = rendering.objects({"crds": {"install": False}}, release="a" * 53)
    assert max(len(each["metadata"]["name"]) for each in objects) <= 63


def test_values_that_are_left_empty_are_their_defaults(rendering):
    """In a file of values, a name without a value is null, which removes the default."""
    empty = {"commonLabels", "commonAnnotations", "podLabels", "deploymentAnnotations", "watchNamespaces"}
    values = dict.fromkeys(empty) | {"crds": {"annotations": None}, "serviceAccount": {"annotations": None}}
    assert rendering.objects(values) == rendering.objects()


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, "millpond-operator:0.1.0"),
        ({"registry": "registry.example.com", "tag": "2"}, "registry.example.com/millpond-operator:2"),
        ({"repository": "a/b", "digest": f"sha256:{'1' * 64}"}, f"a/b@sha256:{'1' * 64}"),
        ({"tag": "2", "digest": f"sha256:{'1' * 64}"}, f"millpond-operator:2@sha256:{'1' * 64}"),
    ],
)
def test_image_has_registry_tag_and_digest(image, reference, rendering):
    """The check before the uninstall has the same image."""
    pods = pods_of(rendering.objects({"image": image, "crds": {"install": False}}))
    images = {pod["spec"]["containers"][0]["image"] for pod in pods}
    assert images == {reference}


def test_openshift_chooses_the_user_ids(rendering):
    """Ids that are null are left out of every pod."""
    values = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}}
    contexts = [each["spec"]["securityContext"] for each in pods_of(rendering.objects(values))]
    assert len(contexts) == 3
    assert all(each == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}} for each in contexts)


@pytest.mark.parametrize(
    ("certificates", "verbs"),
    [
        ({}, [["create"], ["get", "update"]]),
        ({"source": "secret", "secretName": "mine"}, [["get"]]),
        ({"source": "certManager", "certManager": {"issuerRef": {"name": "ca"}}}, [["get"]]),
    ],
)
def test_only_a_managed_certificate_may_be_written(certificates, verbs, rendering):
    """The operator reads the certificate that somebody else makes, and writes no Secret."""
    objects = rendering.objects({"certificates": certificates, "crds": {"install": False}})
    own = rules_of(objects, "Role", "millpond-operator", "millpond-system")
    assert [each["verbs"] for each in own if each["resources"] == ["secrets"]] == verbs
    expected = {"CERTIFICATE_SOURCE": "secret"} if certificates else {}
    given = {key: value for key, value in environment_of(objects).items() if key == "CERTIFICATE_SOURCE"}
    assert given == expected


def test_cert_manager_makes_a_certificate_for_the_coordinator(rendering):
    """Its Secret is the one that the operator reads, and its name is the host that workers connect to."""
    values = {"certificates": {"source": "certManager", "certManager": {"issuerRef": {"name": "ca"}}}}
    made = rendering.one("Certificate", "millpond-coordinator", values)["spec"]
    assert made["secretName"] == "millpond-coordinator-tls"
    assert "millpond-coordinator.millpond-system.svc" in made["dnsNames"]
    assert made["issuerRef"] == {"name": "ca", "kind": "Issuer", "group": "cert-manager.io"}


def test_monitors_find_operator_and_workers(rendering):
    """Their selectors are the labels of the pods, and their port has the name of the containers' port."""
    values = {"monitoring": {"podMonitors": {"create": True, "labels": {"release": "prometheus"}}}}
    operator = rendering.one("PodMonitor", "millpond-operator", values)
    workers = rendering.one("PodMonitor", "millpond-workers", values)
    assert operator["metadata"]["labels"]["release"] == "prometheus"
    assert operator["spec"]["podMetricsEndpoints"][0]["honorLabels"], "metrics of StreamApps have a label namespace"
    (pod,) = (each for each in pods_of(rendering.objects()) if each["metadata"]["name"] == "millpond-operator-x")
    assert operator["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert workers["spec"]["namespaceSelector"] == {"any": True}
    assert workers["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": "millpond",
        "app.kubernetes.io/component": "worker",
    }


def test_every_rule_and_dashboard_is_wrapped_as_it_is(rendering):
    """Templates of Prometheus and Grafana are not Helm's."""
    values = {"monitoring": {"rules": {"create": True}, "dashboards": {"create": True}}, "crds": {"install": False}}
    objects = rendering.objects(values)
    rules = [each["spec"] for each in objects if each["kind"] == "PrometheusRule"]
    files = sorted((CHART / "files" / "rules").glob("*.yaml"))
    assert rules == [yaml.safe_load(each.read_text()) for each in files]
    dashboards = [each for each in objects if each["kind"] == "ConfigMap"]
    assert all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in dashboards)
    texts = {name: json.loads(text) for each in dashboards for name, text in each["data"].items()}
    assert texts == {
        f"millpond-{each.name}": json.loads(each.read_text())
        for each in (CHART / "files" / "dashboards").glob("*.json")
    }


def test_egress_is_restricted_to_dns_and_the_api_server(rendering):
    """And to what the values add."""
    extra = {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"port": 9092}]}
    values = {"networkPolicy": {"apiServerCIDRs": ["10.0.0.1/32"], "egress": {"restrict": True, "extra": [extra]}}}
    policy = rendering.one("NetworkPolicy", "millpond-operator", values)["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    dns, api, more = policy["egress"]
    assert {each["port"] for each in dns["ports"]} == {53}
    assert api["to"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    assert {each["port"] for each in api["ports"]} == {443, 6443}
    assert more == extra
    assert {"ipBlock": {"cidr": "10.0.0.1/32"}} in policy["ingress"][1]["from"]


def test_the_test_runs_where_the_operator_serves(rendering):
    """With brokers a StreamApp is created, in a served namespace."""
    values = NAMESPACED | {"test": {"bootstrapServers": "kafka:9092"}}
    pod = rendering.one("Pod", "millpond-test", values)
    assert pod["metadata"]["namespace"] == "shop"
    assert pod["spec"]["containers"][0]["image"] == "millpond-worker:0.1.0"
    assert "--bootstrap-servers=kafka:9092" in pod["spec"]["containers"][0]["command"]
    account = {(each["kind"], each["metadata"]["namespace"]) for each in rendering.objects(values)
               if each["metadata"]["name"] == "millpond-test"}  # fmt: skip
    assert account == {(kind, "shop") for kind in ("ServiceAccount", "Role", "RoleBinding", "Pod")}


def test_hooks_are_no_part_of_the_release(rendering):
    """What only hooks need is deleted after them."""
    hooks = [each for each in rendering.objects() if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in hooks} == {"pre-delete", "test"}
    assert {each["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for each in hooks} == {
        "before-hook-creation,hook-succeeded"
    }


def test_the_application_of_helm_test_has_no_account_of_the_chart(rendering):
    """The operator makes a service account and a Role of an application's name, and refuses those of others."""
    objects = rendering.objects({"test": {"bootstrapServers": "kafka:9092"}})
    (pod,) = (each for each in objects if each["kind"] == "Pod")
    (name,) = (
        argument.removeprefix("--name=")
        for container in pod["spec"]["containers"]
        for argument in container.get("args", container.get("command", []))
        if argument.startswith("--name=")
    )
    named = {each["metadata"]["name"] for each in objects if each["kind"] in ("ServiceAccount", "Role")}
    assert named
    assert name not in named
