"""Reports of a snapshot in a pod, to a real HTTPS server."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from millpond.catalog.indexes import StoreTable
from millpond.cli.snapshot import reports
from millpond.cli.snapshot.reports import reporting
from millpond_operator.controllers.snapshots.outcomes import SnapshotResult, result_of
from tests.support.kafka import eventually


@dataclass
class Api:
    """The requests to the server."""

    url: str
    account: Path
    answer: int = 200
    raw: bytes | None = None
    """Bytes sent instead of a response."""
    asked: list[tuple[str, str, str, Any]] = field(default_factory=list)

    def progress(self) -> list[dict[str, Any]]:
        return [body["status"]["progress"] for *_, body in self.asked]


@pytest.fixture
def api(tmp_path, processes) -> Iterator[Api]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / "token").write_text("t0ken\n")
    made = Api("", tmp_path)

    class Handler(BaseHTTPRequestHandler):
        def do_PATCH(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            made.asked.append((self.path, self.headers["Authorization"], self.headers["Content-Type"], body))
            if made.raw is not None:
                self.wfile.write(made.raw)
                self.close_connection = True
                return
            self.send_response(made.answer)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    made.url = f"https://127.0.0.1:{server.server_address[1]}/status"
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


def test_progress_reaches_the_status(api) -> None:
    """Reports are merge patches of the progress with the pod's token; the last report is always sent."""
    shown = []
    with reporting(api.url, lambda *told: shown.append(told), every_s=0.01, account=api.account) as told:
        told("reading changelogs", 0, 8)
        eventually(lambda: api.asked, "the first one is sent")
        told("reading changelogs", 8, 8)
        told("publishing", 0, 0)
    assert shown == [("reading changelogs", 0, 8), ("reading changelogs", 8, 8), ("publishing", 0, 0)]
    path, token, kind, body = api.asked[0]
    assert (path, token) == ("/status?fieldManager=millpond-snapshot", "Bearer t0ken")
    assert kind == "application/merge-patch+json"
    assert body.keys() == {"status"}
    assert body["status"].keys() == {"progress"}
    assert api.progress()[0].items() >= {"stage": "reading changelogs", "done": 0, "total": 8}.items()
    assert api.progress()[-1]["stage"] == "publishing"


@pytest.mark.parametrize(
    "trouble", ["refused", "unreachable", "no token", "damaged token", "no authority", "garbage", "hangs up"]
)
def test_report_that_cannot_be_sent_stops_nothing(api, caplog, trouble) -> None:
    """A failure is logged once, without the token, and the reporting thread continues."""
    url = "https://127.0.0.1:1/status" if trouble == "unreachable" else api.url
    if trouble == "no token":
        (api.account / "token").unlink()
    elif trouble == "damaged token":
        (api.account / "token").write_text("t0ken\nt0ken")
    elif trouble == "no authority":
        (api.account / "ca.crt").write_text("no certificate")
    elif trouble in ("garbage", "hangs up"):
        api.raw = b"\xff\x00 no HTTP\r\n\r\n" if trouble == "garbage" else b""
    api.answer = 403
    with reporting(url, lambda *_: None, every_s=0.01, account=api.account) as told:
        for done in range(5):
            told("writing files", done, 5)
    assert api.asked or trouble not in ("refused", "garbage", "hangs up")
    warned = [record.getMessage() for record in caplog.records if "cannot report progress" in record.getMessage()]
    assert len(warned) == 1
    assert "t0ken" not in caplog.text


def test_nothing_is_sent_without_an_address() -> None:
    """Outside of Kubernetes nothing is reported."""

    def tell(*_: Any) -> None:
        pass

    with reporting(None, tell) as told:
        assert told is tell


def made(tables: list[Any]) -> Any:
    """A snapshot of two files."""
    files = [SimpleNamespace(rows=3, bytes=10), SimpleNamespace(rows=4, bytes=20)]
    manifest = SimpleNamespace(version="v7", files=files)
    return SimpleNamespace(manifest=manifest, base=None, records={"a": 5, "b": 6}, seconds=2.345, tables=tables)


def read_by_operator(log: Path) -> SnapshotResult | None:
    """Return the operator's view of a termination message, of which Kubernetes keeps 4096 bytes."""
    ended = {"exitCode": 0, "message": log.read_bytes()[-4096:].decode()}
    return result_of([{"status": {"containerStatuses": [{"state": {"terminated": ended}}]}}])


def test_result_is_the_termination_message(tmp_path, monkeypatch) -> None:
    """The result is written if the variable names a file."""
    monkeypatch.delenv(reports.VARIABLE, raising=False)
    reports.write_result(made([]))
    monkeypatch.setenv(reports.VARIABLE, str(tmp_path / "log"))
    reports.write_result(made([]))
    assert read_by_operator(tmp_path / "log") == SnapshotResult("v7", "", 11, 7, 30, 2.3)


@pytest.mark.parametrize(("count", "length"), [(2, 5), (64, 5), (200, 3), (100, 200)])
def test_tables_are_told_as_far_as_there_is_room(tmp_path, monkeypatch, count: int, length: int) -> None:
    """The result has the number of all tables."""
    stores = [f"{number:03d}".ljust(length, "ü") for number in range(count)]
    tables = [StoreTable(store=name, snapshot_id=1, changelog="c", offsets={}, rows=7, bytes=1) for name in stores]
    monkeypatch.setenv(reports.VARIABLE, str(tmp_path / "log"))
    reports.write_result(made(tables[::-1]))
    found = read_by_operator(tmp_path / "log")
    assert found is not None
    assert found.table_count == count
    told = [each.store for each in found.tables]
    assert told == stores[: len(told)]
    assert len(told) == count if count < 10 else 0 < len(told) <= 64


@pytest.mark.parametrize(
    "result",
    [
        '{"version": "v7", "rows": -1}',
        '{"version": "v7", "rows": 9223372036854775808}',
        '{"version": "v7", "seconds": 1e300}',
        '{"version": "v7", "tables": [{"store": "a", "rows": -1}]}',
        '{"version": "two words"}',
        '{"version": "\\ud800"}',
        '{"version": "v7", "more": ' + "[" * 4000 + "}",
        "7",
    ],
)
def test_result_that_a_status_cannot_have_is_none(result: str) -> None:
    """User code in the pod may write anything, and the StateBootstrap still has to end."""
    from millpond_operator.controllers.snapshots.outcomes import result_of

    ended = {"exitCode": 0, "message": f'{{"snapshot": {result}}}'}
    assert result_of([{"status": {"containerStatuses": [{"state": {"terminated": ended}}]}}]) is None
