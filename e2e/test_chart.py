"""The chart on a cluster: install, test, upgrade from the previous one, uninstall, and rights in one namespace only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster, eventually
from e2e.commands import WORK, CommandFailed, run
from e2e.helm import CHART, Helm, image_values
from e2e.images import Images
from e2e.installation import Installation
from e2e.kafka import Kafka
from e2e.measuring.pauses import Event
from e2e.measuring.verification import Verification
from e2e.streamapp import StreamApp
from tests.support.programs import helm as programs

_WHOLE, _OWN, _APPS = "millpond-e2e-chart", "millpond-e2e-own", "millpond-e2e-charted"
_RELEASE = "chart"
_PREVIOUS = "0.0.9"
_READY_S = 180
_GONE_S = 120


@pytest.fixture(scope="module", autouse=True)
def no_other_operator(operator: Installation, cluster: Cluster) -> Iterator[None]:
    """Two operators would serve the same StreamApps: that of the other tests pauses."""
    programs.build()
    operator.remove()
    for namespace in (_WHOLE, _OWN, _APPS):
        cluster.recreate_namespace(namespace)
    try:
        yield
    finally:
        operator.bring_back()


@pytest.fixture(scope="module")
def previous() -> Path:
    """The previous chart: there is no release before this one, so it differs by its version and its values only."""
    directory = WORK / "previous"
    helm = programs.find(programs.HELM_4)
    run(helm, "package", CHART, "--version", _PREVIOUS, "--destination", directory)
    return directory / f"millpond-{_PREVIOUS}.tgz"


@pytest.fixture(scope="module")
def helm(cluster: Cluster) -> Helm:
    """Helm 4, with all rights."""
    return Helm(programs.find(programs.HELM_4), cluster, _WHOLE)


@pytest.fixture(scope="module")
def own_kafka(cluster: Cluster, images: Images, no_other_operator: None) -> Iterator[Kafka]:
    """A broker in a namespace of its own: other tests have topics of the same names."""
    with Kafka(cluster, _APPS, images.broker) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def verification(cluster: Cluster, own_kafka: Kafka, images: Images, events: list[Event]) -> Iterator[Verification]:
    """An application under a steady input, whose topics are deleted with it."""
    with Verification(cluster, own_kafka, images) as verification:
        verification.meter.events = events
        yield verification


@pytest.mark.core
def test_the_previous_chart_is_installed(
    helm: Helm, previous: Path, own_kafka: Kafka, images: Images, verification: Verification
) -> None:
    """It takes over the definitions that `kubectl apply -k crds/` installed, and runs an application."""
    values = image_values(images) | {"test.bootstrapServers": own_kafka.inside, "operator.concurrency": "4"}
    helm.install(_RELEASE, previous, "--take-ownership", values=values)
    verification.app.apply(verification.spec(deletion={"kafka": "Delete"}))
    verification.app.settled(2, _READY_S, images.verifier("v1"))
    verification.meter.learn()


@pytest.mark.core
def test_helm_test_runs_a_canary_through_the_broker(helm: Helm) -> None:
    """`helm test` creates a StreamApp, counts records with it and deletes it."""
    told = helm.test(_RELEASE, "--logs")
    assert "100 records were counted" in told
    assert "The installation works." in told


@pytest.mark.core
def test_an_upgrade_of_the_chart_restarts_no_worker(
    helm: Helm, cluster: Cluster, images: Images, verification: Verification
) -> None:
    """The new operators take over; the application keeps its pods, and no record is lost or doubled."""
    before = {each["metadata"]["uid"] for each in verification.app.pods()}
    with verification.meter.event("chart upgrade"):
        helm.upgrade(_RELEASE, CHART, values={"operator.concurrency": "8"})
    chart = cluster.objects("deployments", _WHOLE)[0]["metadata"]["labels"]["helm.sh/chart"]
    assert chart != f"millpond-{_PREVIOUS}"
    verification.app.settled(2, _READY_S, images.verifier("v1"))
    assert {each["metadata"]["uid"] for each in verification.app.pods()} == before
    assert verification.findings() == []


@pytest.mark.core
def test_uninstalling_is_refused_while_an_application_needs_the_operator(
    helm: Helm, cluster: Cluster, verification: Verification
) -> None:
    """Helm stops with the name of the StreamApp, and deletes nothing."""
    with pytest.raises(CommandFailed) as refused:
        helm.uninstall(_RELEASE)
    log = cluster.kubectl("-n", _WHOLE, "logs", "job/chart-millpond-uninstall-check")
    app = f"{verification.app.namespace}/{verification.app.name}"
    assert app in log, (refused.value, log)
    assert verification.app.exists()
    assert cluster.objects("deployments", _WHOLE)


@pytest.mark.core
def test_uninstalling_keeps_the_definitions(helm: Helm, cluster: Cluster, verification: Verification) -> None:
    """Once the application is deleted with its topics, the operator goes, and the definitions stay."""
    verification.app.kubectl("delete", "sapp", verification.app.name, timeout_s=_GONE_S)
    helm.uninstall(_RELEASE)
    assert not cluster.objects("deployments", _WHOLE)
    assert "streamapps.millpond.dev" in cluster.kubectl("get", "crds")


def test_rights_in_one_namespace_are_enough(cluster: Cluster, own_kafka: Kafka, images: Images) -> None:
    """An account with no rights outside its namespace installs the chart with Helm 3, tests it and uninstalls it."""
    rbac = "rbac.authorization.k8s.io"
    metadata = {"name": "installer", "namespace": _OWN}
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata,
         "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
        {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": metadata,
         "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "installer"},
         "subjects": [{"kind": "ServiceAccount", "name": "installer", "namespace": _OWN}]},
    )  # fmt: skip
    helm = Helm(programs.find(programs.HELM_3), cluster, _OWN, account="installer")
    values = image_values(images) | {
        "crds.install": "false",
        "rbac.clusterRights": "false",
        "watchNamespaces": f"{{{_OWN}}}",
        "test.bootstrapServers": own_kafka.inside,
    }
    helm.install("own", CHART, values=values)
    assert "Phase:          Succeeded" in helm.test("own")  # Helm 3 deletes the pod before it reads the log
    elsewhere = StreamApp(cluster, _WHOLE, "elsewhere")
    elsewhere.apply(
        {"image": images.worker, "topology": "app:nothing", "kafka": {"bootstrapServers": own_kafka.inside}}
    )
    helm.uninstall("own")
    eventually(lambda: not cluster.objects("pods", _OWN), "no pod of the operator is left", _GONE_S)
    assert not elsewhere.object().get("status")
    elsewhere.kubectl("delete", "sapp", "elsewhere")
