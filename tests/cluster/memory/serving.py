"""The API server's HTTP side: paths, queries, bodies and responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
import yaml
from aiohttp import web

from tests.cluster.memory import pods
from tests.cluster.memory.access import Access
from tests.cluster.memory.failures import ApiFailure, bad_request, status_of
from tests.cluster.memory.field_management.patching import json_patched, merge_patched, strategically_patched
from tests.cluster.memory.field_management.schemas import Schema
from tests.cluster.memory.kinds import Kind, Kinds
from tests.cluster.memory.resources import Options, Resources
from tests.cluster.memory.store import Entry, Store, encode
from tests.cluster.memory.tokens import Tokens, User
from tests.cluster.memory.watching import Watches, listed

__all__ = ("VERSION", "Front")

Object = dict[str, Any]
VERSION = {
    "major": "1",
    "minor": "34",
    "gitVersion": "v1.34.2",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.24",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_YES = frozenset({"1", "true"})
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode


class _Target:
    """The target of a path."""

    __slots__ = ("kind", "name", "namespace", "subresource")

    def __init__(self, kind: Kind, namespace: str | None, name: str, subresource: str) -> None:
        self.kind = kind
        self.namespace = namespace
        self.name = name
        self.subresource = subresource


class Front:
    """Handles requests."""

    def __init__(
        self, store: Store, kinds: Kinds, resources: Resources, watches: Watches, tokens: Tokens, access: Access
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._resources = resources
        self._watches = watches
        self._tokens = tokens
        self._access = access

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answered(request)
        except ApiFailure as failure:
            headers = {}
            seconds = (failure.details or {}).get("retryAfterSeconds")
            if seconds:
                headers["Retry-After"] = str(seconds)
            return _json(encode(status_of(failure)), failure.code, headers)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, text = request.raw_path.partition("?")
        query = dict(parse_qsl(text, keep_blank_values=True)) if text else {}
        user = self._who(request.headers.get("Authorization", ""))
        target = self._target(path)
        if target is None:
            if not self._access.may_read(user, path):
                raise ApiFailure(403, "Forbidden", f'forbidden: User "{user.name}" cannot get path "{path}"', {})
            return self._document(path)
        method = request.method
        watches = method == "GET" and query.get("watch") in _YES
        verb = self._verb(method, target, watches=watches)
        self._check(user, verb, target)
        if method == "GET":
            if watches:
                return await self._watched(request, target, query)
            if not target.name:
                return _json(listed(self._store, target.kind, target.namespace, query))
            return _json(self._got(target))
        body = await request.read()
        content = request.headers.get("Content-Type", "application/json").partition(";")[0]
        options = Options(
            manager=query.get("fieldManager")
            or request.headers.get("User-Agent", "").partition("/")[0][:128]
            or "unknown",
            dry_run=query.get("dryRun") == "All",
            force=query.get("force") in _YES,
            strict=query.get("fieldValidation") == "Strict",
            subresource=target.subresource,
        )
        return self._written(method, target, body, content, query, options)

    # Who, what, and whether.

    def _who(self, header: str) -> User:
        scheme, _, token = header.partition(" ")
        if scheme != "Bearer":
            return User("system:anonymous", ("system:unauthenticated",))
        user = self._tokens.who(token)
        if user is None:
            raise ApiFailure(401, "Unauthorized", "Unauthorized")
        return user

    @staticmethod
    def _verb(method: str, target: _Target, *, watches: bool) -> str:
        if method == "GET":
            return "watch" if watches else "get" if target.name else "list"
        if method == "DELETE" and not target.name:
            return "deletecollection"
        return _VERBS[method]

    def _check(self, user: User, verb: str, target: _Target) -> None:
        kind, namespace = target.kind, target.namespace or ""
        allowed = self._access.may(
            user,
            verb,
            kind.group,
            kind.plural,
            namespace=namespace if kind.namespaced else "",
            name=target.name,
            subresource=target.subresource,
        )
        if allowed:
            return
        of = f"{kind.plural}/{target.subresource}" if target.subresource else kind.plural
        where = f' in the namespace "{namespace}"' if namespace and kind.namespaced else " at the cluster scope"
        why = f'User "{user.name}" cannot {verb} resource "{of}" in API group "{kind.group}"{where}'
        name = f'{kind.resource} "{target.name}"' if target.name else kind.resource
        details = {"name": target.name, "group": kind.group, "kind": kind.plural}
        details = {key: value for key, value in details.items() if value}
        raise ApiFailure(403, "Forbidden", f"{name} is forbidden: {why}", details)

    def _target(self, path: str) -> _Target | None:
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return None
        namespace: str | None = None
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
            namespace, rest = unquote(rest[1]), rest[2:]
        kind = self._kinds.at(group, version, rest[0])
        if kind is None or len(rest) > 3 or ((namespace is not None) != kind.namespaced and len(rest) > 1):
            raise _no_such_path()
        if namespace is None and not kind.namespaced:
            namespace = ""
        subresource = rest[2] if len(rest) > 2 else ""
        if subresource and subresource not in kind.subresources:
            raise _no_such_path()
        return _Target(kind, namespace, unquote(rest[1]) if len(rest) > 1 else "", subresource)

    def _document(self, path: str) -> web.Response:
        parts = path.strip("/").split("/")
        found: Object | None = None
        match parts:
            case ["version"]:
                found = VERSION
            case ["healthz" | "livez" | "readyz", *_]:
                return web.Response(text="ok")
            case ["api"]:
                found = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            case ["apis"]:
                found = self._kinds.groups()
            case ["api", version]:
                found = self._kinds.resources("", version)
            case ["apis", group]:
                found = self._kinds.group(group)
            case ["apis", group, version]:
                found = self._kinds.resources(group, version)
        if found is None:
            raise _no_such_path()
        return _json(encode(found))

    # Reading.

    def _got(self, target: _Target) -> bytes:
        assert target.namespace is not None
        entry = self._resources.get(target.kind, target.namespace, target.name)
        if target.subresource == "scale":
            return encode(self._resources.scale_of(target.kind, entry.object))
        return entry.raw

    async def _watched(self, request: web.BaseRequest, target: _Target, query: Mapping[str, str]) -> web.StreamResponse:
        lines = self._watches.watch(target.kind, target.namespace, query, target.name)
        try:
            first = await anext(lines)  # what is wrong with the query is said before the answer begins
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            response.enable_chunked_encoding()
            await response.prepare(request)
            if first:
                await response.write(first)
            async for each in lines:
                await response.write(each)
            await response.write_eof()
            return response
        finally:
            await lines.aclose()  # type: ignore[attr-defined]

    # Writing.

    def _written(
        self,
        method: str,
        target: _Target,
        body: bytes,
        content: str,
        query: Mapping[str, str],
        options: Options,
    ) -> web.Response:
        kind, resources = target.kind, self._resources
        namespace = target.namespace
        if namespace is None:
            raise bad_request("an empty namespace may not be set during creation")
        match method:
            case "POST":
                if target.subresource:
                    return self._posted(target, _parsed(body, content), options)
                if target.name:
                    raise ApiFailure(
                        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
                    )
                if not kind.stored:
                    return _json(encode(self._reviewed(kind, _parsed(body, content))), 201)
                return _json(resources.create(kind, namespace, _parsed(body, content), options).raw, 201)
            case "PUT":
                entry, new = resources.replace(kind, namespace, target.name, _parsed(body, content), options)
                return _json(entry.raw, 201 if new else 200)
            case "PATCH":
                entry, new = self._patched(target, body, content, query, options)
                return _json(entry.raw, 201 if new else 200)
            case "DELETE":
                return self._deleted(target, _parsed(body, content) if body else {}, query, options)
        raise ApiFailure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _patched(
        self, target: _Target, body: bytes, content: str, query: Mapping[str, str], options: Options
    ) -> tuple[Entry, bool]:
        kind, namespace, name = target.kind, target.namespace or "", target.name
        if content == _APPLY:
            if not query.get("fieldManager"):
                causes = (
                    'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
                )
                raise ApiFailure(422, "Invalid", causes)
            return self._resources.apply(kind, namespace, name, _parsed(body, "application/yaml"), options)
        given = _parsed(body, content)
        if content == _MERGE:
            if not isinstance(given, dict):
                raise bad_request("json: cannot unmarshal array into Go value of type map[string]interface {}")

            def change(item: Object, _: Schema) -> Any:
                return merge_patched(item, given)
        elif content == _JSON_PATCH:

            def change(item: Object, _: Schema) -> Any:
                return json_patched(item, given)
        elif content == _STRATEGIC and kind.type:

            def change(item: Object, schema: Schema) -> Any:
                return strategically_patched(schema, item, given)
        else:
            raise ApiFailure(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: "
                f"{_JSON_PATCH}, {_MERGE}, {_APPLY}",
            )
        return self._resources.patch(kind, namespace, name, change, options), False

    def _deleted(self, target: _Target, given: Object, query: Mapping[str, str], options: Options) -> web.Response:
        kind, namespace = target.kind, target.namespace or ""
        given = dict(given)
        for field in ("propagationPolicy", "gracePeriodSeconds"):
            if field in query:
                given.setdefault(field, int(query[field]) if field == "gracePeriodSeconds" else query[field])
        dry_run = options.dry_run or given.get("dryRun") == ["All"]
        if not target.name:
            answer = listed(self._store, kind, namespace, query)
            for each in json.loads(answer)["items"]:
                self._resources.delete(kind, namespace, each["metadata"]["name"], given, dry_run=dry_run)
            return _json(answer)
        entry, gone = self._resources.delete(kind, namespace, target.name, given, dry_run=dry_run)
        if not gone or kind.kind in {"Pod", "Service", "ServiceAccount", "PersistentVolumeClaim"}:
            return _json(entry.raw)
        details = {
            "name": target.name,
            "group": kind.group,
            "kind": kind.plural,
            "uid": entry.object["metadata"]["uid"],
        }
        details = {key: value for key, value in details.items() if value}
        return _json(
            encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
        )

    def _posted(self, target: _Target, given: Object, options: Options) -> web.Response:
        """Subresources that are commands."""
        kind, namespace, name = target.kind, target.namespace or "", target.name
        success = encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
        match target.subresource:
            case "token":
                return _json(encode(self._tokens.request(namespace, name, given)), 201)
            case "binding":
                pods.bind(self._resources, kind, namespace, name, given)
                return _json(success, 201)
            case "eviction":
                pods.evict(self._resources, kind, namespace, name, given)
                return _json(success, 201)
        raise ApiFailure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _reviewed(self, kind: Kind, given: Object) -> Object:
        if kind.kind == "TokenReview":
            return self._tokens.review(given)
        spec = given.get("spec") or {}
        user = User(spec.get("user", ""), (*(spec.get("groups") or ()), "system:authenticated"))
        name = user.name.removeprefix("system:serviceaccount:")
        if name != user.name:
            space = name.partition(":")[0]
            user = user._replace(groups=(*user.groups, "system:serviceaccounts", f"system:serviceaccounts:{space}"))
        asked = spec.get("resourceAttributes")
        if asked is not None:
            allowed = self._access.may(
                user,
                asked.get("verb", ""),
                asked.get("group", ""),
                asked.get("resource", ""),
                namespace=asked.get("namespace", ""),
                name=asked.get("name", ""),
                subresource=asked.get("subresource", ""),
            )
        else:
            allowed = self._access.may_read(user, (spec.get("nonResourceAttributes") or {}).get("path", ""))
        return {**given, "metadata": {}, "status": {"allowed": allowed}}


def _parsed(body: bytes, content: str) -> Any:
    try:
        return _decode(body)
    except msgspec.DecodeError:
        if content not in {"application/yaml", _APPLY}:
            raise bad_request("the object provided is unrecognized: the body is no JSON") from None
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from None


def _json(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": "application/json", **(headers or {})})


def _no_such_path() -> ApiFailure:
    return ApiFailure(404, "NotFound", "the server could not find the requested resource", {})
