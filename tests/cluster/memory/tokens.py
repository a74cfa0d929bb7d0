"""Authentication: tokens of users and of service accounts."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from tests.cluster.memory.failures import ApiFailure, bad_request, not_found
from tests.cluster.memory.kinds import Kinds
from tests.cluster.memory.store import Store

__all__ = ("AUDIENCE", "Tokens", "User")

Object = dict[str, Any]
AUDIENCE = "https://kubernetes.default.svc"
_SHORTEST_S, _LONGEST_S = 600, 2**32


class User(NamedTuple):
    """An authenticated user."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: tuple[tuple[str, str], ...] = ()


class Tokens:
    """The issued tokens."""

    def __init__(self, store: Store, kinds: Kinds, now: Callable[[], datetime]) -> None:
        self._store = store
        self._kinds = kinds
        self._now = now
        self._users: dict[str, User] = {}
        self._claims: dict[str, Object] = {}

    def of_user(self, name: str, group: str | None) -> str:
        """A token of a user that never expires."""
        token = f"user-{name}-{group or ''}"
        groups = ("system:authenticated",) if group is None else (group, "system:authenticated")
        self._users[token] = User(name, groups)
        return token

    def who(self, token: str) -> User | None:
        """Return the owner of a token for this server; None for an unknown token."""
        found = self._users.get(token)
        if found is not None:
            return found
        user, _ = self._reviewed(token, [AUDIENCE])
        return user

    def request(self, namespace: str, name: str, given: Object) -> Object:
        """Answer a TokenRequest.

        Raises:
            ApiFailure: there is no such service account, or no such pod.
        """
        kind = self._kinds.at("", "v1", "serviceaccounts")
        pods = self._kinds.at("", "v1", "pods")
        assert kind is not None and pods is not None
        account = self._store.get(kind, namespace, name)
        if account is None:
            raise not_found(kind, name)
        spec = dict(given.get("spec") or {})
        seconds = spec.get("expirationSeconds") or 3600
        if not _SHORTEST_S <= seconds <= _LONGEST_S:
            raise ApiFailure(
                422,
                "Invalid",
                f'TokenRequest.authentication.k8s.io "{name}" is invalid: spec.expirationSeconds: '
                f"Invalid value: {seconds}: "
                "may not specify a duration less than 10 minutes",
            )
        audiences = spec.get("audiences") or [AUDIENCE]
        now = self._now()
        expires = now + timedelta(seconds=seconds)
        inside: Object = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": account.object["metadata"]["uid"]},
        }
        bound = spec.get("boundObjectRef")
        if bound:
            if bound.get("kind") != "Pod":
                raise bad_request("cannot bind token for object of that kind")
            pod = self._store.get(pods, namespace, bound["name"])
            if pod is None:
                raise not_found(pods, bound["name"])
            metadata = pod.object["metadata"]
            if bound.get("uid") not in (None, "", metadata["uid"]):
                raise ApiFailure(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on pods "{bound["name"]}": the UID in the bound object reference '
                    f"({bound['uid']}) does not match the UID in record. The object might have been deleted and then "
                    "recreated",
                    {"name": bound["name"], "kind": "pods", "uid": bound["uid"]},
                )
            if pod.object["spec"].get("serviceAccountName") != name:
                raise bad_request(
                    f"cannot bind token for serviceaccount {name!r} to pod running with different serviceaccount name."
                )
            inside["pod"] = {"name": metadata["name"], "uid": metadata["uid"]}
        claims = {
            "aud": audiences,
            "exp": int(expires.timestamp()),
            "iat": int(now.timestamp()),
            "iss": AUDIENCE,
            "jti": secrets.token_hex(16),
            "kubernetes.io": inside,
            "nbf": int(now.timestamp()),
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        token = ".".join((_encoded({"alg": "none"}), _encoded(claims), secrets.token_urlsafe(32)))
        self._claims[token] = claims
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ")},
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": bound or None,
            },
            "status": {"token": token, "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ")},
        }

    def review(self, given: Object) -> Object:
        """Answer a TokenReview."""
        spec = given.get("spec") or {}
        user, audiences = self._reviewed(spec.get("token", ""), spec.get("audiences") or [AUDIENCE])
        status: Object = {"user": {}}
        if user is None:
            status["error"] = audiences[0] if audiences else "invalid bearer token"
        else:
            extra: dict[str, list[str]] = {}
            for key, value in user.extra:
                extra.setdefault(key, []).append(value)
            status = {
                "authenticated": True,
                "user": {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra},
                "audiences": audiences,
            }
            status["user"] = {key: value for key, value in status["user"].items() if value}
        return {**given, "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "status": status}

    def _reviewed(self, token: str, audiences: list[str]) -> tuple[User | None, list[str]]:
        """Return the owner of a token and the audiences it is for, or why it is rejected."""
        claims = self._claims.get(token)
        if claims is None:
            return None, ["invalid bearer token"]
        common = [each for each in audiences if each in claims["aud"]]
        if not common:
            return None, [f"token audiences {claims['aud']} is invalid for the target audiences {audiences}"]
        if self._now().timestamp() >= claims["exp"]:
            return None, ["[invalid bearer token, service account token has expired]"]
        inside = claims["kubernetes.io"]
        namespace, account = inside["namespace"], inside["serviceaccount"]
        accounts, pods = self._kinds.at("", "v1", "serviceaccounts"), self._kinds.at("", "v1", "pods")
        assert accounts is not None and pods is not None
        found = self._store.get(accounts, namespace, account["name"])
        if found is None or found.object["metadata"]["uid"] != account["uid"]:
            return None, ["[invalid bearer token, service account token has been invalidated]"]
        extra = [("authentication.kubernetes.io/credential-id", f"JTI={claims['jti']}")]
        if "pod" in inside:
            pod = self._store.get(pods, namespace, inside["pod"]["name"])
            if pod is None or pod.object["metadata"]["uid"] != inside["pod"]["uid"]:
                return None, ["[invalid bearer token, pod no longer exists]"]
            extra += [
                ("authentication.kubernetes.io/pod-name", inside["pod"]["name"]),
                ("authentication.kubernetes.io/pod-uid", inside["pod"]["uid"]),
            ]
            if node := pod.object["spec"].get("nodeName"):
                extra.append(("authentication.kubernetes.io/node-name", node))
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        return User(claims["sub"], groups, account["uid"], tuple(extra)), common


def _encoded(value: Object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()
