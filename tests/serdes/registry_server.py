"""The registry of `millpond dev`, with faults, and a log of requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from millpond.broker.registry import Answer, Schemas, serving_registry


class RegistryServer(Schemas):
    """`failing` answers everything with that status; schemas of `incompatible` subjects are rejected."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        self.requests: list[str] = []
        self.authorization: list[str | None] = []
        self.failing: int | None = None
        self.incompatible: set[str] = set()
        self.protobuf_sources = False
        """Whether Protobuf schemas are sent as sources, as by a real registry, unless `format=serialized` is asked."""

    def respond(self, method: str, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        """Status and document for one request."""
        target, query = urlsplit(path).path, urlsplit(path).query
        self.requests.append(f"{method} {target}")
        self.authorization.append(headers.get("Authorization"))
        if self.failing is not None:
            return self.failing, {"error_code": self.failing * 100, "message": "not now"}
        match method, [unquote(part) for part in target.strip("/").split("/")]:
            case "POST", ["subjects", subject, "versions"] if subject in self.incompatible:
                text = "Schema being registered is incompatible with an earlier schema"
                return 409, {"error_code": 409, "message": text}
        status, document = self.answer(method, target, body)
        if isinstance(document, dict) and document.get("schemaType") == "PROTOBUF" and self.protobuf_sources:
            document = document if "format=serialized" in query else {**document, "schema": 'syntax = "proto3"; …'}
        return status, document


@contextmanager
def serve(port: int = 0) -> Iterator[RegistryServer]:
    """A registry on a port, by default a free one."""
    registry = RegistryServer()
    with serving_registry(registry, port, registry.respond) as registry.url:
        yield registry
