"""The requests of the canary: to the operator, and to the Kubernetes API with the token of its pod."""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol

from millpond.errors import MillpondError

__all__ = ("CanaryFailed", "Cluster", "PodCluster")

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_GROUP = "/apis/millpond.dev/v1alpha1"
_TIMEOUT_S = 10.0


class CanaryFailed(MillpondError):
    """The installation does not work."""


class Cluster(Protocol):
    """What the canary needs of a cluster."""

    def operator_ready(self) -> str:
        """Return "" if the leading operator is ready, else the reason why not."""

    def kinds(self) -> set[str]:
        """Return the names of the resources that the API server serves in millpond's group."""

    def create(self, manifest: Mapping[str, Any]) -> None:
        """Create a StreamApp."""

    def find(self, name: str) -> dict[str, Any] | None:
        """Return a StreamApp; None if there is none."""

    def delete(self, name: str) -> None:
        """Delete a StreamApp if there is one."""


class PodCluster:
    """The cluster in which this process is a pod.

    Args:
        operator_url: the base URL of the operator's HTTP port.
        account: the directory of the pod's service account.
        server: the URL of the API server; by default that of the environment.
    """

    def __init__(self, operator_url: str, account: Path = ACCOUNT, server: str | None = None) -> None:
        self._operator = operator_url.rstrip("/")
        self._account = account
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        self._server = server or f"https://{f'[{host}]' if ':' in host else host}:{port}"

    def operator_ready(self) -> str:
        """Return "" if the leading operator is ready, else the reason why not."""
        url = f"{self._operator}/readyz"
        try:
            with _opener().open(url, timeout=_TIMEOUT_S):
                return ""
        except urllib.error.HTTPError as error:
            return f"{url} answers {error.code}: {error.read().decode(errors='replace').strip()[:200]}"
        except (OSError, HTTPException) as error:
            return f"{url} does not answer: {error}"

    def kinds(self) -> set[str]:
        """Return the names of the resources that the API server serves in millpond's group."""
        found = self._request("GET", _GROUP, missing={"resources": []})
        return {each["name"] for each in (found or {}).get("resources", ())}

    def create(self, manifest: Mapping[str, Any]) -> None:
        """Create a StreamApp in the pod's namespace."""
        self._request("POST", self._path(), manifest)

    def find(self, name: str) -> dict[str, Any] | None:
        """Return a StreamApp of the pod's namespace; None if there is none."""
        return self._request("GET", self._path(name))

    def delete(self, name: str) -> None:
        """Delete a StreamApp of the pod's namespace if there is one."""
        self._request("DELETE", self._path(name))

    def _path(self, name: str | None = None) -> str:
        namespace = (self._account / "namespace").read_text(encoding="utf-8").strip()
        return f"{_GROUP}/namespaces/{namespace}/streamapps" + (f"/{name}" if name else "")

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, missing: dict[str, Any] | None = None
    ) -> dict[str, Any] | None:
        token = (self._account / "token").read_text(encoding="utf-8").strip()
        request = urllib.request.Request(  # noqa: S310 - the address of the API server
            f"{self._server}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            method=method,
        )
        context = ssl.create_default_context(cafile=self._account / "ca.crt")
        try:
            with _opener(urllib.request.HTTPSHandler(context=context)).open(request, timeout=_TIMEOUT_S) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND and method != "POST":
                return missing
            raise CanaryFailed(f"The API server refuses {method} {path}: {_message(error)}") from error
        except (OSError, HTTPException) as error:
            raise CanaryFailed(f"The API server does not answer {method} {path}: {error}") from error


def _opener(*handlers: urllib.request.BaseHandler) -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), *handlers)


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return str(error)
