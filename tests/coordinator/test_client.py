"""The worker's client: what it sends, and how it treats faulty coordinators."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import ConfigError
from millpond.protocol import Answer, Epoch, Heartbeat, Refusal, RefusalCode, Role, TaskReport, TopologySummary, clock
from millpond.protocol.client import CoordinatorClient
from tests.coordinator.support import Reply, Scripted, answer, client, connected, eventually, http, running, topology
from tests.simulation.running import simulate


def run(scenario: Coroutine[Any, Any, None]) -> None:
    simulate(scenario)


class Good(Scripted):
    """Answers at once if there is news for the worker, otherwise when a later heartbeat arrives or the wait is over."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(self._good)
        self._fields = fields
        self._newer = asyncio.Event()

    async def _good(self, heartbeat: Heartbeat) -> Reply:
        self._newer.set()
        self._newer = mine = asyncio.Event()
        if heartbeat.known_revision == 1 and heartbeat.coordinator == "c1":
            with suppress(TimeoutError):
                async with asyncio.timeout(heartbeat.wait_ms / 1000):
                    await mine.wait()
        return http(answer(heartbeat, sequence=max(each.sequence for each in self.heartbeats), **self._fields))


def test_heartbeats_carry_the_topology_until_the_first_answer() -> None:
    """The first heartbeat has the topology, later ones have what was reported last, each with a greater sequence."""

    async def scenario() -> None:
        async with Good().serving() as server, connected(client(server.url)) as worker:
            first = await eventually(lambda: worker.news(), "an answer")
            assert first.revision == 1
            worker.report(running("0_1"), {"0_2": 7}, {}, first.epoch)
            last = await eventually(lambda: server.heartbeats[-1].tasks and server.heartbeats[-1], "the report")
        assert server.heartbeats[0].topology is not None
        assert last.topology is None
        assert last.on_disk == {"0_2": 7}
        assert last.epoch == Epoch(1, 1)
        assert last.known_revision == 1
        sequences = [each.sequence for each in server.heartbeats]
        assert sequences == sorted(set(sequences))
        assert last.clock_ms > 0

    run(scenario())


def test_new_topology_is_told_until_it_was_answered() -> None:
    """The answer to an earlier heartbeat does not count."""

    async def scenario() -> None:
        async with Good().serving() as server, connected(client(server.url)) as worker:
            await eventually(lambda: len(server.heartbeats) > 1, "a heartbeat waits without its topology")
            worker.adopt(topology(3))
            worker.report(running("0_2"), {}, {}, Epoch(1, 1), urgent=True)
            await eventually(lambda: server.heartbeats[-1].topology == topology(3), "it is told")
            await eventually(lambda: server.heartbeats[-1].topology is None, "it is told no more")
        told = [each.topology for each in server.heartbeats if each.topology is not None]
        assert told[0] == topology()
        assert set(map(str, told[1:])) == {str(topology(3))}

    run(scenario())


def test_urgent_report_does_not_wait_for_the_running_poll() -> None:
    """It is sent on another connection at once, and the running poll ends."""

    async def scenario() -> None:
        # A long session, so that nothing but urgency can be the cause.
        async with Good(session_timeout_ms=30_000).serving() as server, connected(client(server.url)) as worker:
            await eventually(lambda: len(server.heartbeats) >= 2, "a poll that waits")
            for number in range(5):
                task = f"0_{number}"
                began = clock.monotonic()
                worker.report(running(task), {}, {}, Epoch(1, 1), urgent=True)
                await eventually(lambda task=task: task in server.heartbeats[-1].tasks, "it")
                assert clock.monotonic() - began < 5  # a turn takes 8 s

    run(scenario())


def test_reports_may_come_from_another_thread() -> None:
    """The worker's loop is another thread: reporting and reading news from there is safe."""

    async def scenario() -> None:
        async with Good().serving() as server, connected(client(server.url)) as worker:
            news: list[Answer] = []

            def loop() -> None:
                for number in range(300):
                    worker.report(running(f"0_{number}"), {}, {f"0_{number}": "w1"}, Epoch(), urgent=True)
                    got = worker.news()
                    if got is not None:
                        news.append(got)

            thread = threading.Thread(target=loop)
            thread.start()
            await asyncio.to_thread(thread.join)
            await eventually(lambda: server.heartbeats and "0_299" in server.heartbeats[-1].tasks, "the last report")
            named = {task for each in server.heartbeats for task in each.taken_over}
            assert named == {f"0_{number}" for number in range(300)}

    run(scenario())


def test_new_owners_are_repeated_until_they_are_acknowledged() -> None:
    """Each heartbeat has a hand-over until an answer has that heartbeat's sequence."""

    async def scenario() -> None:
        acknowledge = False

        async def reply(heartbeat: Heartbeat) -> Reply:
            await asyncio.sleep(0.02)
            return http(answer(heartbeat, sequence=heartbeat.sequence if acknowledge else 0))

        async with Scripted(reply).serving() as server, connected(client(server.url)) as worker:
            worker.report({}, {}, {"0_1": "w1"}, Epoch(), urgent=True)
            await eventually(lambda: sum("0_1" in each.taken_over for each in server.heartbeats) >= 3, "repetition")
            worker.report({}, {}, {}, Epoch(), urgent=True)
            count = len(server.heartbeats)
            await eventually(lambda: len(server.heartbeats) >= count + 2, "more heartbeats")
            assert server.heartbeats[-1].taken_over == {"0_1": "w1"}
            acknowledge = True
            await eventually(lambda: not server.heartbeats[-1].taken_over, "an end of it")

    run(scenario())


def test_a_coordinator_that_asks_for_the_topology_gets_it() -> None:
    """`send_topology` brings the topology with the next heartbeat, and only then."""

    async def scenario() -> None:
        asked = itertools.chain([False, True], itertools.repeat(False))

        async def reply(heartbeat: Heartbeat) -> Reply:
            await asyncio.sleep(0.02)
            return http(answer(heartbeat, send_topology=next(asked)))

        async with Scripted(reply).serving() as server, connected(client(server.url)):
            await eventually(lambda: len(server.heartbeats) >= 5, "heartbeats")
            assert [each.topology is not None for each in server.heartbeats[:5]] == [True, False, True, False, False]

    run(scenario())


GARBAGE = {
    "text": http(b"<html>It works!</html>"),
    "nothing at all": http(b""),
    "other json": http(b"[1, 2]"),
    "an answer that lacks its epoch": http(b'{"coordinator": "c1"}'),
    "an answer of another type": http(b'{"coordinator": "c1", "epoch": [1, 1], "tasks": {"0_1": "king"}}'),
    "bytes that are no UTF-8": http(b'{"coordinator": "\xff\xfe", "epoch": [1, 1]}'),
    "no HTTP": b"220 smtp ready\r\n\r\n",
    "half an answer": b'HTTP/1.1 200 X\r\nConnection: close\r\nContent-Length: 500\r\n\r\n{"epoch"',
    "status 500": http(b"oops", 500),
    "status 404 of some other service": http(b"not found", 404),
    "a redirect to nowhere": b"HTTP/1.1 302 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "a closed connection": None,
    "a later version of the protocol": http(b'{"coordinator": "c1", "epoch": [1, 1], "version": 2}'),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_undecodable_answers_change_nothing_and_are_logged_once(
    garbage: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    """The client ignores the answer, logs it once, retries, and accepts the next valid one."""

    async def scenario() -> None:
        good = True

        async def reply(heartbeat: Heartbeat) -> Reply:
            if good:
                await asyncio.sleep(0.01)
                return http(answer(heartbeat, tasks={"0_1": Role.ACTIVE}))
            return garbage

        async with Scripted(reply).serving() as server, connected(client(server.url)) as worker:
            await eventually(lambda: worker.connected_at, "a first answer")
            good = False
            await eventually(lambda: worker.failures, "a failure")
            at = worker.connected_at
            worker.news()
            failures = worker.failures
            await eventually(lambda: worker.failures > failures, "another failure")
            assert worker.news() is None
            assert worker.connected_at == at
            good = True
            news = await eventually(lambda: worker.news(), "a good answer again")
            assert news.tasks == {"0_1": Role.ACTIVE}

    with caplog.at_level(logging.INFO, "millpond.protocol.client"):
        run(scenario())
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 <= len(warnings) <= 2, warnings  # a broken connection may show in two ways
    assert any("answers again" in record.getMessage() for record in caplog.records)


def test_hanging_coordinator_is_timed_out_and_retried() -> None:
    """A heartbeat without an answer times out, and never more than two are in flight."""

    async def scenario() -> None:
        hang = False
        under_way = most = 0

        async def reply(heartbeat: Heartbeat) -> Reply:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                if hang:
                    await asyncio.sleep(60)  # longer than the client's patience
                await asyncio.sleep(0.01)
                # The client's patience, half of the session, has to last for all that is urgent below.
                return http(answer(heartbeat, session_timeout_ms=6_000))
            finally:
                under_way -= 1

        async with Scripted(reply).serving() as server, connected(client(server.url)) as worker:
            await eventually(lambda: worker.connected_at, "a first answer")
            hang = True
            for _ in range(50):
                worker.report({}, {}, {}, Epoch(), urgent=True)
                await asyncio.sleep(0.005)
            assert most <= 2
            await eventually(lambda: worker.failures >= 2, "patience to end")
            hang = False
            at = worker.connected_at
            await eventually(lambda: worker.connected_at != at, "an answer again")

    run(scenario())


def test_unreachable_coordinator_is_retried() -> None:
    """The client backs off up to one second, and then connects."""

    async def scenario() -> None:
        server = Good()
        async with server.serving():
            port_of_nobody = server.url
        # The port is free now: nobody listens there.
        worker = client(port_of_nobody)
        async with connected(worker):
            await eventually(lambda: worker.failures >= 3, "failures")
            assert worker.connected_at is None
            assert worker.news() is None

    run(scenario())


def test_refusal_lasts_until_a_good_answer() -> None:
    """`refusal` is that of the last heartbeat; the topology is sent again, since it may have been the reason."""

    async def scenario() -> None:
        refuse = False
        refusal = Refusal(RefusalCode.TOPOLOGY_MISMATCH, "Others run h2.")

        async def reply(heartbeat: Heartbeat) -> Reply:
            await asyncio.sleep(0.01)
            return http(refusal, 409) if refuse else http(answer(heartbeat))

        async with Scripted(reply).serving() as server, connected(client(server.url)) as worker:
            await eventually(lambda: worker.connected_at, "a first answer")
            assert worker.refusal is None
            refuse = True
            assert await eventually(lambda: worker.refusal, "a refusal") == refusal
            await eventually(lambda: server.heartbeats[-1].topology is not None, "the topology")
            refuse = False
            await eventually(lambda: worker.refusal is None, "an answer again")

    run(scenario())


def test_an_older_epoch_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Two coordinators in turn behind one address: after the first answer of the later one, the earlier one's are
    ignored.
    """

    async def scenario() -> None:
        terms = itertools.chain([3, 4], itertools.cycle([3, 4]))

        async def reply(heartbeat: Heartbeat) -> Reply:
            await asyncio.sleep(0.01)
            term = next(terms)
            return http(answer(heartbeat, term, f"c{term}", tasks={"0_1": Role.ACTIVE} if term == 4 else {}))

        async with Scripted(reply).serving() as server, connected(client(server.url)) as worker:
            await eventually(lambda: worker.outdated_answers >= 3, "answers of the earlier one")
            seen = []
            while worker.outdated_answers < 6:
                news = await eventually(lambda: worker.news(), "an answer")
                seen.append(news)
            assert {each.epoch.term for each in seen} == {4}
            assert all(each.tasks == {"0_1": Role.ACTIVE} for each in seen)
            assert {each.coordinator for each in server.heartbeats[4:]} == {"c4"}

    with caplog.at_level(logging.WARNING, "millpond.protocol.client"):
        run(scenario())
    assert sum("no longer leads" in record.getMessage() for record in caplog.records) == 1


def test_later_start_wins_between_coordinators_of_one_term() -> None:
    """Two stores with the same term: every worker chooses the same coordinator."""

    async def scenario() -> None:
        names = itertools.cycle(["a", "b"])

        async def reply(heartbeat: Heartbeat) -> Reply:
            await asyncio.sleep(0.01)
            return http(answer(heartbeat, coordinator=next(names)))

        async with Scripted(reply).serving() as server, connected(client(server.url)) as worker:
            await eventually(lambda: worker.outdated_answers >= 3, "answers of the other")
            await eventually(lambda: (news := worker.news()) and news.coordinator == "b", "the later one")

    run(scenario())


def test_older_answer_does_not_undo_newer_orders() -> None:
    """A delayed answer is ignored when a newer one of the same coordinator has arrived."""

    async def scenario() -> None:
        numbers = itertools.chain([5, 4], itertools.repeat(5))

        async def reply(heartbeat: Heartbeat) -> Reply:
            await asyncio.sleep(0.01)
            return http(answer(heartbeat, epoch=Epoch(1, next(numbers))))

        async with Scripted(reply).serving() as server, connected(client(server.url)) as worker:
            seen = []
            while len(server.heartbeats) < 6:
                news = worker.news()
                if news:
                    seen.append(news.epoch.number)
                await asyncio.sleep(0.002)
            assert set(seen) == {5}
            assert worker.outdated_answers == 0

    run(scenario())


def test_coordinator_that_answers_at_once_is_not_polled_constantly() -> None:
    """Without news in the answers, the client does not send more often than heartbeats are due."""

    async def scenario() -> None:
        async def reply(heartbeat: Heartbeat) -> Reply:
            return http(answer(heartbeat))

        async with Scripted(reply).serving() as server, connected(client(server.url)) as worker:
            await eventually(lambda: worker.connected_at, "an answer")
            await asyncio.sleep(1.0)  # what is measured is a rate
            assert 4 <= len(server.heartbeats) <= 16  # due are 5 per second

    run(scenario())


def test_the_token_is_read_for_each_heartbeat(tmp_path: Path) -> None:
    """Projected tokens rotate: a new one is used at once, and a missing file is retried."""

    async def scenario() -> None:
        token = tmp_path / "token"
        token.write_text("first\n")
        server = Good()
        async with server.serving(), connected(client(server.url, token_file=token)) as worker:
            await eventually(lambda: server.headers, "a heartbeat")
            assert server.headers[0]["authorization"] == "Bearer first"
            token.unlink()
            await eventually(lambda: worker.failures, "its absence to show")
            token.write_text("second\n")
            await eventually(lambda: server.headers[-1].get("authorization") == "Bearer second", "the new token")

    run(scenario())


def test_heartbeat_with_very_many_tasks_is_accepted() -> None:
    """A heartbeat of more than 1 MB is processed like any other, and so is its answer."""

    async def scenario() -> None:
        many = [f"{number % 7}_{number}" for number in range(30_000)]

        async def reply(heartbeat: Heartbeat) -> Reply:
            await asyncio.sleep(0.01)
            return http(answer(heartbeat, tasks=dict.fromkeys(many, Role.ACTIVE)))

        async with Scripted(reply).serving() as server:
            worker = client(server.url)
            worker.report(running(*many), {}, {}, Epoch())
            async with connected(worker):
                news = await eventually(lambda: worker.news(), "an answer")
            assert len(news.tasks) == len(server.heartbeats[0].tasks) == len(many)

    run(scenario())


def test_leaving_sends_a_final_heartbeat() -> None:
    """The last heartbeat reports the end; an unreachable coordinator does no harm."""

    async def scenario() -> None:
        server = Good()
        async with server.serving():
            worker = client(server.url)
            async with connected(worker):
                await eventually(lambda: worker.connected_at, "an answer")
            await worker.leave()
            assert server.heartbeats[-1].ended
            assert not any(each.ended for each in server.heartbeats[:-1])
        await worker.leave()

    run(scenario())


@pytest.mark.parametrize("url", ["", "coordinator:7070", "ftp://coordinator", "http://"])
def test_invalid_url_is_refused_at_once(url: str) -> None:
    """The error names it and shows how one looks."""
    with pytest.raises(ConfigError, match=r"not the URL of a coordinator.*http://"):
        client(url)


def test_unreadable_certificates_are_refused_at_once(tmp_path: Path) -> None:
    """Not only at the first heartbeat."""
    bad = tmp_path / "ca.pem"
    bad.write_text("no certificate")
    for path in (bad, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match=f"{path.name}.*PEM"):
            client("https://localhost:1", ca_file=path)


def test_lags_of_a_frozen_worker_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a freeze the first heartbeat is sent before the loop updates the lag, which may be large by now."""
    base = Heartbeat("delays", "w0", "i", 0, "h")
    client = CoordinatorClient("http://127.0.0.1:1", base, TopologySummary("h", ()))
    tasks = {"0_0": TaskReport(Role.ACTIVE, lag=0), "0_1": TaskReport(Role.STANDBY, lag=3)}
    client.report(tasks, {}, {}, Epoch())
    record = client._state.next_heartbeat(0.0, 0)
    assert client._heartbeat(record).tasks == tasks
    later = clock.monotonic() + 5
    monkeypatch.setattr("millpond.protocol.clock.monotonic", lambda: later)
    assert {task: report.lag for task, report in client._heartbeat(record).tasks.items()} == {"0_0": 0, "0_1": None}


def test_session_lapses_only_while_the_coordinator_is_silent() -> None:
    """Answered long polls keep it; a hanging coordinator ends it, and its return restores it."""

    async def scenario() -> None:
        coordinator = Good()
        async with coordinator.serving(), connected(client(coordinator.url)) as one:
            for _ in range(50):
                await asyncio.sleep(0.1)
                assert not one.session.lapsed
            assert one.session.lapses == 0
            reply, coordinator.reply = coordinator.reply, hang
            await eventually(lambda: one.session.lapsed, "the session timed out")
            coordinator.reply = reply
            await eventually(lambda: not one.session.lapsed, "the coordinator answers again")
            assert one.session.lapses == 1

    async def hang(_heartbeat: Heartbeat) -> Reply:
        await asyncio.sleep(60)
        return None

    run(scenario())


def test_answers_older_than_one_it_has_do_not_make_a_client_hurry() -> None:
    """A recreated application starts with low epochs, and answers its old workers at once."""

    async def scenario() -> None:
        async def reply(heartbeat: Heartbeat) -> Reply:
            if len(scripted.heartbeats) == 1:
                return http(answer(heartbeat, epoch=Epoch(1, 5), revision=5))
            return http(answer(heartbeat, epoch=Epoch(1, 1), revision=9))

        scripted = Scripted(reply)
        async with scripted.serving(), connected(client(scripted.url)):
            await asyncio.sleep(10)
        assert 20 < len(scripted.heartbeats) < 100

    run(scenario())
