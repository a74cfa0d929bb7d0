"""Access to queries: tokens, TLS and limits."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import socket
import threading
from datetime import timedelta

import pytest
import trustme

import millpond as mp
from millpond.errors import ConfigError
from millpond.queries import FailureReason, QueryFailed
from millpond.queries.access import Access, Tokens
from millpond.runtime.config.model import Config
from millpond.runtime.http.query_server import query_access, query_interface
from millpond.runtime.http.server import HttpServer

_SECRET = "a-long-secret"


def fill(application):
    for each in range(20):
        application.put("counts", f"k{each:02}", mp.ValueAndTimestamp(each, 1_700_000_000_000))
    return application


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"{_SECRET}\n")
    return path


@pytest.fixture
def authority(tmp_path):
    """Create a certificate authority, and a certificate with its key for this machine."""
    ca = trustme.CA()
    leaf = ca.issue_cert("127.0.0.1", "localhost")
    ca.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    leaf.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    for pem in leaf.cert_chain_pems:
        pem.write_to_path(str(tmp_path / "tls.crt"), append=True)
    return tmp_path


def asked(worker, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", worker.site.port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_clients_and_workers_need_a_token(start, token_file, tmp_path):
    """Workers send their token to each other, so each worker answers for all."""
    application = fill(start(3, 6, access=Access(token_file=token_file)))
    for worker in application.workers:
        with_token = application.client(worker, token_file=token_file)
        assert [row.value for row in with_token.store("counts").range()] == list(range(20))
    wrong = tmp_path / "wrong"
    wrong.write_text("guess")
    for client in (application.client(), application.client(token_file=wrong)):
        with pytest.raises(QueryFailed, match=r"valid token.*query\.token\.file") as failed:
            client.store("counts").get("k01")
        assert failed.value.reason is FailureReason.UNAUTHORIZED
    for method, path in (
        ("GET", "/v1/stores"),
        ("GET", "/v1/stores/counts/keys/k01"),
        ("GET", "/v1/metadata/counts"),
        ("GET", "/v1/raw"),
        ("GET", "/v1/raw/counts/0"),
        ("POST", "/v1/partitions/read"),
    ):
        status, body = asked(application.workers[0], path, method)
        assert status == 401
        assert json.loads(body)["error"]["reason"] == "UNAUTHORIZED"


def test_token_changes_without_a_restart(start, token_file, tmp_path):
    """The new token is added at the end, moved to the top, and the old one removed; no query fails."""
    application = fill(start(2, 4, access=Access(token_file=token_file)))
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text(_SECRET)
    new.write_text("another-secret")
    with_old, with_new = application.client(token_file=old), application.client(token_file=new)
    for tokens, good, bad in (
        ([_SECRET, "another-secret"], [with_old, with_new], []),
        (["another-secret", _SECRET], [with_old, with_new], []),
        (["another-secret"], [with_new], [with_old]),
    ):
        part = tmp_path / "part"
        part.write_text("\n".join(tokens))
        part.rename(token_file)
        for client in good:
            assert len(list(client.store("counts").range())) == 20
        for client in bad:
            with pytest.raises(QueryFailed):
                client.store("counts").get("k01")


def test_missing_token_file_leaves_tokens_valid(token_file):
    """The file is being replaced."""
    tokens = Tokens(token_file)
    token_file.unlink()
    assert tokens.accept(_SECRET)
    assert tokens.own == _SECRET
    token_file.write_text("next")
    assert not tokens.accept(_SECRET)
    assert tokens.accept("next")
    assert not tokens.accept("")


@pytest.mark.parametrize("content", [None, "", "\n\n"])
def test_empty_token_file_is_rejected(tmp_path, content):
    """Else no query would be accepted, or every query."""
    path = tmp_path / "tokens"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="token file"):
        Tokens(path)


def test_workers_and_clients_use_tls(start, authority):
    """A client without the authority gets no answer."""
    access = Access(
        certificate_file=authority / "tls.crt", key_file=authority / "tls.key", ca_file=authority / "ca.crt"
    )
    application = fill(start(3, 6, access=access))
    assert all(url.startswith("https://") for url in application.urls())
    client = application.client(application.workers[0], ca_file=authority / "ca.crt")
    assert [row.value for row in client.store("counts").range()] == list(range(20))
    stranger = application.client(timeout=timedelta(seconds=2))
    with pytest.raises(QueryFailed, match="certificate verify failed"):
        stranger.store("counts").get("k01")


def test_query_beyond_the_limit_is_rejected(start):
    """Running queries are answered; afterwards new ones are accepted."""
    application = fill(start(1, 2, access=Access(max_concurrent=2)))
    (worker,) = application.workers
    blocked = threading.Event()
    path = "/v1/stores/counts/keys/k01?isolation=read_uncommitted"  # the worker's loop answers it
    worker.call(lambda: blocked.wait(30))
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(asked, worker, path) for _ in range(2)]
        while True:
            status, body = asked(worker, "/v1/stores")
            if status == 503:
                break
            assert status == 200
        blocked.set()
        assert json.loads(body)["error"]["reason"] == "BUSY"
        assert "query.max.concurrent" in json.loads(body)["error"]["message"]
        assert [each.result()[0] for each in waiting] == [200, 200]
    assert asked(worker, "/v1/stores")[0] == 200


def test_answer_that_takes_too_long_is_aborted(start):
    """Its slot is free again."""
    application = fill(start(1, 2, access=Access(max_concurrent=1, max_duration_s=0.2)))
    (worker,) = application.workers
    blocked = threading.Event()
    worker.call(lambda: blocked.wait(30))
    status, body = asked(worker, "/v1/stores/counts/keys/k01?isolation=read_uncommitted")
    blocked.set()
    assert status == 503
    assert "query.max.duration.ms" in json.loads(body)["error"]["message"]
    assert asked(worker, "/v1/stores")[0] == 200


def test_client_that_reads_nothing_is_disconnected(start):
    """It would occupy its slot for ever."""
    application = start(1, 1, access=Access(max_concurrent=1, max_duration_s=0.5))
    for each in range(400):
        application.put("points", {"y": each, "x": 0}, mp.ValueAndTimestamp("x" * 20_000, 0))
    (worker,) = application.workers
    with socket.create_connection(("127.0.0.1", worker.site.port)) as slow:
        slow.sendall(b"GET /v1/stores/points/all HTTP/1.1\r\nHost: x\r\n\r\n")
        slow.recv(1)
        while asked(worker, "/v1/stores")[0] == 503:
            pass


def config(**changes):
    return Config.of({"application.id": "app", "bootstrap.servers": "x:1", **changes})


def test_queries_have_a_port_of_their_own(token_file, registry):
    """Metrics and probes need no token, and are not served on the port of queries."""
    settings = config(**{"query.port": 0, "query.token.file": str(token_file)})
    server = HttpServer("127.0.0.1", 0)

    async def well(_request):
        from aiohttp import web

        return web.Response(text="well")

    server.route("GET", "/healthz", well)
    _, site = query_interface(settings, server, registry)
    with server:
        assert site.port != server.port

        def status(port, path):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path)
            found = connection.getresponse().status
            connection.close()
            return found

        assert status(server.port, "/healthz") == 200
        assert status(server.port, "/v1/stores") == 404
        assert status(site.port, "/healthz") == 404
        assert status(site.port, "/v1/stores") == 401
    assert site.url is None


@pytest.fixture
def registry():
    from prometheus_client import CollectorRegistry

    return CollectorRegistry()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"query.ssl.key.location": "k"}, "needs 'query.ssl.certificate.location'"),
        ({"query.ssl.certificate.location": "c"}, "needs 'query.port'"),
    ],
)
def test_contradicting_settings_are_rejected(settings, words):
    """The message says how to correct them."""
    with pytest.raises(ConfigError, match=words):
        query_access(config(**settings))


def test_unreadable_certificate_stops_the_start(registry):
    """The message names the settings."""
    settings = config(**{"query.port": 0, "query.ssl.certificate.location": "nowhere.pem"})
    with pytest.raises(ConfigError, match=r"nowhere\.pem.*query\.ssl\.certificate\.location"):
        query_interface(settings, HttpServer("127.0.0.1", 0), registry)
