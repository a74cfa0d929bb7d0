"""Invalid requests are rejected with one sentence, and affect no other request."""

from __future__ import annotations

import http.client
import json
import logging
from datetime import timedelta
from urllib.parse import quote

import msgspec
import pytest

import millpond as mp
from millpond.protocol import TaskState
from millpond.queries import Client, FailureReason, QueryFailed
from millpond.queries.messages import Read, encode_read
from millpond.queries.peers import PATH
from tests.queries.application import APPLICATION, Application, Point


@pytest.fixture(scope="module")
def application():
    made = Application(1, 2, alone=True)
    made.put("counts", "key", mp.ValueAndTimestamp(7, 1))
    made.put("counts", "a/b?c", mp.ValueAndTimestamp(8, 1))
    made.put("windows", "key", mp.ValueAndTimestamp(7.5, 1), 20_000)
    yield made
    made.close()


def ask(asked, path, method="GET", body=None):
    worker = asked.workers[0] if isinstance(asked, Application) else asked
    connection = http.client.HTTPConnection("127.0.0.1", worker.http.port, timeout=60)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


REFUSED = [
    ("/v1/stores/nope/keys/a", 404, "DOES_NOT_EXIST", "has no store 'nope'"),
    ("/v1/stores/nope", 404, "DOES_NOT_EXIST", "has no store 'nope'"),
    ("/v1/metadata/nope/a", 404, "DOES_NOT_EXIST", "has no store 'nope'"),
    ("/v1/stores/counts/keys/a?partition=2", 404, "DOES_NOT_EXIST", "has no partition 2; its partitions are 0 to 1"),
    ("/v1/stores/windows/keys/a", 400, "UNKNOWN_QUERY_TYPE", "is a window store"),
    ("/v1/stores/windows/range", 400, "UNKNOWN_QUERY_TYPE", "is a window store"),
    ("/v1/stores/windows/prefix?prefix=a", 400, "UNKNOWN_QUERY_TYPE", "is a window store"),
    ("/v1/stores/visits/windows/a", 400, "UNKNOWN_QUERY_TYPE", "is a session store"),
    ("/v1/stores/windows/sessions", 400, "UNKNOWN_QUERY_TYPE", "is a window store"),
    ("/v1/stores/visits/sessions/a?start=5", 400, "BAD_REQUEST", "start and end: one session has both"),
    ("/v1/stores/visits/sessions?start=5", 400, "BAD_REQUEST", "unknown parameter 'start'"),
    ("/v1/stores/counts/windows/a", 400, "UNKNOWN_QUERY_TYPE", "is a key-value store"),
    ("/v1/stores/counts/windows", 400, "UNKNOWN_QUERY_TYPE", "is a key-value store"),
    ("/v1/stores/counts/all?limti=3", 400, "BAD_REQUEST", "unknown parameter 'limti'"),
    ("/v1/stores/counts/all?limit=0", 400, "BAD_REQUEST", "limit"),
    ("/v1/stores/counts/all?limit=-1", 400, "BAD_REQUEST", "limit"),
    ("/v1/stores/counts/all?limit=%C2%B2", 400, "BAD_REQUEST", "limit"),
    ("/v1/stores/counts/all?reverse=yes", 400, "BAD_REQUEST", "reverse: 'yes' is not one of false, true"),
    ("/v1/stores/counts/all?timeout=soon", 400, "BAD_REQUEST", "timeout: 'soon' is not a duration"),
    ("/v1/stores/counts/all?max_staleness=-5", 400, "BAD_REQUEST", "max_staleness"),
    ("/v1/stores/counts/all?max_lag=few", 400, "BAD_REQUEST", "max_lag: 'few' is not a whole number from 0"),
    ("/v1/stores/counts/all?isolation=none", 400, "BAD_REQUEST", "isolation"),
    ("/v1/stores/counts/all?format=xml", 400, "BAD_REQUEST", "format: 'xml'"),
    ("/v1/stores/counts/keys/a?key_format=hex", 400, "BAD_REQUEST", "key_format"),
    ("/v1/stores/counts/keys/a?key_format=json", 400, "BAD_REQUEST", "not valid JSON"),
    ("/v1/stores/counts/keys/5?key_format=json", 400, "BAD_REQUEST", "whose keys are String"),
    ("/v1/stores/counts/keys/%21?key_format=base64", 400, "BAD_REQUEST", "not base64"),
    ("/v1/stores/counts/keys/a?position=in", 400, "BAD_REQUEST", "position: 'in'"),
    ("/v1/stores/counts/keys/a?position=in-0:x", 400, "BAD_REQUEST", "position"),
    ("/v1/stores/counts/keys/a?position=out-0:1", 400, "BAD_REQUEST", "do not read topic 'out'"),
    ("/v1/stores/counts/prefix", 400, "BAD_REQUEST", "prefix"),
    ("/v1/stores/windows/windows/a?from=yesterday", 400, "BAD_REQUEST", "from: 'yesterday' is not a time"),
    ("/v1/stores/memory/keys/word", 400, "BAD_REQUEST", "whose keys are Long"),
    ("/v1/stores/memory/keys/99999999999999999999", 400, "BAD_REQUEST", "whose keys are Long"),
]


@pytest.mark.parametrize(("path", "status", "reason", "words"), REFUSED)
def test_invalid_requests_are_rejected(application, path, status, reason, words):
    """The answer has a status, a reason for programs and a message for people."""
    found, body = ask(application, path)
    error = json.loads(body)["error"]
    assert (found, error["reason"]) == (status, reason)
    assert words in error["message"]
    assert len(error["message"].splitlines()) == 1


def test_keys_may_be_long(application):
    """A key of tens of kilobytes fits into a request."""
    key = "k" * 50_000
    application.put("counts", key, mp.ValueAndTimestamp(9, 1))
    assert application.client().store("counts").get(key) == 9


@pytest.mark.parametrize(
    "key", ["a\nb", "\n", "a\r\nb", "\u2028", "\x00", "\x85", "%0A", "a%2Fb", "..", "a//b/", "é\t?#&=+ ", "{key}"]
)
def test_a_key_may_have_every_character(application, key):
    """Line breaks too, in each path with a key, and by the client."""
    application.put("counts", key, mp.ValueAndTimestamp(9, 1))
    application.put("windows", key, mp.ValueAndTimestamp(1.5, 1), 20_000)
    shown = quote(key, safe="")
    assert json.loads(ask(application, f"/v1/stores/counts/keys/{shown}")[1])["value"] == 9
    status, body = ask(application, f"/v1/stores/windows/windows/{shown}")
    assert (status, json.loads(body.splitlines()[0])["key"]) == (200, key)
    assert ask(application, f"/v1/metadata/counts/{shown}")[0] == 200
    assert application.client().store("counts").get(key) == 9


def test_unusual_valid_requests_are_answered(application):
    """Keys with every character, ISO 8601 times, very distant times, and keys that are JSON."""
    assert json.loads(ask(application, "/v1/stores/counts/keys/a%2Fb%3Fc")[1])["value"] == 8
    assert json.loads(ask(application, "/v1/stores/counts/keys/a/b%3Fc")[1])["value"] == 8
    assert json.loads(ask(application, "/v1/stores/counts/keys/")[1])["found"] is False
    assert json.loads(ask(application, "/v1/stores/counts/keys/%22key%22?key_format=json")[1])["value"] == 7
    assert json.loads(ask(application, "/v1/stores/counts/keys/a2V5?key_format=base64&format=base64")[1]) | {
        "position": 0, "partition": 0,
    } == {
        "found": True, "key": "a2V5", "value": "AAAAAAAAAAc=", "timestamp": 1, "position": 0, "partition": 0,
        "staleness_ms": None, "workers": ["w0"],
    }  # fmt: skip
    status, body = ask(application, "/v1/stores/windows/windows/key?from=1970-01-01T00:00:20Z&to=99999999999999999999")
    assert status == 200
    first, last = map(json.loads, body.splitlines())
    assert first == {"key": "key", "window": {"start": 20_000, "end": 30_000}, "value": 7.5, "timestamp": 1}
    assert last["complete"] is True
    assert last["rows"] == 1
    assert json.loads(ask(application, "/v1/stores/windows/windows/key?start=1970-01-01T01:00:20%2B01:00")[1])["found"]
    assert ask(application, "/v1/stores/counts/all?low=1", "POST")[0] == 405


@pytest.mark.parametrize("digits", [19, 40, 5_000])
def test_numbers_of_any_length_are_capped(start, digits):
    """They fit into the messages between workers."""
    application = start(2, 2)
    for key in ("a", "b", "c"):
        application.put("counts", key, mp.ValueAndTimestamp(1, 1))
    many = "9" * digits
    for worker in application.workers:
        status, body = ask(worker, f"/v1/stores/counts/all?limit={many}&max_lag={many}")
        assert (status, len(body.splitlines())) == (200, 4)
        assert ask(worker, f"/v1/stores/counts/all?max_staleness={many}h")[0] == 200
        assert ask(worker, f"/v1/stores/counts/all?position=in-0:{many}&timeout=1")[0] == 503
        assert ask(worker, f"/v1/stores/windows/all?limit={many}")[0] == 200
        assert ask(worker, f"/v1/stores/windows/windows?from=-{many}&to={many}")[0] == 200


def test_undecodable_peer_requests_are_rejected(application):
    """Whatever is posted to the interface between workers, the worker answers and keeps running."""
    good = Read(application=APPLICATION, store="counts", partitions=(0,))
    for body in (b"", b"\xc1", b"{}", msgspec.msgpack.encode({"application": APPLICATION}), b"\x93\x01\x02\x03"):
        assert ask(application, PATH, "POST", body)[0] == 400
    assert ask(application, PATH, "POST", encode_read(msgspec.structs.replace(good, application="other")))[0] == 404
    odd = (
        {"store": "nope"},
        {"partitions": (7,)},
        {"partitions": ()},
        {"partitions": (-1,)},
        {"partitions": (0, 0)},
        {"low": b"z", "high": b"a"},
        {"exact": True},
        {"limit": 0},
        {"limit": -5},
        {"resume": {0: b"\xff" * 20}},
        {"store": "windows", "resume": {0: b""}, "reverse": True},
        {"store": "windows", "first": -(2**63), "last": -1},
        {"store": "windows", "resume": {0: b"x"}, "committed": False},
        {"bound": {"in": 1}, "timeout_ms": 0},
        {"timeout_ms": -5},
    )
    for changes in odd:
        status, body = ask(application, PATH, "POST", encode_read(msgspec.structs.replace(good, **changes)))
        assert status == 200, changes
        assert body, changes
    assert json.loads(ask(application, "/v1/stores/counts/keys/key")[1])["value"] == 7


def test_undecodable_values_can_be_read_as_bytes(start):
    """A value of another program: the JSON error names the store and the serde; base64 works."""
    application = start(1, 1, alone=True)
    worker = application.workers[0]
    application.put("points", Point(1, 1), mp.ValueAndTimestamp("good", 1))

    def spoil():
        worker.file.write([("points", 0, [(b'\0\0\0\0{"y":1,"x":1}', b"\0" * 8 + b"not json")])])

    worker.do(spoil)
    with Client(worker.http.url) as client:
        with pytest.raises(QueryFailed, match=r"store 'points': Json cannot decode 8 bytes.*format=base64") as raised:
            client.store("points").get({"y": 1, "x": 1})
        assert raised.value.reason is FailureReason.STORE_EXCEPTION
        with pytest.raises(QueryFailed, match="Json cannot decode"):
            list(client.store("points").all())
        raw = client.store("points", key=mp.Bytes, value=mp.Bytes)
        assert [(row.key, row.value) for row in raw.all()] == [(b'{"y":1,"x":1}', b"not json")]


def test_metrics_count_queries_by_outcome(start):
    """The labels are kind and outcome."""
    application = start(1, 1, alone=True)
    worker = application.workers[0]
    application.put("counts", "key", mp.ValueAndTimestamp(7, 1))
    store = application.client().store("counts")
    store.get("key")
    store.get("none")
    list(store.range("a", "z"))
    worker.alter(0, state=TaskState.RESTORING)
    for _ in range(2):
        with pytest.raises(QueryFailed):
            store.get("key", timeout=timedelta(0))

    def count(kind, outcome):
        labels = {"application_id": APPLICATION, "worker": "w0", "kind": kind, "outcome": outcome}
        return worker.registry.get_sample_value("millpond_query_seconds_count", labels)

    assert count("key", "ok") == 2
    assert count("range", "ok") == 1
    assert count("key", "not_active") == 2


def test_internal_error_fails_only_its_request(start, caplog, monkeypatch):
    """An unexpected error ends one request with status 500."""
    application = start(1, 1, alone=True)
    application.put("counts", "key", mp.ValueAndTimestamp(7, 1))
    monkeypatch.setattr("millpond.queries.service.Router.scan", lambda *_: 1 / 0)
    with caplog.at_level(logging.ERROR):
        assert ask(application, "/v1/stores/counts/keys/key")[0] == 500
    assert "ZeroDivisionError" in caplog.text
    monkeypatch.undo()
    assert ask(application, "/v1/stores/counts/keys/key")[0] == 200
