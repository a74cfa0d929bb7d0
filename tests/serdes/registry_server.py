"""A schema registry on loopback: the part of its REST API that serdes use, and a log of requests."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class RegistryServer:
    """Schemas by id and by subject and version; `failing` answers everything with that status."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[str] = []
        self.authorization: list[str | None] = []
        self.failing: int | None = None
        self.incompatible: set[str] = set()
        self.schemas: list[dict] = []
        self.subjects: dict[str, list[int]] = {}
        self.protobuf_sources = False
        """Whether Protobuf schemas are sent as sources, as by a real registry, unless `format=serialized` is asked."""

    def answer(self, method: str, path: str, body: dict) -> tuple[int, object]:
        """Status and document for one request."""
        if self.failing is not None:
            return self.failing, {"error_code": self.failing * 100, "message": "not now"}
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["schemas", "ids", text]:
                number = int(text)
                if 0 < number <= len(self.schemas):
                    return 200, self.schemas[number - 1]
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case ["subjects", subject, "versions"] if method == "POST":
                return self._register(subject, body)
            case ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case ["subjects", subject] if method == "POST":
                return self._lookup(subject, body)
        return 404, {"error_code": 404, "message": "no such resource"}

    def _register(self, subject: str, body: dict) -> tuple[int, object]:
        if subject in self.incompatible:
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible with an earlier schema"}
        schema = {key: body[key] for key in ("schema", "schemaType", "references") if body.get(key)}
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return 200, {"id": number}

    def _lookup(self, subject: str, body: dict) -> tuple[int, object]:
        schema = {key: body[key] for key in ("schema", "schemaType", "references") if body.get(key)}
        for version, number in enumerate(self.subjects.get(subject, []), 1):
            if self.schemas[number - 1] == schema:
                return 200, {"subject": subject, "version": version, "id": number, **schema}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _version(self, subject: str, version: str) -> tuple[int, object]:
        versions = self.subjects.get(subject)
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        at = len(versions) if version == "latest" else int(version)
        number = versions[at - 1]
        return 200, {"subject": subject, "version": at, "id": number, **self.schemas[number - 1]}


@contextmanager
def serve(port: int = 0) -> Iterator[RegistryServer]:
    """A registry on a port, by default a free one."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            self._serve("POST")

        def _serve(self, method: str) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            path = urlsplit(self.path).path
            registry.requests.append(f"{method} {path}")
            registry.authorization.append(self.headers.get("Authorization"))
            status, document = registry.answer(method, path, body)
            if isinstance(document, dict) and document.get("schemaType") == "PROTOBUF" and registry.protobuf_sources:
                serialized = "format=serialized" in urlsplit(self.path).query
                document = document if serialized else {**document, "schema": 'syntax = "proto3"; …'}
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    registry = RegistryServer(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """Serve on the port of the command line, or 8081, until Ctrl-C."""
    ended = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: ended.set())
    with serve(int(sys.argv[1]) if sys.argv[1:] else 8081) as registry:
        print(f"serving schemas at {registry.url}", flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
