"""Long answers: bounded memory, rows of one moment, cut connections, owners that die during the answer."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest
from aiohttp import web

import millpond as mp
from millpond.protocol import Member, TaskState, View
from millpond.queries import FailureReason, QueryFailed
from millpond.queries.local import LocalScan
from millpond.queries.messages import Head, RowsEnd, encode_frame
from millpond.queries.peers import PATH
from millpond.queries.rows import committed_rows
from millpond.runtime.http.server import HttpServer
from millpond.state.rocksdb import state_file
from tests.queries.application import APPLICATION
from tests.support.kafka import eventually

SHORT = timedelta(milliseconds=300)
LONG = timedelta(seconds=30)


def count(value):
    return mp.ValueAndTimestamp(value, 1)


def fill(application, number, store="counts", value=count):
    """Put keys k00000, k00001, … with their numbers, in one commit per partition; return the keys."""
    keys = [f"k{each:05}" for each in range(number)]
    for each, key in enumerate(keys):
        application.put(store, key, value(each), commit=False)
    for partition, owner in application.owners.items():
        owner.do(lambda owner=owner, partition=partition: owner.commit(partition))
    return keys


@pytest.fixture
def pieces(monkeypatch):
    """Use small pieces and count those that were read."""
    monkeypatch.setattr("millpond.queries.local.PIECE_ROWS", 50)
    read = []
    real = LocalScan.piece

    async def counted(scan):
        rows = await real(scan)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(LocalScan, "piece", counted)
    return read


def test_slow_client_pauses_the_read(start, pieces):
    """An answer of 40 MB is not buffered while the client does not read; all of it arrives when it does."""
    application = start(2, 2)
    text = "x" * 20_000
    number = 2_000
    for each in range(number):
        application.put("points", {"y": each, "x": 0}, mp.ValueAndTimestamp(text, 1), commit=False)
    for partition, owner in application.owners.items():
        owner.do(lambda owner=owner, partition=partition: owner.commit(partition))
    rows = application.client(application.workers[0], timeout=LONG).store("points").all()
    arriving = iter(rows)
    next(arriving)
    seen = -1

    def settled():
        nonlocal seen
        before, seen = seen, len(pieces)
        return before == seen

    eventually(settled, "the workers read no further")
    assert sum(pieces) < number / 2, "what fits the sockets' buffers, and a piece or two"
    assert sum(1 for _ in arriving) == number - 1
    assert rows.complete


def test_leaving_early_ends_the_read(start, pieces):
    """A client that has enough closes the connection; the worker notices and answers others."""
    application = start(2, 2)
    fill(application, 3_000)
    store = application.client(application.workers[0]).store("counts")
    for row in store.all():
        assert row.key == "k00000"
        break
    assert store.get("k00001") == 1
    assert len(list(store.all(limit=5))) == 5


def test_rows_of_a_partition_are_those_of_one_moment(start, pieces):
    """Amounts move between keys, one transaction each; every complete read of a partition has the same sum."""
    application = start(1, 1, alone=True)
    keys = fill(application, 600, value=lambda _: count(10))
    owner = application.owners[0]
    over = threading.Event()
    commits = 0

    def transfer():
        nonlocal commits
        at = 0
        while not over.is_set():
            at = (at + 7) % (len(keys) // 2)
            giver, taker = keys[at], keys[-1 - at]

            def change(giver=giver, taker=taker):
                store = owner.holdings()[mp.TaskId(0, 0)].stores["counts"]
                owner.put("counts", 0, giver, count(store.get(giver).value - 1))
                owner.put("counts", 0, taker, count(store.get(taker).value + 1))
                owner.commit(0)

            owner.do(change)
            commits += 1

    thread = threading.Thread(target=transfer)
    thread.start()
    try:
        store = application.client().store("counts")
        before = -1
        for _ in range(15):
            rows = store.all()
            values = [row.value for row in rows]
            assert (len(values), sum(values)) == (len(keys), 10 * len(keys))
            assert rows.snapshot
            assert rows.position["in-0"] >= before
            before = rows.position["in-0"]
    finally:
        over.set()
        thread.join()
    assert commits > 15
    assert len(pieces) > 15 * 10


def test_long_scan_is_restarted_and_reported(start, pieces, monkeypatch):
    """RocksDB must not keep old values for ever: the rows are then of several moments."""
    monkeypatch.setattr("millpond.queries.local.MAX_ITERATOR_AGE_S", 0.0)
    application = start(2, 3)
    keys = fill(application, 700)
    store = application.client(application.workers[0]).store("counts")
    for reverse in (False, True):
        rows = store.all(reverse=reverse)
        assert [row.key for row in rows] == (keys[::-1] if reverse else keys)
        assert not rows.snapshot


def test_a_commit_ends_old_iterators_of_readers_that_pause(start, pieces, monkeypatch):
    """The read continues with another iterator; after the last row none is open."""
    application = start(1, 1, alone=True)
    keys = fill(application, 700)
    owner = application.owners[0]
    rows = iter(application.client().store("counts").all())
    read = [next(rows).key]
    monkeypatch.setattr(state_file, "MAX_ITERATOR_AGE_S", -1.0)
    application.put("counts", "z", count(0))
    read += [row.key for row in rows]
    assert read[: len(keys)] == keys
    eventually(lambda: owner.file.usage()["open_iterators"] == 0, "no iterator is open")


@pytest.mark.parametrize("back", ["before the reader goes on", "after it was refused"])
def test_a_rebuilt_store_is_read_from_where_it_was(start, pieces, monkeypatch, back):
    """The state file is reopened during a read: the read waits for the task and continues, or fails."""
    application = start(1, 1, alone=True)
    keys = fill(application, 1_000)
    owner = application.owners[0]
    rows = application.client(timeout=LONG).store("counts").all()
    real, gate = LocalScan.piece, threading.Event()
    begun = threading.Event()

    async def gated(scan):
        if len(pieces) >= 3:
            begun.set()
            await asyncio.to_thread(gate.wait, 20)
        return await real(scan)

    monkeypatch.setattr(LocalScan, "piece", gated)

    def rebuild():
        held = owner.holdings()[mp.TaskId(0, 0)]
        owner._held = {}
        for store in held.stores.values():
            store.close()
        owner.file.rebuild("counts")

    found = []
    reader = threading.Thread(target=lambda: found.extend(row.key for row in rows))
    reader.start()
    assert begun.wait(60)
    owner.do(rebuild)
    if back.startswith("before"):
        owner.take(0)
    gate.set()
    if back.startswith("after"):
        owner.take(0)
    reader.join(60)
    assert found == keys
    assert rows.complete


def test_rows_of_a_moving_task_are_not_missed(start, monkeypatch):
    """The task moves after the location check and before its rows are read: the empty remainder is not an answer."""
    application = start(2, 1)
    keys = fill(application, 100)
    owner = application.owners[0]
    other = next(each for each in application.workers if each is not owner)
    real = committed_rows
    moved = []

    def late(info, backend, read, resume):
        if backend is owner.file and not moved:
            moved.append(True)
            application.move(0, other)
        return real(info, backend, read, resume)

    monkeypatch.setattr("millpond.queries.local.committed_rows", late)
    rows = application.client(owner, timeout=LONG).store("counts").all()
    assert [row.key for row in rows] == keys
    assert rows.workers == (other.name,)
    application.move(0, owner)
    moved.clear()
    assert application.client(owner, timeout=LONG).store("counts").lookup(keys[0]).worker == other.name


def serving_once(number, then):
    """Serve the first rows of partition 0, then do something to the connection."""

    async def answer(request):
        await request.read()
        response = web.StreamResponse()
        response.content_type = "application/vnd.millpond.rows.v1"
        await response.prepare(request)
        rows = [(f"k{each:05}".encode(), 0, b"\0" * 7 + b"\x01" + each.to_bytes(8, "big")) for each in range(number)]
        await response.write(encode_frame(Head(position={"in-0": 1})) + encode_frame(rows))
        await then(request, response)
        return response

    server = HttpServer("127.0.0.1", 0)
    server.route("POST", PATH, answer)
    return server


async def hang_up(request, response):
    request.transport.abort()


async def half_a_frame(request, response):
    await response.write(encode_frame([(b"k99999", 0, b"x")])[:9])
    await response.write_eof()


async def no_end(request, response):
    await response.write_eof()


async def garbage(request, response):
    await response.write_eof(b"\0\0\0\x04oops")


async def giant(request, response):
    await response.write_eof(b"\xff\xff\xff\xff")


async def refuses(request, response):
    failed = QueryFailed(FailureReason.NOT_ACTIVE, "it went.", (0,)).failure
    await response.write_eof(encode_frame(RowsEnd(failure=failed)))


@pytest.mark.parametrize("then", [hang_up, half_a_frame, no_end, garbage, giant, refuses])
def test_stream_continues_when_the_owner_dies(start, then):
    """The remaining rows come from the next owner: none is missing or duplicated, and the end reports two moments."""
    application = start(2, 1)
    keys = fill(application, 500)
    owner = application.owners[0]
    asked = next(each for each in application.workers if each is not owner)
    view = application.coordinator.view
    with serving_once(200, then) as server:
        members = (*view.members, Member("vanishing", server.url))
        owners = {"0_0": "vanishing"}
        application.coordinator.view = View(
            APPLICATION, view.epoch, members=members, owners=owners, active={"0_0": owner.name}
        )
        rows = application.client(asked, timeout=LONG).store("counts").all()
        assert [(row.key, row.value) for row in rows] == [(key, each) for each, key in enumerate(keys)]
    assert not rows.snapshot
    assert set(rows.workers) == {"vanishing", owner.name}
    assert rows.position["in-0"] == 1, "the lesser of what both said"


def test_incomplete_answer_says_so_in_its_last_line(start, pieces):
    """Rows were sent already, so the status is 200: the last line has the reason, and the client raises it."""
    application = start(1, 1, alone=True)
    fill(application, 500)
    owner = application.owners[0]
    real = owner.holdings
    asked = []

    def fewer():
        asked.append(1)
        return real() if len(asked) < 8 else {}

    owner.holdings = fewer
    with pytest.raises(QueryFailed) as raised:
        list(application.client().store("counts").all(timeout=SHORT))
    assert raised.value.reason is FailureReason.NOT_PRESENT
    assert raised.value.partitions == (0,)


def test_truncated_answer_is_noticed():
    """Rows without the last line are incomplete, even if the connection was closed normally."""

    async def cut(request):
        return web.Response(body=b'{"key":"a","value":1}\n{"key":"b","value":2}\n')

    async def torn(request):
        return web.Response(body=b'{"key":"a","value":1}\n{"complete":true,"posi')

    from millpond.queries import Client

    server = HttpServer("127.0.0.1", 0)
    server.route("GET", "/v1/stores/cut/all", cut)
    server.route("GET", "/v1/stores/torn/all", torn)
    with server, Client(server.url) as client:
        for store, number in (("cut", 2), ("torn", 1)):
            rows = client.store(store).all()
            arrived = []
            with pytest.raises(QueryFailed, match=f"cut off after {number} rows"):
                arrived.extend(row.key for row in rows)
            assert not rows.complete
            assert rows.count == number


def test_restoring_task_is_not_read(start):
    """Between two pieces the task returned to restoring: no row of that is returned."""
    application = start(1, 1, alone=True)
    keys = fill(application, 300)
    owner = application.owners[0]
    store = application.client().store("counts")
    owner.alter(0, state=TaskState.RESTORING)
    with pytest.raises(QueryFailed) as raised:
        list(store.all(timeout=SHORT))
    assert raised.value.reason is FailureReason.NOT_ACTIVE
    owner.alter(0, state=TaskState.RUNNING)
    assert [row.key for row in store.all()] == keys
