"""The HTTP interface for queries. Every worker answers for the whole application.

The answer for one key is a JSON object, with its position. The answer with many rows is lines of JSON, in the order of
the keys' bytes over all partitions (windows: segment, key, start; sessions: segment, key, end, start), and a last line
that begins with `complete`; without that line the answer was cut off.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from prometheus_client import CollectorRegistry

from millpond.serdes.fail_fast import failing_fast
from millpond.state.formats import next_prefix
from millpond.state.reversed_ranges import warn_of_reversed_query

from .access import Access, Gate, client_context, reload_certificates
from .catalog import QueryableKind, StoreCatalog, StoreInfo
from .directory import CoordinatorView, TaskDirectory
from .failures import FailureReason, QueryFailed, status_of
from .local import LocalReader, LocalState
from .messages import Read, Row
from .metrics import Outcome, QueryMetrics
from .parameters import RequestOptions, bad_request, time_ms
from .peers import PATH, Peers, answer_peer
from .raw_rows import answer_rows, answer_stores
from .rendering import KeyFormat, encode, raw_key, renderer
from .routing import RoutedScan, Router

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ("QueryService",)

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

_THREADS = 2
#: A client that reads nothing for this long is disconnected.
_WRITE_TIMEOUT_S = 60.0
_NO_PARAMETERS: frozenset[str] = frozenset()
_UNRESTRICTED = Access()
_PEER = "peer"

Respond = Callable[["web.Request", Outcome], Awaitable["web.StreamResponse"]]


class HttpRoutes(Protocol):
    """The part of the worker's HTTP server that the service needs."""

    def route(self, method: str, path: str, handler: Callable[[Any], Awaitable[Any]]) -> None:
        """Answer requests for a path with a handler."""

    def resource(self, opened: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        """Enter a context on the event loop before the first request."""


@dataclass(frozen=True)
class _Opened:
    reader: LocalReader
    router: Router
    directory: TaskDirectory


class QueryService:
    """The query service of one worker. Its routes exist from the start; it answers queries after `open`."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        application: str,
        worker: str,
        registry: CollectorRegistry,
        coordinator: Callable[[], AbstractAsyncContextManager[CoordinatorView]] | None = None,
        access: Access = _UNRESTRICTED,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Create the service.

        Args:
            application: id of the application.
            worker: name of this worker.
            registry: where the metrics are registered.
            coordinator: opens the connection to the coordinator (`directory.open_assignment`); None without one.
            access: the access settings.
            tls: TLS context of the server that the routes are added to; its certificate is reloaded when it changes.

        Raises:
            ConfigError: the token file cannot be read.
        """
        self._gate = Gate(access)
        self._tls = tls
        self._application = application
        self._worker = worker
        self._coordinator = coordinator
        self._metrics = QueryMetrics(registry, application, worker)
        self._directory = TaskDirectory(None)
        self._peers: Peers
        self._executor: Executor
        self._registry_executor: Executor
        self._local: tuple[LocalState, StoreCatalog] | None = None
        self._opened: _Opened | None = None

    def add_to(self, http: HttpRoutes) -> None:
        """Add the routes, before the server starts."""
        store = "/v1/stores/{store}"
        http.resource(self._resources)
        for path, kind, respond in (
            ("/v1/stores", "stores", self._stores),
            (store, "stores", self._store),
            (f"{store}/keys/{{key:(?s:.*)}}", "key", self._key),
            (f"{store}/range", "range", self._range),
            (f"{store}/prefix", "prefix", self._prefix),
            (f"{store}/all", "all", self._all),
            (f"{store}/windows", "windows", self._windows),
            (f"{store}/windows/{{key:(?s:.*)}}", "window", self._windows_of_key),
            (f"{store}/versions/{{key:(?s:.*)}}", "versions", self._versions_of_key),
            (f"{store}/sessions", "sessions", self._sessions),
            (f"{store}/sessions/{{key:(?s:.*)}}", "session", self._sessions_of_key),
            ("/v1/raw", "raw", self._raw_stores),
            ("/v1/raw/{store}/{partition}", "raw", self._raw_rows),
            ("/v1/metadata/{store}", "metadata", self._metadata),
            ("/v1/metadata/{store}/{key:(?s:.*)}", "metadata", self._metadata_of_key),
        ):
            http.route("GET", path, self._answering(kind, respond))
        http.route("POST", PATH, self._answering(_PEER, self._peer))

    def open(self, state: LocalState, catalog: StoreCatalog) -> None:
        """Start to answer queries. Thread-safe."""
        self._local = (state, catalog)

    @asynccontextmanager
    async def _resources(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            context = client_context(self._gate.access.ca_file)
            self._peers = await stack.enter_async_context(Peers.open(context, self._gate.tokens))
            reloading = asyncio.create_task(reload_certificates(self._gate.access, self._tls, context))
            stack.callback(reloading.cancel)
            if self._coordinator is not None:
                self._directory = TaskDirectory(await stack.enter_async_context(self._coordinator()))
            # Threads start with the first query that needs them.
            executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="millpond-query")
            stack.callback(executor.shutdown, wait=False, cancel_futures=True)
            self._executor = executor
            # So many threads that a query whose schemas are known never waits for one that asks for a schema.
            converting = ThreadPoolExecutor(self._gate.access.max_concurrent, thread_name_prefix="millpond-query-serde")
            stack.callback(converting.shutdown, wait=False, cancel_futures=True)
            self._registry_executor = converting
            yield
        self._opened = None

    def _open(self) -> _Opened:
        if self._opened is None:
            if self._local is None:
                raise QueryFailed(
                    FailureReason.NOT_ACTIVE, f"worker '{self._worker}' is starting and has no stores yet."
                )
            state, catalog = self._local
            reader = LocalReader(self._worker, state, catalog, self._executor)
            router = Router(reader, self._directory, self._peers, self._metrics.forwarded)
            self._opened = _Opened(reader, router, self._directory)
        return self._opened

    def _answering(self, kind: str, respond: Respond) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            gate = self._gate
            try:
                with self._metrics.observed(kind) as outcome:
                    gate.check(request)
                    try:
                        with gate.slot(peer=kind == _PEER):
                            async with gate.deadline():
                                return await respond(request, outcome)
                    except TimeoutError as error:
                        if (outcome.begun or kind == _PEER) and request.transport is not None:
                            request.transport.abort()
                        raise QueryFailed(
                            FailureReason.BUSY,
                            f"the answer took longer than {gate.access.max_duration_s:g} s: ask for fewer rows, "
                            "or raise 'query.max.duration.ms'.",
                        ) from error
            except QueryFailed as failed:
                return _json({"error": failed.failure}, status_of(failed.reason))

        return answer

    # Stores

    async def _stores(self, _request: web.Request, _outcome: Outcome) -> web.StreamResponse:
        catalog = self._open().reader.catalog
        return _json({"application": self._application, "stores": [_description(each) for each in catalog.values()]})

    async def _store(self, request: web.Request, _outcome: Outcome) -> web.StreamResponse:
        return _json(_description(self._info(request)))

    def _info(self, request: web.Request, *kinds: QueryableKind) -> StoreInfo:
        info = self._open().reader.catalog[request.match_info["store"]]
        if kinds and info.kind not in kinds:
            raise QueryFailed(
                FailureReason.UNKNOWN_QUERY_TYPE,
                f"store '{info.name}' is a {info.kind.value.replace('_', '-')} store and does not support this query; "
                f"{_USAGE[info.kind]}.",
            )
        return info

    # One row

    async def _key(self, request: web.Request, _outcome: Outcome) -> web.StreamResponse:
        info = self._info(request, QueryableKind.KEY_VALUE, QueryableKind.VERSIONED)
        versioned = info.kind is QueryableKind.VERSIONED
        options = self._options(request, info, *(("as_of",) if versioned else ()))
        key = await self._raw_key(info, request.match_info["key"], options.key_format)
        as_of = time_ms(request.query, "as_of", 2**63 - 1) if versioned else None
        return await self._one(info, options, key, options.reading(low=key, exact=True, as_of=as_of))

    async def _one(self, info: StoreInfo, options: RequestOptions, key: bytes, read: Read) -> web.StreamResponse:
        partition = info.partition_of(key) if options.partition is None else options.partition
        scan, row = await self._row(_of_partition(read, partition))
        answer: dict[str, Any] = {"found": row is not None, "partition": partition}
        if row is None:
            answer["value"] = None
        else:
            answer |= await self._converted(info, renderer(info, options.format), row)
        return _json(answer | _scan_summary(scan))

    async def _row(self, read: Read) -> tuple[RoutedScan, Row | None]:
        scan = self._open().router.scan(read)
        found: Row | None = None
        async with aclosing(scan.batches()) as batches:
            async for batch in batches:
                found = batch[0]
        return scan, found

    # Many rows

    async def _range(self, request: web.Request, outcome: Outcome) -> web.StreamResponse:
        info = self._info(request, QueryableKind.KEY_VALUE)
        options = self._options(request, info, "low", "high")
        low, high = await self._bounds(info, options, request)
        return await self._rows(request, outcome, info, options, options.reading(low=low, high=high))

    async def _prefix(self, request: web.Request, outcome: Outcome) -> web.StreamResponse:
        info = self._info(request, QueryableKind.KEY_VALUE)
        options = self._options(request, info, "prefix")
        if "prefix" not in request.query:
            raise bad_request("prefix: this parameter is required")
        low = await self._raw_key(info, request.query["prefix"], options.key_format)
        return await self._rows(request, outcome, info, options, options.reading(low=low, high=next_prefix(low)))

    async def _all(self, request: web.Request, outcome: Outcome) -> web.StreamResponse:
        info = self._info(request, QueryableKind.KEY_VALUE, QueryableKind.WINDOW, QueryableKind.SESSION)
        options = self._options(request, info)
        return await self._rows(request, outcome, info, options, options.read)

    async def _versions_of_key(self, request: web.Request, outcome: Outcome) -> web.StreamResponse:
        info = self._info(request, QueryableKind.VERSIONED)
        options = self._options(request, info, "from", "to")
        key = await self._raw_key(info, request.match_info["key"], options.key_format)
        partition = info.partition_of(key) if options.partition is None else options.partition
        first, last = _window_bounds(request)
        read = _of_partition(options.reading(low=key, exact=True, first=first, last=last), partition)
        return await self._rows(request, outcome, info, options, read)

    async def _windows(self, request: web.Request, outcome: Outcome) -> web.StreamResponse:
        info = self._info(request, QueryableKind.WINDOW)
        options = self._options(request, info, "low", "high", "from", "to")
        low, high = await self._bounds(info, options, request)
        first, last = _window_bounds(request)
        read = options.reading(low=low, high=high, first=first, last=last)
        return await self._rows(request, outcome, info, options, read)

    async def _windows_of_key(self, request: web.Request, outcome: Outcome) -> web.StreamResponse:
        info = self._info(request, QueryableKind.WINDOW)
        options = self._options(request, info, "from", "to", "start")
        key = await self._raw_key(info, request.match_info["key"], options.key_format)
        if "start" in request.query:
            start = time_ms(request.query, "start", 0)
            return await self._one(info, options, key, options.reading(low=key, exact=True, first=start, last=start))
        partition = info.partition_of(key) if options.partition is None else options.partition
        first, last = _window_bounds(request)
        read = _of_partition(options.reading(low=key, exact=True, first=first, last=last), partition)
        return await self._rows(request, outcome, info, options, read)

    async def _sessions(self, request: web.Request, outcome: Outcome) -> web.StreamResponse:
        info = self._info(request, QueryableKind.SESSION)
        options = self._options(request, info, "low", "high", "from", "to")
        low, high = await self._bounds(info, options, request)
        first, last = _window_bounds(request)
        read = options.reading(low=low, high=high, first=first, last=last)
        return await self._rows(request, outcome, info, options, read)

    async def _sessions_of_key(self, request: web.Request, outcome: Outcome) -> web.StreamResponse:
        info = self._info(request, QueryableKind.SESSION)
        options = self._options(request, info, "from", "to", "start", "end")
        key = await self._raw_key(info, request.match_info["key"], options.key_format)
        if ("start" in request.query) != ("end" in request.query):
            raise bad_request("start and end: one session has both; for all sessions of a time, use from and to")
        if "start" in request.query:
            session = time_ms(request.query, "start", 0), time_ms(request.query, "end", 0)
            return await self._one(info, options, key, options.reading(low=key, exact=True, session=session))
        partition = info.partition_of(key) if options.partition is None else options.partition
        first, last = _window_bounds(request)
        read = _of_partition(options.reading(low=key, exact=True, first=first, last=last), partition)
        return await self._rows(request, outcome, info, options, read)

    async def _rows(
        self, request: web.Request, outcome: Outcome, info: StoreInfo, options: RequestOptions, read: Read
    ) -> web.StreamResponse:
        from aiohttp import web

        render = renderer(info, options.format)
        loop = asyncio.get_running_loop()
        threads = self._registry_executor if info.asks_registry else self._executor

        def lines(batch: list[Row]) -> bytes:
            return b"".join([encode(render(row)) + b"\n" for row in batch])

        response = web.StreamResponse()
        response.content_type = "application/x-ndjson"
        scan = self._open().router.scan(read)
        count = 0
        end: dict[str, Any] = {"complete": True}
        try:
            try:
                async with aclosing(scan.batches()) as batches:
                    async for batch in batches:
                        text = await loop.run_in_executor(threads, failing_fast, lines, batch)
                        if not response.prepared:
                            outcome.begun = True
                            await response.prepare(request)
                        async with asyncio.timeout(_WRITE_TIMEOUT_S):
                            await response.write(text)
                        count += len(batch)
            except QueryFailed as failed:
                if not response.prepared:
                    raise
                outcome.failed = failed
                end = {"complete": False, "error": failed.failure}
            if not response.prepared:
                await response.prepare(request)
            await response.write_eof(
                encode(end | {"rows": count, "snapshot": scan.snapshot} | _scan_summary(scan)) + b"\n"
            )
        except (ConnectionError, TimeoutError) as error:
            log.debug("query: the client disconnected before the end of the answer: %s", error)
            if request.transport is not None:
                request.transport.abort()
        return response

    # Locations

    async def _metadata(self, request: web.Request, _outcome: Outcome) -> web.StreamResponse:
        info = self._info(request)
        await self._directory.refresh()
        here = str(request.url.origin())
        places = [self._place(info, each, here) for each in range(info.partitions)]
        return _json({"store": info.name, "partitions": places})

    async def _metadata_of_key(self, request: web.Request, _outcome: Outcome) -> web.StreamResponse:
        info = self._info(request)
        form = RequestOptions.of(self._application, info, request.query, _NO_PARAMETERS).key_format
        key = await self._raw_key(info, request.match_info["key"], form)
        await self._directory.refresh()
        return _json({"store": info.name, **self._place(info, info.partition_of(key), str(request.url.origin()))})

    def _place(self, info: StoreInfo, partition: int, url: str) -> dict[str, Any]:
        opened = self._open()
        read = Read(application=self._application, store=info.name, partitions=(partition,))
        task = opened.router.task(read, partition)
        here = opened.reader.readable(read, partition)
        if task is None:
            # Every worker has all rows of a global store.
            return {
                "partition": partition,
                "task": None,
                "active": self._worker_address(self._worker, url),
                "standbys": [],
            }
        places = opened.directory.places(task)
        active = self._worker if here else next(iter(places.active), None)
        return {
            "partition": partition,
            "task": str(task),
            "active": None if active is None else self._worker_address(active, url),
            "standbys": [self._worker_address(each, url) for each in places.copies if each != active],
        }

    def _worker_address(self, worker: str, url: str) -> dict[str, Any]:
        """Return a worker and its address; `url` is the address at which the client reached this worker."""
        address = self._directory.address(worker)
        return {"worker": worker, "address": url if address is None and worker == self._worker else address}

    # Raw rows, and reads of other workers

    async def _raw_stores(self, _request: web.Request, _outcome: Outcome) -> web.StreamResponse:
        opened = self._open()
        return _json(await answer_stores(opened.reader, opened.directory))

    async def _raw_rows(self, request: web.Request, outcome: Outcome) -> web.StreamResponse:
        outcome.begun = True
        return await answer_rows(self._open().reader, self._executor, request)

    async def _peer(self, request: web.Request, _outcome: Outcome) -> web.StreamResponse:
        return await answer_peer(self._open().reader, request)

    def _options(self, request: web.Request, info: StoreInfo, *names: str) -> RequestOptions:
        return RequestOptions.of(self._application, info, request.query, frozenset(names))

    async def _bounds(
        self, info: StoreInfo, options: RequestOptions, request: web.Request
    ) -> tuple[bytes, bytes | None]:
        low, high = request.query.get("low"), request.query.get("high")
        first = b"" if low is None else await self._raw_key(info, low, options.key_format)
        last = None if high is None else await self._raw_key(info, high, options.key_format)
        if last is not None and first > last:
            warn_of_reversed_query(info.name, low, high)
        # `high` is inclusive, the bound of `Read` is not: use the next larger key.
        return first, None if last is None else last + b"\0"

    async def _raw_key(self, info: StoreInfo, text: str, form: KeyFormat) -> bytes:
        return await self._converted(info, raw_key, info, text, form)

    async def _converted(self, info: StoreInfo, convert: Callable[..., T], *given: object) -> T:
        """Convert keys or values with the serdes of a store.

        Those of a schema registry may wait for it, and the event loop has to send the worker's heartbeats meanwhile.
        """
        if not info.asks_registry:
            return failing_fast(convert, *given)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._registry_executor, failing_fast, convert, *given)


_USAGE = {
    QueryableKind.KEY_VALUE: "use /keys/{key}, /range, /prefix or /all",
    QueryableKind.WINDOW: "use /windows/{key}, /windows or /all",
    QueryableKind.SESSION: "use /sessions/{key}, /sessions or /all",
    QueryableKind.VERSIONED: "use /keys/{key} or /versions/{key}",
}


def _description(info: StoreInfo) -> dict[str, Any]:
    description = {
        "name": info.name,
        "kind": info.kind,
        "partitions": info.partitions,
        "global": info.subtopology is None,
        "persistent": info.persistent,
        "key": info.key.name,
        "value": info.value.name,
        "inputs": sorted(info.inputs),
    }
    if info.kind is QueryableKind.WINDOW:
        description |= {"window_size_ms": info.window_size_ms, "retention_ms": info.retention_ms}
    if info.kind in (QueryableKind.SESSION, QueryableKind.VERSIONED):
        description |= {"retention_ms": info.retention_ms}
    return description


def _of_partition(read: Read, partition: int) -> Read:
    from msgspec.structs import replace

    return replace(read, partitions=(partition,))


def _window_bounds(request: web.Request) -> tuple[int, int]:
    return time_ms(request.query, "from", 0), time_ms(request.query, "to", 2**63 - 1)


def _scan_summary(scan: RoutedScan) -> dict[str, Any]:
    return {"position": scan.position, "staleness_ms": scan.staleness_ms, "workers": sorted(scan.workers)}


def _json(content: object, status: int = 200) -> web.Response:
    from aiohttp import web

    return web.Response(body=encode(content) + b"\n", status=status, content_type="application/json")
