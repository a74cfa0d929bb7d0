"""A client of the API server: few verbs, JSON by msgspec, persistent connections.

Reads are retried for a while when the API server is busy or unavailable. Writes never are: a write without a response
may have happened, so the work queue reads the state again and decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from millpond.backoff import Backoff
from millpond.protocol import clock

from .connection import Connection
from .discovery import document_of, names_in, versions_in
from .errors import Expired, NotFound, TooManyRequests, Unauthorized, Unavailable, error_of
from .kinds import TOKEN_REVIEW, Kind

__all__ = ("FIELD_MANAGER", "Client", "Object", "Page", "RequestMetrics", "decoded")

log = logging.getLogger(__name__)

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object, as in JSON."""
_Objects: TypeAlias = list[Object]  # inside Client, `list` is its method

FIELD_MANAGER = "millpond-operator"
_APPLY = "application/apply-patch+yaml"
_MERGE_PATCH, _JSON_PATCH, _JSON = "application/merge-patch+json", "application/json-patch+json", "application/json"
_PAGE = 500
_READ_TIMEOUT_S = 10.0
_BACKOFF = Backoff(timedelta(milliseconds=100), timedelta(seconds=2), jitter=0.5)
_LIST_TIMEOUT_FACTOR = 3
_MAX_WARNINGS = 256


class RequestMetrics(Protocol):
    """Receives every request."""

    def requested(self, method: str, verb: str, code: str, seconds: float) -> None:
        """Record a request that ended.

        Args:
            method: of HTTP.
            verb: `get`, `list`, `apply`, ...
            code: the status, or `<error>` when there was no response.
            seconds: how long it took.
        """


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    next: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True)
class Page:
    """A part of a list. Its objects are not decoded: most are known already, by their versions."""

    items: Sequence[msgspec.Raw]
    version: int
    """The resource version of the whole list."""


_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Object] = msgspec.json.Decoder(Object).decode
_decode_list = msgspec.json.Decoder(_List).decode


@dataclass(frozen=True)
class _Request:
    verb: str
    method: str
    path: str
    body: bytes | None
    content_type: str
    patience: int = 1
    """The timeout, in multiples of the client's."""
    accept: str = "application/json"
    guard: Callable[[], None] = lambda: None
    """Called before the request is sent; raises to prevent it."""


class Client:
    """A client of the API server. Use it as an async context manager, within one event loop.

    Args:
        connection: address and credentials.
        guard: called before every write; raises `LeadershipLost` to prevent it.
        metrics: receives every request.
        timeout: of one request. A page of a list may take three times as long.
        concurrency: how many requests may be in flight; more wait.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        guard: Callable[[], None] = lambda: None,
        metrics: RequestMetrics | None = None,
        timeout: timedelta = timedelta(seconds=10),
        concurrency: int = 64,
    ) -> None:
        self.connection = connection
        self._guard = guard
        self._metrics = metrics
        self._timeout = timeout
        self._free = asyncio.Semaphore(concurrency)
        self._session: aiohttp.ClientSession | None = None
        self._warned: set[str] = set()

    async def __aenter__(self) -> Self:
        self._session = self.connection.session(self._timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """Read one object.

        Raises:
            NotFound: there is none with this name.
            ApiError: it cannot be read, even after retries.
        """
        return _decode(await self._read("get", kind.path(namespace, name)))

    async def list(
        self, kind: Kind, namespace: str | None = None, *, labels: str | None = None, fields: str | None = None
    ) -> tuple[_Objects, str]:
        """Read all objects of a kind, page by page, as of one moment.

        Args:
            kind: their kind.
            namespace: None for all namespaces.
            labels: a label selector.
            fields: a field selector.

        Returns:
            The objects, and the resource version of the moment.

        Raises:
            ApiError: they cannot be read, even after retries.
        """
        while True:
            items: _Objects = []
            version = 0
            try:
                async for page in self.pages(kind, namespace, labels=labels, fields=fields):
                    items.extend(decoded(kind, item) for item in page.items)
                    version = page.version
            except Expired:
                log.info(
                    "list of %s: the API server dropped its version between two pages; reading it again", kind.plural
                )
            else:
                return items, str(version)

    async def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: str | None = None, fields: str | None = None
    ) -> AsyncIterator[Page]:
        """Read a list page by page, without decoding its objects: for long lists with few news.

        Raises:
            Expired: the API server does not remember the moment of the first page any more.
            ApiError: a page cannot be read, even after retries.
        """
        path, query = kind.path(namespace), {"limit": str(_PAGE)}
        if labels is not None:
            query["labelSelector"] = labels
        if fields is not None:
            query["fieldSelector"] = fields
        while True:
            body = await self._read("list", f"{path}?{urlencode(query)}", patience=_LIST_TIMEOUT_FACTOR)
            page = _decode_list(body)
            yield Page(page.items or (), int(page.metadata.resource_version or 0))
            if not page.metadata.next:
                return
            query["continue"] = page.metadata.next

    async def apply(
        self,
        kind: Kind,
        object: Object,
        *,
        subresource: str | None = None,
        force: bool = True,
        field_manager: str = FIELD_MANAGER,
    ) -> Object:
        """Apply an object (server-side apply).

        Args:
            kind: its kind.
            object: the wanted fields. With `metadata.resourceVersion` it is applied to that version only.
            subresource: `status` or `scale`.
            force: whether to take over fields that another manager owns.
            field_manager: the manager that applies.

        Returns:
            The object as it is now.

        Raises:
            Conflict: the object has another version, or another manager owns a field of it.
            Invalid: it breaks a rule of its kind.
            ApiError: anything else.
        """
        meta = object["metadata"]
        path = kind.path(meta.get("namespace"), meta["name"], subresource)
        query = {"fieldManager": field_manager, "force": "true" if force else "false"}
        return _decode(await self._write("apply", "PATCH", path, _encode(object), _APPLY, query))

    async def create(self, kind: Kind, object: Object) -> Object:
        """Create an object.

        Raises:
            AlreadyExists: there is one with this name.
            ApiError: anything else.
        """
        path = kind.path(object["metadata"].get("namespace"))
        return _decode(await self._write("create", "POST", path, _encode(object), _JSON, _MANAGED))

    async def replace(self, kind: Kind, object: Object, subresource: str | None = None) -> Object:
        """Replace an object as a whole; with `metadata.resourceVersion`, that version only.

        Raises:
            NotFound: there is none with this name.
            Conflict: it has another version.
            ApiError: anything else.
        """
        meta = object["metadata"]
        path = kind.path(meta.get("namespace"), meta["name"], subresource)
        return _decode(await self._write("update", "PUT", path, _encode(object), _JSON, _MANAGED))

    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        subresource: str | None = None,
    ) -> Object:
        """Patch an object.

        Args:
            kind: its kind.
            namespace: None for a cluster-scoped object.
            name: its name.
            patch: a merge patch, or a list of JSON patch operations.
            subresource: `status` or `scale`.

        Raises:
            NotFound: there is none with this name.
            ApiError: anything else.
        """
        content_type = _MERGE_PATCH if isinstance(patch, Mapping) else _JSON_PATCH
        path = kind.path(namespace, name, subresource)
        return _decode(await self._write("patch", "PATCH", path, _encode(patch), content_type, _MANAGED))

    async def delete(  # noqa: PLR0913 - the options of a deletion
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        grace_period_s: int | None = None,
    ) -> Object | None:
        """Delete an object, if there is one.

        Args:
            kind: its kind.
            namespace: None for a cluster-scoped object.
            name: its name.
            uid: only the object with this uid.
            resource_version: only this version of it.
            propagation: `Foreground`, `Background` or `Orphan`.
            grace_period_s: seconds that a pod gets to terminate; 0 to remove it at once.

        Returns:
            The object, if it still exists and is being deleted; None when it does not exist.

        Raises:
            Conflict: it has another uid or version.
            ApiError: anything else.
        """
        conditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "propagationPolicy": propagation,
            "gracePeriodSeconds": grace_period_s,
            "preconditions": {key: value for key, value in conditions.items() if value is not None} or None,
        }
        body = _encode({key: value for key, value in options.items() if value is not None})
        try:
            answer = _decode(await self._write("delete", "DELETE", kind.path(namespace, name), body, _JSON, {}))
        except NotFound:
            return None
        return answer if "deletionTimestamp" in answer.get("metadata", {}) else None

    async def serves(self, kinds: Iterable[Kind]) -> frozenset[Kind]:
        """Return those of these kinds that the API server serves now.

        Raises:
            ApiError: the API server did not answer, even after retries.
        """
        by_document: dict[str, list[Kind]] = {}
        for kind in kinds:
            by_document.setdefault(document_of(kind), []).append(kind)
        served: set[Kind] = set()
        for path, asked in by_document.items():
            try:
                names = names_in(await self._read("discover", path))
            except NotFound:
                continue
            served.update(kind for kind in asked if kind.plural in names)
        return frozenset(served)

    async def versions(self, group: str) -> Sequence[str]:
        """Return the versions of a group that the API server serves now, such as `v1beta1`; none without the group.

        Raises:
            ApiError: the API server did not answer, even after retries.
        """
        try:
            return versions_in(await self._read("discover", f"/apis/{group}"))
        except NotFound:
            return ()

    async def document(self, path: str) -> bytes:
        """Read a document that is no object, such as `/openid/v1/jwks`.

        Raises:
            NotFound: there is none at this path.
            ApiError: it cannot be read, even after retries.
        """
        return await self._read("document", path, accept="*/*")  # keys have a media type of their own

    async def review_token(self, token: str, audience: str) -> Object:
        """Ask the API server to authenticate a token.

        Returns:
            The status of the TokenReview.

        Raises:
            ApiError: the API server did not answer, even after retries.
        """
        review = {
            "apiVersion": TOKEN_REVIEW.api_version,
            "kind": TOKEN_REVIEW.kind,
            "spec": {"token": token, "audiences": [audience]},
        }
        answer = _decode(await self._read("review", TOKEN_REVIEW.path(), "POST", _encode(review)))
        status: Object = answer.get("status") or {}
        return status

    async def _read(  # noqa: PLR0913 - the parts of a request
        self,
        verb: str,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        patience: int = 1,
        accept: str = _JSON,
    ) -> bytes:
        request = _Request(verb, method, path, body, _JSON, patience, accept=accept)
        give_up = clock.monotonic() + _READ_TIMEOUT_S
        waits = iter(_BACKOFF)
        while True:
            try:
                return await self._send(request)
            except (Unavailable, TooManyRequests) as error:
                wait = error.retry_after or next(waits)
                if clock.monotonic() + wait >= give_up:
                    raise
                await asyncio.sleep(wait)

    async def _write(  # noqa: PLR0913 - the parts of a request
        self, verb: str, method: str, path: str, body: bytes, content_type: str, query: Mapping[str, str]
    ) -> bytes:
        if query:
            path = f"{path}?{urlencode(query)}"
        return await self._send(_Request(verb, method, path, body, content_type, guard=self._guard))

    async def _send(self, request: _Request) -> bytes:
        """Send a request; once more if the token may have been replaced since it was read."""
        try:
            return await self._send_once(request)
        except Unauthorized:
            if self.connection.token_file is None:
                raise
            self.connection.token_file.expire()
            return await self._send_once(request)

    async def _send_once(self, request: _Request) -> bytes:
        if self._session is None:
            raise RuntimeError("A client is used as an async context manager: async with Client(...) as client.")
        method, path = request.method, _without_query(request.path)
        timeout_s = request.patience * self._timeout.total_seconds()
        async with self._free:
            request.guard()  # as late as possible: the request may have waited
            began = clock.monotonic()
            code = "<error>"
            try:
                async with self._session.request(
                    method,
                    URL(self.connection.server + request.path, encoded=True),
                    data=request.body,
                    headers={"Accept": request.accept}
                    | ({} if request.body is None else {"Content-Type": request.content_type}),
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=timeout_s),
                ) as response:
                    body = await response.read()
                    code = str(response.status)
                    for warning in response.headers.getall("Warning", ()):
                        self._warn(method, path, warning)
            except TimeoutError as error:
                raise Unavailable(f"The API server did not answer {method} {path} within {timeout_s:g} s.") from error
            except (aiohttp.ClientError, OSError) as error:
                raise Unavailable(
                    f"Cannot reach the API server at {self.connection.server} for {method} {path}: "
                    f"{str(error) or type(error).__name__}."
                ) from error
            finally:
                if self._metrics is not None:
                    self._metrics.requested(method, request.verb, code, clock.monotonic() - began)
        if response.status >= 300:
            raise error_of(method, path, response.status, body, response.headers.get("Retry-After"))
        return body

    def _warn(self, method: str, path: str, warning: str) -> None:
        """Log each warning of the API server once."""
        if warning not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned.add(warning)
            log.warning("API server: warning about %s %s: %s", method, path, warning)


def decoded(kind: Kind, item: msgspec.Raw) -> Object:
    """Decode an object of a list. In lists of built-in kinds, objects have no `apiVersion` and `kind`."""
    object = _decode(item)
    object["apiVersion"] = kind.api_version
    object["kind"] = kind.kind
    return object


_MANAGED = {"fieldManager": FIELD_MANAGER}


def _without_query(path: str) -> str:
    return path.partition("?")[0]
