"""The worker's client of the coordinator: it posts heartbeats and passes answers to the worker.

The client runs in an event loop of its own, beside the worker's loop, and executes the instructions of a
`HeartbeatSession`. It always has one heartbeat waiting at the coordinator (a long poll), and a second one while an
urgent report is in flight.

No failure here stops a worker: the last assignment stays valid, and so does the worker's ownership in Kafka.
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
from millpond.texts import said

from . import clock
from .heartbeats import (
    FIRST_SESSION_S,
    Answered,
    Failed,
    HeartbeatEvent,
    HeartbeatInstruction,
    HeartbeatSession,
    InFlight,
    LogRecovery,
    LogTrouble,
    Post,
    Publish,
    Rejected,
    Rest,
    RestOver,
    SessionRenewed,
    Started,
    UrgentReport,
)
from .loads import WorkerLoad
from .messages import (
    PROTOCOL_VERSION,
    Answer,
    BrokerReach,
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
from .overview import TopologyOverview
from .session import CoordinatorSession

__all__ = ("CoordinatorClient",)

log: logging.Logger = logging.getLogger(__name__)

#: The largest answer accepted: far more than one with 100,000 tasks.
_MAX_ANSWER_BYTES = 32 * 1024 * 1024
_LARGE_BODY_BYTES = 512 * 1024
_CONNECT_TIMEOUT_S = 1.0
_ONCE_TIMEOUT_S = 3.0
#: How long reported lags are valid. The worker reports twice per second.
_LAG_VALIDITY_S = 2.0


class _Failure(Exception):
    """A heartbeat has no usable answer. Each `kind` is logged once."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class CoordinatorClient:
    """The connection of one worker to its coordinator.

    `run` belongs to an event loop; `report`, `news` and the attributes may be used from any thread.

    Args:
        url: base URL of the coordinator, `http://` or `https://`.
        base: the parts of a heartbeat that do not change: application, worker, incarnation, topology hash, address,
            tags, rack, revision.
        topology: sent with heartbeats until one of them is answered, and when the coordinator asks for it; see
            `adopt`. None for a client that only reports with `once` that the worker is starting.
        token_file: file with the bearer token; read for each heartbeat, because such tokens rotate.
        ca_file: certificate authorities to trust (PEM); None for those of the system.
        trouble: returns the reason why the worker makes no progress, if any. This and the following functions are
            called in the event loop.
        brokers: returns whether Kafka answers the worker.
        kafka_cluster: returns the id of the worker's Kafka cluster.
        credentials_changed: returns whether the files with the worker's credentials have changed since its start.
        load: returns the last measurement of the worker's load; each is sent once.
        graph: the drawing of the topology.

    Attributes:
        heard: set after the first heartbeat was answered, rejected, or failed.
        session: the worker's session at the coordinator.

    Raises:
        ConfigError: the URL is invalid, or the certificates cannot be read.
    """

    def __init__(  # noqa: PLR0913 - keyword options after its three parts
        self,
        url: str,
        base: Heartbeat,
        topology: TopologySummary | None,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        trouble: Callable[[], Trouble | None] = lambda: None,
        brokers: Callable[[], Brokers] = lambda: Brokers.ANSWERING,
        reach: Callable[[], BrokerReach | None] = lambda: None,
        kafka_cluster: Callable[[], str] = lambda: "",
        credentials_changed: Callable[[], bool] = lambda: False,
        load: Callable[[], WorkerLoad | None] = lambda: None,
        graph: TopologyOverview | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ConfigError(f"'{url}' is not the URL of a coordinator: use one such as http://127.0.0.1:7070.")
        path = f"/v1/applications/{quote(base.application, safe='')}/workers/{quote(base.worker, safe='')}/heartbeat"
        self._url = url.rstrip("/") + path
        self._shown_url = url
        self._token_file = token_file
        self._ca_file = ca_file
        self._tls = _context(ca_file) if parts.scheme == "https" else None
        self._base, self._topology = base, topology
        self._trouble = trouble
        self._brokers, self._reach = brokers, reach
        self._kafka_cluster = kafka_cluster
        self._credentials_changed = credentials_changed
        self._load = load
        self._sent_load: WorkerLoad | None = None
        self._graph = graph

        self.heard: threading.Event = threading.Event()
        self.session: CoordinatorSession = CoordinatorSession(FIRST_SESSION_S)
        self._state = HeartbeatSession(topology)

        # Shared between threads, guarded by the lock.
        self._lock = threading.Lock()
        self._tasks: Mapping[str, TaskReport] = MappingProxyType({})
        self._reported_at = clock.monotonic()
        self._on_disk: Mapping[str, int] = MappingProxyType({})
        self._committed: Mapping[str, Mark] = MappingProxyType({})
        self._epoch = Epoch()
        self._leaving = False
        self._taken_over: dict[str, tuple[str, int]] = {}  # by task: owner, and first heartbeat with it (0: none)
        self._unread: Answer | None = None

        # Used only by the event loop.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: asyncio.Queue[HeartbeatEvent] | None = None

    @property
    def refusal(self) -> Refusal | None:
        """The reason why the last heartbeat was rejected; None if it was answered."""
        return self._state.refusal

    @property
    def rejected(self) -> bool:
        """Whether the worker's topology, version or application id was rejected, so that a retry does not help."""
        return self._state.rejected

    @property
    def connected_at(self) -> float | None:
        """The time of the last good answer, in monotonic seconds; None before the first."""
        return self._state.connected_at

    @property
    def outdated_answers(self) -> int:
        """The number of ignored answers from coordinators that no longer lead."""
        return self._state.outdated_answers

    @property
    def failures(self) -> int:
        """The number of heartbeats without a usable answer; rejections are not counted."""
        return self._state.failures

    # For the worker, from any thread.

    def report(  # noqa: PLR0913 - the parts of a report
        self,
        tasks: Mapping[str, TaskReport],
        on_disk: Mapping[str, int],
        taken_over: Mapping[str, str],
        epoch: Epoch,
        *,
        leaving: bool = False,
        committed: Mapping[str, Mark] = MappingProxyType({}),
        urgent: bool = False,
    ) -> None:
        """Set the worker's state for the next heartbeat.

        The mappings are kept, not copied: they must not change afterwards.

        Args:
            tasks: all tasks that the worker holds, by task id.
            on_disk: changelog offsets of tasks whose state is on disk but which the worker does not hold, by task id.
            taken_over: owners found or set in Kafka since the previous report. The client repeats each until the
                coordinator acknowledges it, so reporting it once is enough; repeating it does no harm.
            epoch: the epoch of the answer that the worker applies.
            leaving: whether the worker wants to end.
            committed: progress of the committed active tasks, by task id.
            urgent: whether to post a heartbeat now, without waiting for the next one.
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
            except RuntimeError:  # the loop was closed a moment ago: the worker is shutting down
                log.debug("coordinator client: dropping an urgent report, since the client has ended")

    def adopt(self, topology: TopologySummary) -> None:
        """Replace the topology by one with more tasks; each heartbeat contains it until one of them is answered."""
        self._state.topology = topology

    def news(self) -> Answer | None:
        """Return the newest answer; None if it was returned before.

        The epochs of returned answers never decrease. An answer may only acknowledge a heartbeat: compare `revision`
        and `epoch` to see whether anything changed.
        """
        with self._lock:
            answer, self._unread = self._unread, None
        return answer

    @property
    def latest(self) -> Answer | None:
        """The newest answer; None before the first."""
        return self._state.answer

    # In the client's event loop.

    async def run(self) -> None:
        """Post heartbeats until cancelled, whatever the coordinator does."""
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
                            self._execute(each, session, posts)
                        if isinstance(event, Rejected | Failed):
                            self.heard.set()
                finally:
                    for post in posts:
                        post.cancel()
                    await asyncio.gather(*posts, return_exceptions=True)
        finally:
            with self._lock:
                self._loop = self._events = None

    def _execute(
        self, instruction: HeartbeatInstruction, session: aiohttp.ClientSession, posts: set[asyncio.Task[None]]
    ) -> None:
        loop, events = self._loop, self._events
        assert loop is not None
        assert events is not None
        match instruction:
            case Post(number, _, timeout_s):
                post = loop.create_task(self._post_heartbeat(session, events, number, timeout_s))
                posts.add(post)
                post.add_done_callback(posts.discard)
            case Rest(number, seconds):
                loop.call_later(seconds, lambda: events.put_nowait(RestOver(clock.monotonic(), number)))
            case _:
                self._apply(instruction)

    def _apply(self, instruction: HeartbeatInstruction) -> None:
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
            case LogTrouble(message):
                log.warning("coordinator at %s: %s", self._shown_url, message)
            case LogRecovery():
                log.info("coordinator at %s: answers again", self._shown_url)

    async def _post_heartbeat(
        self, session: aiohttp.ClientSession, events: asyncio.Queue[HeartbeatEvent], number: int, timeout_s: float
    ) -> None:
        events.put_nowait(await self._outcome(session, self._state.in_flight[number], timeout_s))

    async def _outcome(self, session: aiohttp.ClientSession, record: InFlight, timeout_s: float) -> HeartbeatEvent:
        """Post one heartbeat and return its outcome."""
        number = record.number
        record.sent_at = clock.boottime()
        try:
            outcome = await self._post(session, self._heartbeat(record), timeout_s=timeout_s)
        except _Failure as failure:
            return Failed(clock.monotonic(), number, failure.kind, str(failure))
        except Exception as error:
            log.exception("coordinator at %s: a heartbeat failed unexpectedly; sending the next one", self._shown_url)
            return Failed(clock.monotonic(), number, "unexpected", f"{type(error).__name__}: {said(error)}")
        if isinstance(outcome, Refusal):
            return Rejected(clock.monotonic(), number, outcome)
        return Answered(clock.monotonic(), number, outcome)

    async def leave(self) -> None:
        """Report that the process ends now, instead of letting the coordinator wait for the session timeout.

        Call it after `run` was cancelled. It takes at most a second and is sent once, without a retry.
        """
        record = self._state.next_heartbeat(clock.monotonic(), 0)
        try:
            async with aiohttp.ClientSession() as session:
                heartbeat = msgspec.structs.replace(self._heartbeat(record), ended=True)
                await self._post(session, heartbeat, timeout_s=_CONNECT_TIMEOUT_S)
        except _Failure as failure:
            log.info("coordinator at %s: cannot report the end of this worker: %s", self._shown_url, failure)

    async def once(self) -> bool:
        """Post one heartbeat without a long poll, instead of `run`. If it was rejected, `refusal` says why.

        Returns:
            Whether the coordinator answered or rejected it.
        """
        record = self._state.next_heartbeat(clock.monotonic(), 0)
        async with aiohttp.ClientSession() as session:
            event = await self._outcome(session, record, _ONCE_TIMEOUT_S)
        for each in self._state.handle(event):
            self._apply(each)
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
                # At least the leading term, even before an answer of it is applied: earlier coordinators must see it.
                epoch=max(self._epoch, Epoch(self._state.leader[0], 0)),
                known_revision=known.revision if known else 0,
                coordinator=known.coordinator if known else "",
                acknowledged=known.sequence if known else 0,
                tasks=self._current_tasks(),
                committed=dict(self._committed),
                on_disk=dict(self._on_disk),
                taken_over={task: owner for task, (owner, _) in self._taken_over.items()},
                leaving=self._leaving,
                trouble=self._trouble(),
                brokers=self._brokers(),
                reach=self._reach(),
                kafka_cluster=self._kafka_cluster(),
                credentials_changed=self._credentials_changed(),
                clock_ms=int(clock.unix_time() * 1000),
                wait_ms=record.wait_ms,
                load=self._unsent_load(),
                graph=self._graph if record.topology is not None or (known and known.send_graph) else None,
            )

    def _unsent_load(self) -> WorkerLoad | None:
        load = self._load()
        unsent, self._sent_load = (None if load is self._sent_load else load), load
        return unsent

    def _current_tasks(self) -> dict[str, TaskReport]:
        """Return the tasks of the last report, without lags if the report is old.

        The lags of a process that was frozen, or whose loop hangs, are out of date.
        """
        if clock.monotonic() - self._reported_at < _LAG_VALIDITY_S:
            return dict(self._tasks)
        return without_lags(self._tasks)

    async def _post(
        self, session: aiohttp.ClientSession, heartbeat: Heartbeat, *, timeout_s: float
    ) -> Answer | Refusal:
        """Post a heartbeat.

        Raises:
            _Failure: no answer arrived in time, or it cannot be decoded.
        """
        headers = {"Content-Type": "application/json"}
        if self._token_file is not None:
            try:
                headers["Authorization"] = f"Bearer {self._token_file.read_text().strip()}"
            except (OSError, UnicodeDecodeError) as error:
                raise _Failure("token", f"cannot read the token file '{self._token_file}': {error}") from error
        try:
            async with session.post(
                self._url,
                data=_body(heartbeat),
                headers=headers,
                ssl=self._tls if self._tls is not None else True,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_TIMEOUT_S),
            ) as response:
                raw = await _read(response)
                status = response.status
        except TimeoutError as error:
            raise _Failure("timeout", f"no answer within {timeout_s:.1f} s.") from error
        except aiohttp.ClientSSLError as error:
            if self._tls is not None:
                self._tls = self._reload_certificates() or self._tls
            raise _Failure("tls", f"TLS failed: {error}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: an invalid header
            raise _Failure("connection", f"{type(error).__name__}: {error}") from error
        return _decode_response(status, raw)

    def _reload_certificates(self) -> ssl.SSLContext | None:
        """Read the certificates again: they may have been rotated."""
        try:
            return _context(self._ca_file)
        except ConfigError as error:
            log.debug("%s", error)
            return None


def _body(heartbeat: Heartbeat) -> bytes | io.BytesIO:
    """Return a heartbeat as JSON; aiohttp needs a large body as a file."""
    raw = encode(heartbeat)
    return raw if len(raw) < _LARGE_BODY_BYTES else io.BytesIO(raw)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of a response; raises _Failure if it is too large."""
    pieces, size = [], 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > _MAX_ANSWER_BYTES:
            raise _Failure("garbage", f"the coordinator's response is larger than {_MAX_ANSWER_BYTES} bytes.")
        pieces.append(piece)
    return b"".join(pieces)


def _decode_response(status: int, raw: bytes) -> Answer | Refusal:
    """Return the message of a response; raises _Failure if it has none."""
    if status == 200:
        try:
            answer = decode_answer(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _Failure("garbage", f"cannot decode the coordinator's response ({error}).") from error
        if answer.version != PROTOCOL_VERSION:
            raise _Failure(
                "version",
                f"the coordinator has protocol version {answer.version}, this worker version {PROTOCOL_VERSION}: "
                "run the same version of millpond on both.",
            )
        return answer
    try:
        return decode_refusal(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _Failure(f"status {status}", f"HTTP status {status} without a reason.") from error


def _context(ca_file: Path | None) -> ssl.SSLContext:
    """Return the TLS context for some certificate authorities.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=str(ca_file) if ca_file is not None else None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"Cannot read the certificates in '{ca_file}' ({error}): use a PEM file.") from error
