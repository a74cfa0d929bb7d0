"""Before the operator is uninstalled: it is refused while StreamApps need it, and they are named."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import msgspec
import pytest

from millpond_operator import uninstall_check
from millpond_operator.kubernetes import Client, Connection
from millpond_operator.kubernetes.client import Page
from millpond_operator.kubernetes.errors import Expired
from millpond_operator.resources.names import FINALIZER
from millpond_operator.uninstall_check import reason_to_refuse
from tests.cluster.installing import await_rights


def app(name: str, *finalizers: str) -> dict:
    return {"metadata": {"name": name, "namespace": "shop", **({"finalizers": list(finalizers)} if finalizers else {})}}


def test_applications_without_the_finalizer_keep_running():
    """Nothing of them needs the operator to be deleted; finalizers of others are not its business."""
    assert reason_to_refuse([app("delays"), app("orders", "example.com/backup")]) == ""


def test_applications_with_the_finalizer_are_named_with_the_cure():
    """In order, so that two runs say the same."""
    told = reason_to_refuse([app("orders", FINALIZER), app("delays", "example.com/backup", FINALIZER), app("pay")])
    assert "shop/delays, shop/orders." in told
    assert "shop/pay" not in told
    assert "kubectl delete sapp" in told


def test_all_applications_count_when_the_definitions_go_too():
    """They would be deleted by the garbage collector."""
    told = reason_to_refuse([app("pay")], definitions_go_too=True)
    assert "shop/pay" in told
    assert "crds.keep" in told
    assert reason_to_refuse([], definitions_go_too=True) == ""


def test_a_long_list_is_cut():
    """The message stays readable, and says how many there are."""
    told = reason_to_refuse([app(f"app-{number:03d}", FINALIZER) for number in range(120)])
    assert "and 100 more" in told
    assert len(told) < 1000


def test_thousands_of_applications_fit_into_memory(monkeypatch, capsys):
    """Also where each has a long specification. A list whose version is dropped half-way is read again."""
    long = msgspec.Raw(msgspec.json.encode({**app("delays", FINALIZER), "spec": ["x" * 200] * 200}))
    lists = iter([2, 20])

    class ManyStreamApps(Client):
        async def pages(self, *_args, **_options):
            pages = next(lists)
            for _ in range(pages):
                yield Page([msgspec.Raw(long)] * 50, 1)
            if pages == 2:
                raise Expired("dropped")

    monkeypatch.setattr(uninstall_check, "Client", ManyStreamApps)
    monkeypatch.setattr(sys, "argv", ["uninstall_check"])
    monkeypatch.setattr(uninstall_check.Connection, "find", lambda _: Connection("http://localhost"))
    tracemalloc.start()
    try:
        with pytest.raises(SystemExit):
            uninstall_check.main()
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()
    assert "and 980 more" in capsys.readouterr().err


def check(access, directory, *arguments: str) -> subprocess.CompletedProcess[str]:
    kubeconfig = access.write_kubeconfig(directory / "kubeconfig")
    command = [sys.executable, "-m", "millpond_operator.uninstall_check", "--kubeconfig", str(kubeconfig), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def account(api, api_server, namespace):
    """The rights that the chart gives the check in a served namespace, and no more."""
    rbac, metadata = "rbac.authorization.k8s.io", {"name": "check", "namespace": namespace}
    api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    rules = [{"apiGroups": ["millpond.dev"], "resources": ["streamapps"], "verbs": ["list"]}]
    api.apply({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    api.apply({"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": metadata,
               "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "check"},
               "subjects": [{"kind": "ServiceAccount", "name": "check", "namespace": namespace}]})  # fmt: skip
    await_rights(api, f"system:serviceaccount:{namespace}:check", namespace, rules)
    return api_server.service_account(api.token(namespace, "check"))


def test_the_command_asks_the_api_server(api, crds, namespace, account, processes, tmp_path):
    """Exit code 0 while no StreamApp needs the operator, 1 with its name while one does, 2 without rights."""
    assert check(account, tmp_path, f"--namespace={namespace}").returncode == 0
    spec = {
        "image": "a:1",
        "topology": "a:b",
        "kafka": {"bootstrapServers": "kafka:9092"},
        "deletion": {"kafka": "Delete"},
    }
    made = {"apiVersion": "millpond.dev/v1alpha1", "kind": "StreamApp", "spec": spec,
            "metadata": {"name": "pay", "namespace": namespace, "finalizers": [FINALIZER]}}  # fmt: skip
    api.create(made)
    refused = check(account, tmp_path, f"--namespace={namespace}")
    assert refused.returncode == 1
    assert f"{namespace}/pay" in refused.stderr
    without_rights = check(account, tmp_path)
    assert without_rights.returncode == 2
    assert "cannot be read" in without_rights.stderr
    api.patch("StreamApp", namespace, "pay", {"metadata": {"finalizers": None}})
