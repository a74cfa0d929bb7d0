"""A schema registry for development and tests: the part of Confluent's REST API that serdes use.

It accepts every schema: unlike a real registry it checks neither its syntax nor whether it is compatible with earlier
versions. It has no authentication, and listens on the loopback interface only.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from millpond.errors import BrokerError, ConfigError

__all__ = ("Answer", "Schemas", "serving_registry")

Answer = tuple[int, object]
"""The status and the document of an answer."""

_FIELDS = ("schema", "schemaType", "references")


class Schemas:
    """Schemas by id, and by subject and version.

    Args:
        file: keeps the registrations, one JSON document per line; None keeps them in memory only.

    Raises:
        BrokerError: the file cannot be read.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self._file: Path | None = None
        if file is not None and file.exists():
            try:
                for line in file.read_text(encoding="utf-8").splitlines():
                    registration = json.loads(line)
                    self.register(registration.pop("subject"), registration)
            except (OSError, ValueError, KeyError, AttributeError) as error:
                raise BrokerError(
                    f"the schemas in {file} cannot be read ({error}): restore the file, or delete the data directory, "
                    "since its records cannot be decoded without it."
                ) from error
        self._file = file

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> Answer:
        """Return the answer to a request."""
        with self._lock:
            match method, [unquote(part) for part in path.strip("/").split("/")]:
                case "GET", ["subjects"]:
                    return HTTPStatus.OK, sorted(self.subjects)
                case "GET", ["schemas", "ids", number]:
                    return self._by_id(number)
                case "GET", ["schemas", "guids", guid]:
                    return self._by_guid(guid)
                case "GET", ["subjects", subject, "versions"] if subject in self.subjects:
                    return HTTPStatus.OK, list(range(1, len(self.subjects[subject]) + 1))
                case "GET", ["subjects", subject, "versions", version]:
                    return self._version(subject, version)
                case "POST", ["subjects", subject, "versions"] if body.get("schema"):
                    return HTTPStatus.OK, {"id": self.register(subject, body), "guid": _guid(_schema(body))}
                case "POST", ["subjects", subject]:
                    return self._lookup(subject, body)
        return _error(HTTPStatus.NOT_FOUND, 404, f"the registry of millpond dev does not know {method} {path}")

    def register(self, subject: str, body: Mapping[str, Any]) -> int:
        """Register a schema under a subject; return its id, the same one for the same schema."""
        schema = _schema(body)
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
            if self._file is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"subject": subject, **schema}) + "\n")
        return number

    def _by_id(self, text: str) -> Answer:
        number = int(text) if text.isdecimal() else 0
        if 0 < number <= len(self.schemas):
            return HTTPStatus.OK, self.schemas[number - 1]
        return _error(HTTPStatus.NOT_FOUND, 40403, f"Schema {text} not found")

    def _by_guid(self, guid: str) -> Answer:
        for number, schema in enumerate(self.schemas, 1):
            if _guid(schema) == guid.lower():
                return HTTPStatus.OK, {"id": number, "guid": _guid(schema), **schema}
        return _error(HTTPStatus.NOT_FOUND, 40403, f"Schema {guid} not found")

    def _version(self, subject: str, version: str) -> Answer:
        versions = self.subjects.get(subject)
        if not versions:
            return _error(HTTPStatus.NOT_FOUND, 40401, f"Subject '{subject}' not found.")
        at = len(versions) if version in ("latest", "-1") else int(version) if version.isdecimal() else 0
        if not 0 < at <= len(versions):
            return _error(HTTPStatus.NOT_FOUND, 40402, f"Version {version} not found.")
        number = versions[at - 1]
        return HTTPStatus.OK, self._described(subject, at, number)

    def _described(self, subject: str, version: int, number: int) -> dict[str, Any]:
        schema = self.schemas[number - 1]
        return {"subject": subject, "version": version, "id": number, "guid": _guid(schema), **schema}

    def _lookup(self, subject: str, body: Mapping[str, Any]) -> Answer:
        schema = _schema(body)
        for version, number in enumerate(self.subjects.get(subject, []), 1):
            if self.schemas[number - 1] == schema:
                return HTTPStatus.OK, self._described(subject, version, number)
        return _error(HTTPStatus.NOT_FOUND, 40403, "Schema not found")


def _schema(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: body[key] for key in _FIELDS if body.get(key)}


def _guid(schema: Mapping[str, Any]) -> str:
    """Return the GUID of a schema: the same one for the same schema, in every registry."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(schema, sort_keys=True)))


def _error(status: int, code: int, message: str) -> Answer:
    return status, {"error_code": code, "message": message}


Respond = Callable[[str, str, Mapping[str, Any], Mapping[str, str]], Answer]
"""f(method, path with its query, body, headers) -> the answer."""


@contextmanager
def serving_registry(schemas: Schemas, port: int = 0, respond: Respond | None = None) -> Iterator[str]:
    """Serve schemas on the loopback interface while the block runs; yield the address.

    Args:
        schemas: the schemas.
        port: the port; 0 for a free one.
        respond: answers requests in place of `schemas`, for tests of failures.

    Raises:
        ConfigError: the port is in use.
    """
    answering: Respond = respond or (lambda method, path, body, _: schemas.answer(method, urlsplit(path).path, body))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            self._serve("POST")

        def _serve(self, method: str) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                body = json.loads(text or b"{}")
                if not isinstance(body, dict):
                    raise ValueError("not an object")
            except ValueError as error:
                status, document = _error(HTTPStatus.UNPROCESSABLE_ENTITY, 42201, f"the body is no JSON: {error}")
            else:
                status, document = answering(method, self.path, body, dict(self.headers))
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            """Log nothing: a request is no news."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise ConfigError(
            f"the schema registry cannot listen on port {port} ({error.strerror or error}): choose another one by "
            "--registry-port."
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="registry", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
