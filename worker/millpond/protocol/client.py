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
from .heartbeats import (
    FIRST_SESSION_S,
    Answered,
    Failed,
    HeartbeatEvent,
    HeartbeatInstruction,
    HeartbeatSession,
    InFlight,
    Post,
    Publish,
    Rejected,
    Rest,
    RestOver,
    SessionRenewed,
    Started,
    TellRecovery,
    TellTrouble,
    UrgentReport,
)
from .messages import (
    PROTOCOL_VERSION,
    Answer,
    Brokers,
    Epoch,
    Heartbeat,
    Mark,
    Refusal,
    TaskReport,
    TopologySummary,
    Trouble,
    decode_answer,
    decode_refusal,
    encode,
    without_lags,
)
from .session import CoordinatorSession

__all__ = ("CoordinatorClient",)

log = logging.getLogger(__name__)

#: What an answer may weigh: far more than one that names 100,000 tasks does.
_MOST_BYTES = 32 * 1024 * 1024
_LARGE_BYTES = 512 * 1024
_CONNECT_S = 1.0
_ONCE_S = 3.0
#: The worker reports twice a second.
_LAGS_LAST_S = 2.0


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
        heard: set once a heartbeat was answered, rejected, or had no usable answer.
        session: whether the coordinator may take this worker for dead.

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

        self.heard = threading.Event()
        self.session = CoordinatorSession(FIRST_SESSION_S)
        self._state = HeartbeatSession(topology)

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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: asyncio.Queue[HeartbeatEvent] | None = None

    @property
    def refusal(self) -> Refusal | None:
        """Why the last heartbeat was rejected; None when it was answered."""
        return self._state.refusal

    @property
    def rejected(self) -> bool:
        """Whether the last heartbeat was rejected for what the worker runs, though it told all of that."""
        return self._state.rejected

    @property
    def connected_at(self) -> float | None:
        """Monotonic time, in seconds, of the last good answer; None before the first."""
        return self._state.connected_at

    @property
    def outdated_answers(self) -> int:
        """How many answers of coordinators that do not lead any more were ignored."""
        return self._state.outdated_answers

    @property
    def failures(self) -> int:
        """How many heartbeats had no usable answer, rejections aside."""
        return self._state.failures

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
            loop, events = self._loop, self._events
        if urgent and loop is not None and events is not None:
            try:
                loop.call_soon_threadsafe(events.put_nowait, UrgentReport(clock.monotonic()))
            except RuntimeError:  # its loop was closed a moment ago: the worker ends
                log.debug("an urgent report came after the client's end")

    def adopt(self, topology: TopologySummary) -> None:
        """The worker's topology has more tasks now; heartbeats carry it until one of them is answered."""
        self._state.topology = topology

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
        return self._state.answer

    # In the client's event loop.

    async def run(self) -> None:
        """Heartbeat until cancelled. Nothing that a coordinator does, or does not do, ends it."""
        events: asyncio.Queue[HeartbeatEvent] = asyncio.Queue()
        posts: set[asyncio.Task[None]] = set()
        with self._lock:
            self._loop, self._events = asyncio.get_running_loop(), events
        connector = aiohttp.TCPConnector(limit=4, keepalive_timeout=60)
        try:
            async with aiohttp.ClientSession(connector=connector) as session:
                try:
                    events.put_nowait(Started(clock.monotonic()))
                    while True:
                        event = await events.get()
                        for each in self._state.handle(event):
                            self._do(each, session, posts)
                        if isinstance(event, Rejected | Failed):
                            self.heard.set()
                finally:
                    for post in posts:
                        post.cancel()
                    await asyncio.gather(*posts, return_exceptions=True)
        finally:
            with self._lock:
                self._loop = self._events = None

    def _do(
        self, instruction: HeartbeatInstruction, session: aiohttp.ClientSession, posts: set[asyncio.Task[None]]
    ) -> None:
        loop, events = self._loop, self._events
        assert loop is not None
        assert events is not None
        match instruction:
            case Post(number, _, timeout_s):
                post = loop.create_task(self._post_and_tell(session, events, number, timeout_s))
                posts.add(post)
                post.add_done_callback(posts.discard)
            case Rest(number, seconds):
                loop.call_later(seconds, lambda: events.put_nowait(RestOver(clock.monotonic(), number)))
            case _:
                self._take_in(instruction)

    def _take_in(self, instruction: HeartbeatInstruction) -> None:
        match instruction:
            case Publish(answer):
                with self._lock:
                    self._unread = answer
                    self._taken_over = {
                        task: (owner, sequence)
                        for task, (owner, sequence) in self._taken_over.items()
                        if not sequence or sequence > answer.sequence
                    }
                self.heard.set()
            case SessionRenewed(sent_at, timeout_s):
                self.session.timeout_s = timeout_s
                self.session.answered(sent_at)
            case TellTrouble(message):
                log.warning("coordinator at %s: %s", self._shown_url, message)
            case TellRecovery():
                log.info("coordinator at %s: answers again", self._shown_url)

    async def _post_and_tell(
        self, session: aiohttp.ClientSession, events: asyncio.Queue[HeartbeatEvent], number: int, timeout_s: float
    ) -> None:
        events.put_nowait(await self._outcome(session, self._state.in_flight[number], timeout_s))

    async def _outcome(self, session: aiohttp.ClientSession, record: InFlight, timeout_s: float) -> HeartbeatEvent:
        """Post one heartbeat; return what came of it."""
        number = record.number
        record.sent_at = clock.boottime()
        try:
            outcome = await self._post(session, self._heartbeat(record), timeout_s=timeout_s)
        except _Failure as failure:
            return Failed(clock.monotonic(), number, failure.kind, str(failure))
        if isinstance(outcome, Refusal):
            return Rejected(clock.monotonic(), number, outcome)
        return Answered(clock.monotonic(), number, outcome)

    async def goodbye(self) -> None:
        """Tell the coordinator that the process ends now, so that it need not wait for the session to time out.

        For use after `run` was cancelled. Takes a second at most; whether it arrives is not certain.
        """
        record = self._state.next_heartbeat(clock.monotonic(), 0)
        try:
            async with aiohttp.ClientSession() as session:
                heartbeat = msgspec.structs.replace(self._heartbeat(record), ended=True)
                await self._post(session, heartbeat, timeout_s=_CONNECT_S)
        except _Failure as failure:
            log.info("coordinator at %s: not told of this worker's end: %s", self._shown_url, failure)

    async def once(self) -> bool:
        """Post one heartbeat and wait for no news. For use instead of `run`; `refusal` tells whether it was rejected.

        Returns:
            Whether the coordinator answered or rejected it.
        """
        record = self._state.next_heartbeat(clock.monotonic(), 0)
        async with aiohttp.ClientSession() as session:
            event = await self._outcome(session, record, _ONCE_S)
        for each in self._state.handle(event):
            self._take_in(each)
        self.heard.set()
        return not isinstance(event, Failed)

    def _heartbeat(self, record: InFlight) -> Heartbeat:
        known = record.known
        with self._lock:
            for task, (owner, sequence) in self._taken_over.items():
                if not sequence:
                    self._taken_over[task] = (owner, record.number)
            return msgspec.structs.replace(
                self._base,
                sequence=record.number,
                topology=record.topology,
                # The term that leads, even if nothing of it has been carried out: an earlier coordinator must learn of it.
                epoch=max(self._epoch, Epoch(self._state.leader[0], 0)),
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
                wait_ms=record.wait_ms,
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
            raise _Failure("garbage", f"cannot decode the coordinator's response ({error}).") from error
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
        raise _Failure(f"status {status}", f"HTTP status {status} without a reason.") from error


def _context(ca_file: Path | None) -> ssl.SSLContext:
    """TLS that trusts these certificates.

    Raises:
        ConfigError: they cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=str(ca_file) if ca_file is not None else None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"The certificates in '{ca_file}' cannot be read ({error}): give a PEM file.") from error
