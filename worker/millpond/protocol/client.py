"""The worker's side of the coordinator's protocol: heartbeats out, answers in, whatever happens in between.

The client runs in an event loop of its own, beside the worker's loop. It always has one heartbeat waiting at the
coordinator (a long poll). An urgent report does not wait for that one: it is posted on a second connection and waits
there itself, and the coordinator then answers the first. So at most two requests are under way.

Nothing that goes wrong here stops a worker. What it was last told stays, and so does what it owns in Kafka.
"""

from __future__ import annotations

import asyncio
import io
import logging
import random
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from millpond.errors import ConfigError

from . import clock
from .messages import (
    PROTOCOL_VERSION,
    Answer,
    Brokers,
    Epoch,
    Heartbeat,
    Mark,
    Refusal,
    RefusalCode,
    TaskReport,
    TopologySummary,
    Trouble,
    decode_answer,
    decode_refusal,
    encode,
    without_lags,
)
from .session import Session

__all__ = ("CoordinatorClient",)

log = logging.getLogger(__name__)

#: A session until the first answer tells, and what is believed of an answer.
_SESSION_MS, _SHORTEST_SESSION_MS, _LONGEST_SESSION_MS = 6_000, 300, 600_000
#: What an answer may weigh: far more than one that names 100,000 tasks does.
_MOST_BYTES = 32 * 1024 * 1024
_LARGE_BYTES = 512 * 1024
_CONNECT_S = 1.0
#: The worker reports twice a second.
_LAGS_LAST_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_FOR_WHAT_IT_RUNS = frozenset(
    {RefusalCode.TOPOLOGY_MISMATCH, RefusalCode.UNSUPPORTED_VERSION, RefusalCode.CLAIM_REFUSED}
)


class _Failure(Exception):
    """A heartbeat had no usable answer. `kind` is what is logged only once."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class CoordinatorClient:
    """Keeps one worker in touch with its coordinator.

    `run` belongs to an event loop; `report`, `news` and the attributes may be used from any thread.

    Args:
        url: base URL of the coordinator, `http://` or `https://`.
        base: the parts of a heartbeat that do not change: application, worker, incarnation, topology hash, address,
            tags, rack, revision.
        topology: sent with heartbeats until one of them is answered, and when the coordinator asks for it; see `adopt`. None for a
            client that only tells `once` in a while that the worker is about to start.
        token_file: a file with the bearer token. It is read for every heartbeat, because such tokens rotate.
        ca_file: certificates that may have signed the coordinator's, PEM; None for those of the system.
        trouble: what the worker waits for, for longer than is usual; called in the event loop.
        brokers: whether Kafka answers the worker; called there, too.
        kafka_cluster: the id of the Kafka cluster that it reaches; called there, too.
        credentials_changed: whether the files with its credentials are other ones by now; called there, too.

    Attributes:
        refusal: why the last heartbeat was refused; None when it was answered.
        shut_out: the last heartbeat was refused for what the worker runs, though it told all of that.
        heard: set once a heartbeat was answered, refused, or had no usable answer.
        connected_at: monotonic time, in seconds, of the last good answer; None before the first.
        session: whether the coordinator may take this worker for dead.
        refused_answers: answers of coordinators that do not lead any more. They were ignored.
        failures: heartbeats without a usable answer, refusals aside.

    Raises:
        ConfigError: the URL is none, or the certificates cannot be read.
    """

    def __init__(
        self,
        url: str,
        base: Heartbeat,
        topology: TopologySummary | None,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        trouble: Callable[[], Trouble | None] = lambda: None,
        brokers: Callable[[], Brokers] = lambda: Brokers.ANSWERING,
        kafka_cluster: Callable[[], str] = lambda: "",
        credentials_changed: Callable[[], bool] = lambda: False,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ConfigError(f"'{url}' is no URL of a coordinator: give one like http://127.0.0.1:7070.")
        path = f"/v1/applications/{quote(base.application, safe='')}/workers/{quote(base.worker, safe='')}/heartbeat"
        self._url = url.rstrip("/") + path
        self._shown_url = url
        self._token_file = token_file
        self._ca_file = ca_file
        self._tls = _context(ca_file) if parts.scheme == "https" else None
        self._base = base
        self._topology = topology
        self._waits_for = trouble
        self._brokers = brokers
        self._kafka_cluster = kafka_cluster
        self._credentials_changed = credentials_changed

        self.refusal: Refusal | None = None
        self.shut_out = False
        self.heard = threading.Event()
        self.connected_at: float | None = None
        self.session = Session(_SESSION_MS / 1000)
        self.refused_answers = 0
        self.failures = 0

        # Shared between threads, under the lock.
        self._lock = threading.Lock()
        self._tasks: Mapping[str, TaskReport] = MappingProxyType({})
        self._reported_at = clock.monotonic()
        self._on_disk: Mapping[str, int] = MappingProxyType({})
        self._committed: Mapping[str, Mark] = MappingProxyType({})
        self._epoch = Epoch()
        self._leaving = False
        self._taken_over: dict[str, tuple[str, int]] = {}  # owner, and the first sequence that carried it; 0: none yet
        self._unread: Answer | None = None

        # Of the event loop alone.
        self._sequence = 0
        self._answer: Answer | None = None
        self._leader: tuple[int, str] = (0, "")  # term and start of the coordinator: the greatest seen leads
        self._session_ms = _SESSION_MS
        self._send_topology = True
        self._told: TopologySummary | None = None
        self._troubles: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._urgent: asyncio.Event | None = None

    # For the worker, from any thread.

    def report(
        self,
        tasks: Mapping[str, TaskReport],
        on_disk: Mapping[str, int],
        taken_over: Mapping[str, str],
        epoch: Epoch,
        leaving: bool = False,
        *,
        committed: Mapping[str, Mark] = MappingProxyType({}),
        urgent: bool = False,
    ) -> None:
        """Say how things stand; the next heartbeat carries it.

        The mappings are kept, not copied: they must not change afterwards.

        Args:
            tasks: everything the worker holds, by task id.
            on_disk: offsets of state it has but does not hold, by task id.
            taken_over: owners found or made in Kafka since the previous report. The client repeats each until the
                coordinator has it, so once is enough, and naming one again does no harm.
            epoch: of the answer that the worker carries out.
            leaving: it wants to end.
            committed: how far it committed its active tasks, by task id.
            urgent: post a heartbeat now instead of with the next turn.
        """
        with self._lock:
            self._tasks, self._on_disk, self._epoch, self._leaving = tasks, on_disk, epoch, leaving
            self._committed = committed
            self._reported_at = clock.monotonic()
            for task, owner in taken_over.items():
                self._taken_over[task] = (owner, 0)
            loop, event = self._loop, self._urgent
        if urgent and loop is not None and event is not None:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # its loop was closed a moment ago: the worker ends
                log.debug("an urgent report came after the client's end")

    def adopt(self, topology: TopologySummary) -> None:
        """The worker's topology has more tasks now; heartbeats carry it until one of them is answered."""
        with self._lock:
            self._topology = topology

    def news(self) -> Answer | None:
        """The newest answer, once; None until the next one comes.

        Answers of older epochs than one already given never come. Answers that only acknowledge a heartbeat do come:
        compare `revision` and `epoch` to see whether anything changed.
        """
        with self._lock:
            answer, self._unread = self._unread, None
        return answer

    @property
    def latest(self) -> Answer | None:
        """The newest answer, as often as it is asked for."""
        return self._answer

    # In the client's event loop.

    async def run(self) -> None:
        """Heartbeat until cancelled. Nothing that a coordinator does, or does not do, ends it."""
        urgent = asyncio.Event()
        with self._lock:
            self._loop, self._urgent = asyncio.get_running_loop(), urgent
        connector = aiohttp.TCPConnector(limit=4, keepalive_timeout=60)
        waiting: set[asyncio.Task[float]] = set()
        try:
            async with aiohttp.ClientSession(connector=connector) as session:
                try:
                    await self._turns(session, urgent, waiting)
                finally:
                    for each in waiting:
                        each.cancel()
                    await asyncio.gather(*waiting, return_exceptions=True)
        finally:
            with self._lock:
                self._loop = self._urgent = None

    async def goodbye(self) -> None:
        """Tell the coordinator that the process ends now, so that it need not wait for the session to time out.

        For use after `run` was cancelled. Takes a second at most; whether it arrives is not certain.
        """
        try:
            async with aiohttp.ClientSession() as session:
                heartbeat = msgspec.structs.replace(self._heartbeat(wait_ms=0), ended=True)
                await self._post(session, heartbeat, timeout_s=_CONNECT_S)
        except _Failure as failure:
            log.info("The coordinator was not told of this worker's end: %s", failure)

    async def once(self) -> bool:
        """Post one heartbeat and wait for no news. For use instead of `run`; `refusal` tells whether it was refused.

        Returns:
            Whether the coordinator answered or refused it.
        """
        try:
            async with aiohttp.ClientSession() as session:
                heartbeat = self._heartbeat(wait_ms=0)
                outcome = await self._post(session, heartbeat, timeout_s=_SESSION_MS / 2000)
        except _Failure as failure:
            self._failed(failure)
            return False
        if isinstance(outcome, Refusal):
            self._refused(outcome, heartbeat)
        else:
            self.refusal, self.shut_out = None, False
        return True

    async def _turns(
        self, session: aiohttp.ClientSession, urgent: asyncio.Event, waiting: set[asyncio.Task[float]]
    ) -> None:
        """Post heartbeats, one after the other, with a second one beside the first when there is urgent news."""
        pauses = _Pauses()
        while True:
            while len(waiting) >= 2:  # news that comes meanwhile goes with the next one
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                waiting.difference_update([each for each in waiting if each.done()])
            urgent.clear()
            newest = asyncio.create_task(self._turn(session, pauses))
            waiting.add(newest)
            await _either(newest, urgent)
            waiting.difference_update([each for each in waiting if each.done()])
            if newest.done():
                await _rest(newest.result(), urgent)

    async def _turn(self, session: aiohttp.ClientSession, pauses: _Pauses) -> float:
        """One heartbeat and its answer.

        Returns:
            Seconds to let pass before the next one.
        """
        began, sent_at = clock.monotonic(), clock.boottime()
        # Never twice the same: workers that were answered together do not come back together for ever.
        wait_ms = int(self._session_ms / 3 * random.uniform(0.8, 0.95))
        heartbeat = self._heartbeat(wait_ms)
        try:
            outcome = await self._post(session, heartbeat, timeout_s=max(self._session_ms / 2, wait_ms + 500) / 1000)
            if isinstance(outcome, Refusal):
                self._refused(outcome, heartbeat)
                return pauses.after_trouble()
            if not self._take(outcome):
                return pauses.after_trouble()
            self.session.answered(sent_at)
            self._told = heartbeat.topology or self._told
        except _Failure as failure:
            self._failed(failure)
            return pauses.after_trouble()
        self._well()
        return pauses.after_answer(
            early=clock.monotonic() - began < wait_ms / 1000 * 0.9,
            # An answer that is older than another one says nothing, however often it comes.
            news=outcome is self._answer
            and (outcome.revision, outcome.coordinator) != (heartbeat.known_revision, heartbeat.coordinator),
            interval_s=self._session_ms / 3000,
        )

    def _heartbeat(self, wait_ms: int) -> Heartbeat:
        self._sequence += 1
        known = self._answer
        with self._lock:
            for task, (owner, sequence) in self._taken_over.items():
                if not sequence:
                    self._taken_over[task] = (owner, self._sequence)
            return msgspec.structs.replace(
                self._base,
                sequence=self._sequence,
                topology=self._topology if self._send_topology or self._told is not self._topology else None,
                # The term that leads, even if nothing of it has been carried out: an earlier coordinator must learn of it.
                epoch=max(self._epoch, Epoch(self._leader[0], 0)),
                known_revision=known.revision if known else 0,
                coordinator=known.coordinator if known else "",
                acknowledged=known.sequence if known else 0,
                tasks=self._tasks_now(),
                committed=dict(self._committed),
                on_disk=dict(self._on_disk),
                taken_over={task: owner for task, (owner, _) in self._taken_over.items()},
                leaving=self._leaving,
                trouble=self._waits_for(),
                brokers=self._brokers(),
                kafka_cluster=self._kafka_cluster(),
                credentials_changed=self._credentials_changed(),
                clock_ms=int(clock.unix_time() * 1000),
                wait_ms=wait_ms,
            )

    def _tasks_now(self) -> dict[str, TaskReport]:
        """What the worker reported last; its lags only if that was lately.

        A process that was frozen, or a loop that hangs, says nothing of how far its copies are by now.
        """
        if clock.monotonic() - self._reported_at < _LAGS_LAST_S:
            return dict(self._tasks)
        return without_lags(self._tasks)

    async def _post(
        self, session: aiohttp.ClientSession, heartbeat: Heartbeat, *, timeout_s: float
    ) -> Answer | Refusal:
        """Post a heartbeat.

        Raises:
            _Failure: no answer came, or none that can be understood.
        """
        headers = {"Content-Type": "application/json"}
        if self._token_file is not None:
            try:
                headers["Authorization"] = f"Bearer {self._token_file.read_text().strip()}"
            except (OSError, UnicodeDecodeError) as error:
                raise _Failure("token", f"the token file '{self._token_file}' cannot be read: {error}") from error
        try:
            async with session.post(
                self._url,
                data=_body(heartbeat),
                headers=headers,
                ssl=self._tls if self._tls is not None else True,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_S),
            ) as response:
                raw = await _read(response)
                status = response.status
        except TimeoutError as error:
            raise _Failure("timeout", f"no answer within {timeout_s:.1f} s.") from error
        except aiohttp.ClientSSLError as error:
            if self._tls is not None:
                self._tls = self._certificates_again() or self._tls
            raise _Failure("tls", f"TLS failed: {error}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: a header that is none
            raise _Failure("connection", f"{type(error).__name__}: {error}") from error
        return _understood(status, raw)

    def _certificates_again(self) -> ssl.SSLContext | None:
        """Read the certificates anew: they may have been rotated."""
        try:
            return _context(self._ca_file)
        except ConfigError as error:
            log.debug("%s", error)
            return None

    # What came of it.

    def _take(self, answer: Answer) -> bool:
        """Take an answer in, unless its coordinator does not lead any more; whether that is so."""
        leader = (answer.epoch.term, answer.coordinator)
        if leader < self._leader:
            self.refused_answers += 1
            self._trouble(
                "older",
                f"Coordinator {answer.coordinator} (term {answer.epoch.term}) at {self._shown_url} does not lead any "
                f"more: its answers are ignored, since {self._leader[1]} (term {self._leader[0]}) answered later.",
            )
            return False
        self.connected_at = clock.monotonic()
        self.refusal, self.shut_out = None, False
        known = self._answer
        overtaken = known is not None and (answer.epoch, answer.sequence) < (known.epoch, known.sequence)
        if leader == self._leader and overtaken:
            return True  # Two answers overtook each other, and the other one is the newer.
        self._leader, self._answer = leader, answer
        self._send_topology = answer.send_topology
        self._session_ms = min(max(answer.session_timeout_ms, _SHORTEST_SESSION_MS), _LONGEST_SESSION_MS)
        self.session.timeout_s = self._session_ms / 1000
        with self._lock:
            self._unread = answer
            if self._taken_over:
                self._taken_over = {
                    task: (owner, sequence)
                    for task, (owner, sequence) in self._taken_over.items()
                    if not sequence or sequence > answer.sequence
                }
        self.heard.set()
        return True

    def _refused(self, refusal: Refusal, heartbeat: Heartbeat) -> None:
        self.refusal = refusal
        # Who did not tell its topology may be refused for just that; it tells with the next heartbeat.
        told = heartbeat.topology is not None or refusal.code is not RefusalCode.TOPOLOGY_MISMATCH
        self.shut_out = told and refusal.code in _FOR_WHAT_IT_RUNS
        self.heard.set()
        self._send_topology = True  # what is not known is perhaps what is missing
        if refusal.code is not RefusalCode.CLAIM_PENDING:  # every first start begins with that
            self._trouble(
                f"refused: {refusal.code}", f"The coordinator at {self._shown_url} refuses: {refusal.message}"
            )

    def _failed(self, failure: _Failure) -> None:
        self.failures += 1
        self.heard.set()
        self._trouble(failure.kind, f"The coordinator at {self._shown_url} gave no usable answer: {failure}")

    def _trouble(self, kind: str, message: str) -> None:
        if kind not in self._troubles:
            self._troubles.add(kind)
            log.warning("%s", message)

    def _well(self) -> None:
        if self._troubles:
            # Not "older": while two coordinators answer in turns, each good answer would make the next one news.
            self._troubles &= {"older"}
            log.info("The coordinator at %s answers again.", self._shown_url)


class _Pauses:
    """How long to wait between heartbeats."""

    def __init__(self) -> None:
        self._trouble_s = 0.0
        self._idle_s = 0.0

    def after_trouble(self) -> float:
        """The last heartbeat failed: wait longer each time, and never like all the others."""
        self._trouble_s = min(max(self._trouble_s * 2, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        return self._trouble_s * random.uniform(0.5, 1.0)

    def after_answer(self, *, early: bool, news: bool, interval_s: float) -> float:
        """The last one was answered: go on at once, unless the coordinator answers at once each time for no reason."""
        self._trouble_s = 0.0
        if news or not early:
            self._idle_s = 0.0
        else:
            # The first early answer is one that another heartbeat of ours has replaced.
            pause, self._idle_s = self._idle_s, min(max(self._idle_s * 2, 0.01), interval_s)
            return pause
        return 0.0


async def _either(request: asyncio.Task[float], event: asyncio.Event) -> None:
    """Wait until the request is done or the event is set."""
    rings = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({request, rings}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        rings.cancel()


async def _rest(seconds: float, event: asyncio.Event) -> None:
    """Pause. The event cuts it short, though not below what a coordinator in trouble can bear."""
    if seconds > 0:
        await asyncio.sleep(min(seconds, _FIRST_PAUSE_S))
    if seconds > _FIRST_PAUSE_S:
        try:
            await asyncio.wait_for(event.wait(), seconds - _FIRST_PAUSE_S)
        except TimeoutError:
            pass


def _body(heartbeat: Heartbeat) -> bytes | io.BytesIO:
    """A heartbeat as JSON; aiohttp wants what is large as a file."""
    raw = encode(heartbeat)
    return raw if len(raw) < _LARGE_BYTES else io.BytesIO(raw)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The whole body, unless it is absurdly long."""
    pieces, size = [], 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > _MOST_BYTES:
            raise _Failure("garbage", f"an answer of more than {_MOST_BYTES} bytes.")
        pieces.append(piece)
    return b"".join(pieces)


def _understood(status: int, raw: bytes) -> Answer | Refusal:
    """The message in a response."""
    if status == 200:
        try:
            answer = decode_answer(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _Failure("garbage", f"what came is no answer to a heartbeat ({error}).") from error
        if answer.version != PROTOCOL_VERSION:
            raise _Failure(
                "version",
                f"it speaks version {answer.version} of the protocol and this worker version {PROTOCOL_VERSION}: "
                "run the same version of millpond on both.",
            )
        return answer
    try:
        return decode_refusal(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _Failure(f"status {status}", f"HTTP status {status} and no reason.") from error


def _context(ca_file: Path | None) -> ssl.SSLContext:
    """TLS that trusts these certificates.

    Raises:
        ConfigError: they cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=str(ca_file) if ca_file is not None else None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"The certificates in '{ca_file}' cannot be read ({error}): give a PEM file.") from error
