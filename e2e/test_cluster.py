"""Reads of an API server that stops meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from e2e.cluster import Cluster, NoAnswer, eventually

_FOUND = b'{"items": []}'
#: Status, body, and the length that the header tells.
_ANSWERS = {"cut": (200, _FOUND[:5], 100), "half": (200, _FOUND[:5], 5), "away": (502, b"", 0)}


@pytest.fixture
def answers() -> Iterator[tuple[Cluster, list[str]]]:
    """A cluster, and the answers that it gives before the right one."""
    given: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, length = _ANSWERS[given.pop(0)] if given else (200, _FOUND, len(_FOUND))
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    cluster = Cluster("kubectl", None)
    cluster._address = f"http://127.0.0.1:{server.server_port}"  # noqa: SLF001 - that of kubectl's proxy
    yield cluster, given
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("answer", _ANSWERS)
def test_interrupted_answer_is_none_and_is_asked_for_again(answers: tuple[Cluster, list[str]], answer: str) -> None:
    """Threads that watch a cluster whose API server stops must not end by the half of an answer."""
    cluster, given = answers
    given.append(answer)
    with pytest.raises(NoAnswer):
        cluster.read("/api/v1/pods")
    given.append(answer)
    assert eventually(lambda: cluster.read("/api/v1/pods"), "an answer", 60, 0.01) == {"items": []}
