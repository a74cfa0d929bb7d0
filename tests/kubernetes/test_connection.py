"""Address and credentials of the API server: from a kubeconfig, or from a pod's files."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from millpond.errors import ConfigError
from millpond_operator.kubernetes import Client, Connection, Forbidden
from millpond_operator.kubernetes.kinds import NAMESPACE
from tests.cluster.api import Api
from tests.cluster.apiserver import SharedApiServer
from tests.kubernetes.support import connection_of, run


def kubeconfig(path: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> Path:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u" if user else None, "namespace": "mine"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def test_kubeconfig_settings_are_all_read(tmp_path: Path) -> None:
    """Data and files, tokens and certificates, relative to the file."""
    (tmp_path / "ca.crt").write_bytes(b"authority")
    (tmp_path / "token").write_text("secret\n")
    cluster = {"server": "https://k:6443/", "certificate-authority": "ca.crt", "tls-server-name": "other"}
    user = {"client-certificate-data": base64.b64encode(b"chain").decode(), "tokenFile": "token"}
    found = Connection.from_kubeconfig(kubeconfig(tmp_path / "config", cluster, user))
    assert (found.server, found.ca, found.certificate) == ("https://k:6443", b"authority", b"chain")
    assert (found.server_name, found.namespace, found.bearer()) == ("other", "mine", "secret")
    assert "secret" not in repr(found)


def test_in_cluster_settings_are_read(tmp_path: Path) -> None:
    """The files of the service account, and the address in the environment."""
    for name, content in (("token", "secret"), ("ca.crt", "authority"), ("namespace", "operators\n")):
        (tmp_path / name).write_text(content)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = Connection.in_cluster(environ, tmp_path)
    assert (found.server, found.ca, found.bearer()) == ("https://[fd00::1]:6443", b"authority", "secret")
    assert found.namespace == "operators"


def test_first_available_configuration_is_used(tmp_path: Path) -> None:
    """A given kubeconfig precedes the environment, that the pod's account, that the home directory."""
    named = kubeconfig(tmp_path / "named", {"server": "https://named"})
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config", {"server": "https://home"})
    given = kubeconfig(tmp_path / "given", {"server": "https://given"})
    environ = {"KUBECONFIG": f"{given}{os.pathsep}{named}", "HOME": str(tmp_path)}
    assert Connection.find(str(named), environ).server == "https://named"
    assert Connection.find(None, environ).server == "https://given"
    assert Connection.find(None, {"HOME": str(tmp_path)}).server == "https://home"
    with pytest.raises(ConfigError, match="Cannot read the token file"):
        Connection.find(None, {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    with pytest.raises(ConfigError, match="set KUBECONFIG"):
        Connection.find(None, {"HOME": str(tmp_path / "nowhere")})


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({}, None, "has no server"),
        ({"server": "https://k", "certificate-authority-data": "?"}, None, "is not base64"),
        ({"server": "https://k", "certificate-authority": "nowhere"}, None, "Cannot read"),
        ({"server": "https://k"}, {"exec": {"command": "login"}}, "uses the login 'exec', which is not supported"),
    ],
)
def test_unusable_kubeconfig_is_explained(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any] | None, message: str
) -> None:
    """The message names the problem."""
    with pytest.raises(ConfigError, match=message):
        Connection.from_kubeconfig(kubeconfig(tmp_path / "config", cluster, user))


def test_invalid_kubeconfig_file_is_explained(tmp_path: Path) -> None:
    """Missing, invalid, empty, or without its context."""
    with pytest.raises(ConfigError, match="Cannot read"):
        Connection.from_kubeconfig(tmp_path / "nowhere")
    (tmp_path / "broken").write_text("{")
    with pytest.raises(ConfigError, match="Cannot read"):
        Connection.from_kubeconfig(tmp_path / "broken")
    (tmp_path / "empty").write_text("")
    with pytest.raises(ConfigError, match="is empty"):
        Connection.from_kubeconfig(tmp_path / "empty")
    with pytest.raises(ConfigError, match="no context named 'other'"):
        Connection.from_kubeconfig(kubeconfig(tmp_path / "config", {"server": "https://k"}), context="other")


def test_unusable_certificates_are_explained() -> None:
    """They are checked before the first request."""
    with pytest.raises(ConfigError, match="Cannot use the certificates for https://k"):
        Connection("https://k", ca=b"nonsense").ssl_context()


def test_a_kubeconfig_reaches_a_real_api_server(api_server: SharedApiServer, namespace: str, tmp_path: Path) -> None:
    """With a client certificate, and with another server name if the kubeconfig has one."""

    async def scenario(connection: Connection) -> None:
        async with Client(connection) as client:
            assert (await client.get(NAMESPACE, None, namespace))["metadata"]["name"] == namespace

    path = api_server.admin.write_kubeconfig(tmp_path / "config")
    run(scenario(Connection.find(str(path))))
    config = yaml.safe_load(path.read_text())
    config["clusters"][0]["cluster"]["tls-server-name"] = "kubernetes.default.svc"
    path.write_text(yaml.safe_dump(config))
    run(scenario(Connection.find(str(path))))


def test_a_service_accounts_token_reaches_a_real_api_server(
    api_server: SharedApiServer, api: Api, namespace: str
) -> None:
    """Each request has the token."""
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "w", "namespace": namespace}})
    api.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "w", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "w", "namespace": namespace}],
        }
    )
    access = api_server.service_account(api.token(namespace, "w"))

    async def scenario() -> None:
        async with Client(connection_of(access)) as client:
            found = None
            while found is None:
                try:
                    found = await client.get(NAMESPACE, None, namespace)
                except Forbidden:  # the API server has not heard of the binding yet
                    await asyncio.sleep(0.05)
            assert found["metadata"]["name"] == namespace

    run(scenario())
