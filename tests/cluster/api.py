"""A small client of the API server for tests: what users do with kubectl, independent of the operator.

`Api` is for tests, `AsyncApi` for code in an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from tests.cluster.background import Background
from tests.cluster.certificates import Access

__all__ = ("KINDS", "Api", "ApiFailure", "AsyncApi", "Kind", "Object", "path_of")

Object = dict[str, Any]
"""As JSON has it."""

APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_PAGE = 500
_TIMEOUT_S = 30.0


class Kind(NamedTuple):
    """The path of the objects of a kind."""

    api_version: str
    plural: str
    namespaced: bool = True


KINDS: dict[str, Kind] = {
    "StreamApp": Kind("millpond.dev/v1alpha1", "streamapps"),
    "StateBootstrap": Kind("millpond.dev/v1alpha1", "statebootstraps"),
    "StreamAssignment": Kind("millpond.dev/v1alpha1", "streamassignments"),
    "ConfigMap": Kind("v1", "configmaps"),
    "Event": Kind("v1", "events"),
    "Namespace": Kind("v1", "namespaces", namespaced=False),
    "Node": Kind("v1", "nodes", namespaced=False),
    "PersistentVolumeClaim": Kind("v1", "persistentvolumeclaims"),
    "Pod": Kind("v1", "pods"),
    "Secret": Kind("v1", "secrets"),
    "Service": Kind("v1", "services"),
    "ServiceAccount": Kind("v1", "serviceaccounts"),
    "ControllerRevision": Kind("apps/v1", "controllerrevisions"),
    "Deployment": Kind("apps/v1", "deployments"),
    "StatefulSet": Kind("apps/v1", "statefulsets"),
    "TokenReview": Kind("authentication.k8s.io/v1", "tokenreviews", namespaced=False),
    "SubjectAccessReview": Kind("authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False),
    "Job": Kind("batch/v1", "jobs"),
    "Lease": Kind("coordination.k8s.io/v1", "leases"),
    "Endpoints": Kind("v1", "endpoints"),
    "EndpointSlice": Kind("discovery.k8s.io/v1", "endpointslices"),
    "NetworkPolicy": Kind("networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": Kind("policy/v1", "poddisruptionbudgets"),
    "Role": Kind("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": Kind("rbac.authorization.k8s.io/v1", "rolebindings"),
    "ClusterRole": Kind("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False),
    "ClusterRoleBinding": Kind("rbac.authorization.k8s.io/v1", "clusterrolebindings", namespaced=False),
    "CustomResourceDefinition": Kind("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False),
    "FlowSchema": Kind("flowcontrol.apiserver.k8s.io/v1", "flowschemas", namespaced=False),
    "PriorityClass": Kind("scheduling.k8s.io/v1", "priorityclasses", namespaced=False),
    "StorageClass": Kind("storage.k8s.io/v1", "storageclasses", namespaced=False),
    "ValidatingAdmissionPolicy": Kind(
        "admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False
    ),
    "ValidatingAdmissionPolicyBinding": Kind(
        "admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False
    ),
    "PodMonitor": Kind("monitoring.coreos.com/v1", "podmonitors"),
    "PrometheusRule": Kind("monitoring.coreos.com/v1", "prometheusrules"),
    "Certificate": Kind("cert-manager.io/v1", "certificates"),
}


class ApiFailure(Exception):
    """The API server rejected a request.

    Attributes:
        status: of HTTP.
        reason: Kubernetes' reason, e.g. `Conflict`.
        message: its message.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


def path_of(kind: str, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
    """The path of an object, or of a list without `name`; a list of all namespaces without `namespace`."""
    found = KINDS[kind]
    parts = ["/api" if "/" not in found.api_version else "/apis", found.api_version]
    if found.namespaced and namespace is not None:
        parts += ["namespaces", quote(namespace)]
    parts += [found.plural, *(quote(part, safe=":") for part in (name, subresource) if part is not None)]
    return "/".join(parts)


def path_to(given: Object, *, subresource: str | None = None, named: bool = True) -> str:
    """The path of an existing object, or of the list that it belongs to."""
    metadata = given.get("metadata", {})
    return path_of(given["kind"], metadata.get("namespace"), metadata["name"] if named else None, subresource)


class AsyncApi:
    """The client. An async context manager.

    Args:
        access: address and credentials of the API server.
        agent: its name in `User-Agent`, by which a proxy or an audit may identify it.
    """

    def __init__(self, access: Access, agent: str = "millpond-tests") -> None:
        self.access = access
        self._agent = agent
        self._tls = access.ssl_context()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        headers = {"User-Agent": self._agent}
        if self.access.token is not None:
            headers["Authorization"] = f"Bearer {self.access.token}"
        self._session = aiohttp.ClientSession(
            base_url=self.access.url, headers=headers, connector=aiohttp.TCPConnector(ssl=self._tls, limit=0)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def request(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json", **query: str
    ) -> Object:
        """Send any request.

        Raises:
            ApiFailure: the response is an error.
        """
        assert self._session is not None
        url = f"{path}?{urlencode(query)}" if query else path
        async with self._session.request(
            method,
            url,
            data=None if body is None else msgspec.json.encode(body),
            headers={"Content-Type": content},
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
        ) as response:
            raw = await response.read()
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise _failure(response.status, raw)
        return msgspec.json.decode(raw) if raw[:1] in {b"{", b"["} else {"text": raw.decode(errors="replace")}

    async def get(self, kind: str, namespace: str | None, name: str) -> Object:
        return await self.request("GET", path_of(kind, namespace, name))

    async def find(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """Return an object, or None if there is none."""
        try:
            return await self.get(kind, namespace, name)
        except ApiFailure as failure:
            if failure.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    async def page(self, kind: str, namespace: str | None = None, **query: str) -> tuple[list[Object], str]:
        """Return all objects of a kind, and the resource version of the list."""
        items: list[Object] = []
        more: dict[str, str] = {}
        while True:
            answer = await self.request("GET", path_of(kind, namespace), limit=str(_PAGE), **query, **more)
            items += answer["items"]
            if not (token := answer["metadata"].get("continue")):
                break
            more = {"continue": token}
        for item in items:
            item["kind"], item["apiVersion"] = kind, KINDS[kind].api_version
        return items, answer["metadata"]["resourceVersion"]

    async def list(self, kind: str, namespace: str | None = None, labels: str | None = None) -> list[Object]:
        return (await self.page(kind, namespace, **({"labelSelector": labels} if labels else {})))[0]

    async def create(self, given: Object) -> Object:
        return await self.request("POST", path_to(given, named=False), given)

    async def apply(
        self, given: Object, *, manager: str = "user", subresource: str | None = None, dry_run: bool = False
    ) -> Object:
        """Apply (server-side, conflicts forced)."""
        query = {"fieldManager": manager, "force": "true", **({"dryRun": "All"} if dry_run else {})}
        return await self.request("PATCH", path_to(given, subresource=subresource), given, content=APPLY, **query)

    async def replace(self, given: Object, *, subresource: str | None = None) -> Object:
        return await self.request("PUT", path_to(given, subresource=subresource), given)

    async def patch(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any] | Sequence[Object],
        *,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Apply a merge patch, or a JSON patch if it is a list."""
        content = _MERGE if isinstance(patch, Mapping) else _JSON_PATCH
        query = {"dryRun": "All"} if dry_run else {}
        return await self.request("PATCH", path_of(kind, namespace, name, subresource), patch, content=content, **query)

    async def delete(self, kind: str, namespace: str | None, name: str, **options: Any) -> None:
        """Delete an object, if there is one; `options` are those of DeleteOptions."""
        try:
            await self.request("DELETE", path_of(kind, namespace, name), options or None)
        except ApiFailure as failure:
            if failure.status != HTTPStatus.NOT_FOUND:
                raise

    async def scale(self, kind: str, namespace: str, name: str, replicas: int) -> None:
        """Like `kubectl scale`."""
        await self.patch(kind, namespace, name, {"spec": {"replicas": replicas}}, subresource="scale")

    async def token(
        self, namespace: str, service_account: str, audience: str | None = None, pod: Object | None = None
    ) -> str:
        """Return a token of a service account; with a pod, one that is valid as long as the pod exists."""
        spec: Object = {"expirationSeconds": 3600, "audiences": [audience] if audience else []}
        if pod is not None:
            bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            spec["boundObjectRef"] = bound
        path = path_of("ServiceAccount", namespace, service_account, "token")
        answer = await self.request("POST", path, {"spec": spec})
        return str(answer["status"]["token"])

    async def watch(
        self, kind: str, version: str, namespace: str | None = None, **query: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yield changes since a version, until the API server ends it: `ADDED`, `MODIFIED` or `DELETED`, and the
        object.

        Raises:
            ApiFailure: the version is too old.
        """
        assert self._session is not None
        asked = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", **query}
        url = f"{path_of(kind, namespace)}?{urlencode(asked)}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT_S)
        async with self._session.get(url, timeout=timeout) as response:
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise _failure(response.status, await response.read())
            buffered = b""
            async for chunk in response.content.iter_any():
                *lines, buffered = (buffered + chunk).split(b"\n")
                for line in lines:
                    event = msgspec.json.decode(line)
                    if event["type"] == "ERROR":
                        raise _failure(event["object"].get("code", 500), msgspec.json.encode(event["object"]))
                    yield event["type"], event["object"]

    async def follow(
        self, kind: str, seen: Callable[[str, Object], Awaitable[None]], namespace: str | None = None, **query: str
    ) -> None:
        """List and watch until cancelled: `ADDED` for each existing object, then each change.

        After a lost watch, objects come as `ADDED` again; objects deleted meanwhile come as `DELETED`.
        """
        known: dict[str, Object] = {}
        while True:
            items, version = await self.page(kind, namespace, **query)
            there = {item["metadata"]["uid"]: item for item in items}
            for uid in known.keys() - there.keys():
                await seen("DELETED", known[uid])
            known = there
            for item in items:
                await seen("ADDED", item)
            try:
                async for change, item in self.watch(kind, version, namespace, **query):
                    if change == "BOOKMARK":
                        continue
                    if change == "DELETED":
                        known.pop(item["metadata"]["uid"], None)
                    else:
                        known[item["metadata"]["uid"]] = item
                    await seen(change, item)
            except (ApiFailure, aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.1)


class Api:
    """`AsyncApi` for blocking tests: each call returns when it is done.

    Attributes:
        inside: the client in the background's loop.
    """

    def __init__(self, background: Background, access: Access, agent: str = "millpond-tests") -> None:
        self.access = access
        self.background = background
        self.inside = AsyncApi(access, agent)

    def __enter__(self) -> Self:
        self.background.call(self.inside.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.background.call(self.inside.__aexit__())

    def request(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json", **q: str
    ) -> Object:
        """See `AsyncApi`, here and below."""
        return self.background.call(self.inside.request(method, path, body, content=content, **q))

    def get(self, kind: str, namespace: str | None, name: str) -> Object:
        return self.background.call(self.inside.get(kind, namespace, name))

    def find(self, kind: str, namespace: str | None, name: str) -> Object | None:
        return self.background.call(self.inside.find(kind, namespace, name))

    def list(self, kind: str, namespace: str | None = None, labels: str | None = None) -> list[Object]:
        return self.background.call(self.inside.list(kind, namespace, labels))

    def create(self, given: Object) -> Object:
        return self.background.call(self.inside.create(given))

    def apply(
        self, given: Object, *, manager: str = "user", subresource: str | None = None, dry_run: bool = False
    ) -> Object:
        return self.background.call(self.inside.apply(given, manager=manager, subresource=subresource, dry_run=dry_run))

    def replace(self, given: Object, *, subresource: str | None = None) -> Object:
        return self.background.call(self.inside.replace(given, subresource=subresource))

    def patch(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any] | Sequence[Object],
        *,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        return self.background.call(
            self.inside.patch(kind, namespace, name, patch, subresource=subresource, dry_run=dry_run)
        )

    def delete(self, kind: str, namespace: str | None, name: str, **options: Any) -> None:
        self.background.call(self.inside.delete(kind, namespace, name, **options))

    def scale(self, kind: str, namespace: str, name: str, replicas: int) -> None:
        self.background.call(self.inside.scale(kind, namespace, name, replicas))

    def token(
        self, namespace: str, service_account: str, audience: str | None = None, pod: Object | None = None
    ) -> str:
        return self.background.call(self.inside.token(namespace, service_account, audience, pod))


def _failure(status: int, raw: bytes) -> ApiFailure:
    try:
        told = msgspec.json.decode(raw)
        return ApiFailure(status, str(told.get("reason", "")), str(told.get("message", "")))
    except ValueError:
        return ApiFailure(status, "", raw.decode(errors="replace").strip())
