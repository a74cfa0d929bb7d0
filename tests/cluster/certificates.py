"""Identities in a test's cluster: a certificate authority in a directory, and access to an API server in all forms."""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

__all__ = ("Access", "Authority", "service_account_key")


@dataclass(frozen=True)
class Access:
    """Address of an API server, and credentials."""

    url: str
    ca_file: Path
    certificate_file: Path | None = None
    """Certificate and key of a user, PEM."""
    token: str | None = None
    """Of a service account."""

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context of a client."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file)
        return context

    def at(self, url: str) -> Access:
        """The same through another address, with a certificate of the same authority."""
        return replace(self, url=url)

    def kubeconfig(self) -> dict[str, Any]:
        """The kubeconfig for kubectl and client libraries."""
        user: dict[str, Any] = {}
        if self.certificate_file is not None:
            pem = _encoded(self.certificate_file)
            user = {"client-certificate-data": pem, "client-key-data": pem}
        if self.token is not None:
            user = {"token": self.token}
        cluster = {"server": self.url, "certificate-authority-data": _encoded(self.ca_file)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }

    def write_kubeconfig(self, path: Path) -> Path:
        """Write `kubeconfig` to a private file; return its path."""
        path.touch(mode=0o600)
        path.write_text(json.dumps(self.kubeconfig()))  # JSON is YAML
        return path


class Authority:
    """A certificate authority that several processes use, with its key in a file.

    Args:
        directory: of its files; an existing authority is used again.
    """

    def __init__(self, directory: Path) -> None:
        self.ca_file = directory / "ca.crt"
        self._directory = directory
        key = directory / "ca.key"
        if key.exists():
            self._ca = trustme.CA.from_pem(self.ca_file.read_bytes(), key.read_bytes())
        else:
            self._ca = trustme.CA(organization_name="tests")
            self._ca.cert_pem.write_to_path(str(self.ca_file))
            self._ca.private_key_pem.write_to_path(str(key))

    def server(self, name: str, *hosts: str) -> Path:
        """A server's certificate and key in one file."""
        return self._issue(name, *hosts, common_name=name)

    def client(self, user: str, group: str | None = None) -> Path:
        """A user's certificate and key in one file; the organization is the group in Kubernetes."""
        name = f"user-{user}-{group}".replace(":", "-").replace("/", "-")
        # The host is of no use, but trustme would mark an empty list of names as critical, and Go would refuse that.
        return self._issue(name, "localhost", common_name=user, organization_name=group)

    def _issue(self, name: str, *hosts: str, common_name: str, organization_name: str | None = None) -> Path:
        path = self._directory / f"{name}.pem"
        if not path.exists():
            leaf = self._ca.issue_cert(*hosts, common_name=common_name, organization_name=organization_name)
            part = path.with_suffix(".part")
            leaf.private_key_and_cert_chain_pem.write_to_path(str(part))
            part.rename(path)
        return path


def service_account_key(path: Path) -> Path:
    """A new key that signs service accounts' tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    return path


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
