"""An application with several workers in one process. Everything is real except Kafka."""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

import millpond as mp
from millpond.protocol import Epoch, Member, Role, TaskState, View
from millpond.queries import Client
from millpond.queries.access import Access, server_context
from millpond.queries.directory import open_assignment
from millpond.queries.service import QueryService
from millpond.runtime.http.query_catalog import store_catalog
from millpond.runtime.http.server import HttpServer
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.handlers import Handlers
from millpond.runtime.topics.plan import make_plan
from millpond.state import MemoryBackend, StateFile, StateFileOptions

APPLICATION = "app"
TOPIC = "in"
SMALL = StateFileOptions(cache_bytes=1 << 20, write_buffer_bytes=256 << 10)
WINDOW_MS = 10_000
RETENTION_MS = 200_000
_FAST = Path("/dev/shm")


class Point(msgspec.Struct, frozen=True):
    """A key with fields."""

    y: int
    x: int


def _reader(*stores: Any) -> type[mp.Processor]:
    class Reader(mp.Processor):
        def process(self, record: mp.Record) -> None: ...

    Reader.stores = staticmethod(lambda: list(stores))
    return Reader


STORES = (
    mp.KeyValueStoreBuilder(name="counts", key=mp.String, value=mp.Long, timestamped=True),
    mp.KeyValueStoreBuilder(name="points", key=mp.Json(Point), value=mp.Json(), timestamped=True),
    mp.KeyValueStoreBuilder(name="memory", key=mp.Long, value=mp.Json(list[int]), timestamped=False, persistent=False),
    mp.KeyValueStoreBuilder(name="uuids", key=mp.UUID, value=mp.Bytes, timestamped=False),
    mp.WindowStoreBuilder(
        name="windows", key=mp.String, value=mp.Double, timestamped=True, retention_ms=RETENTION_MS,
        window_size_ms=WINDOW_MS,
    ),
    mp.VersionedKeyValueStoreBuilder(
        name="history", key=mp.String, value=mp.Long, history_retention_ms=100, segment_interval_ms=20
    ),
    mp.SessionStoreBuilder(name="visits", key=mp.String, value=mp.Long, retention_ms=RETENTION_MS),
    mp.SessionStoreBuilder(
        name="brief", key=mp.String, value=mp.Json(list[int]), persistent=False, retention_ms=RETENTION_MS
    ),
    mp.WindowStoreBuilder(
        name="fleeting", key=mp.String, value=mp.Long, timestamped=True, persistent=False, retention_ms=RETENTION_MS,
        window_size_ms=WINDOW_MS,
    ),
)  # fmt: skip


def topology() -> mp.Topology:
    """Return one sub-topology with a store of every kind."""
    made = mp.Topology()
    made.add_source("source", TOPIC, key=mp.String, value=mp.String)
    made.add_processor("reader", _reader(), "source")
    for store in STORES:
        made.add_state_store(store, "reader")
    return made


@dataclass
class Held:
    """A held task, as queries see it."""

    role: Role
    state: TaskState
    stores: dict[str, Any]
    positions: dict[str, int] = field(default_factory=dict)
    caught_up_at: float | None = None
    lag: int | None = None


class Worker:
    """One worker. Its state is changed only in its loop thread."""

    def __init__(self, application: Application, name: str) -> None:
        self.name = name
        self.application = application
        self.directory = Path(
            tempfile.mkdtemp(prefix="millpond-queries-", dir=_FAST if os.access(_FAST, os.W_OK) else None)
        )
        self.file = StateFile(self.directory, SMALL)
        self.memory = MemoryBackend()
        self.registry = CollectorRegistry()
        self.http = HttpServer("127.0.0.1", 0)
        url = application.coordinator.url
        opened = None if url is None else lambda: open_assignment(url, APPLICATION)
        tls = server_context(application.access)
        self.service = QueryService(APPLICATION, name, self.registry, opened, application.access, tls)
        self.site = self.http.main if tls is None else self.http.site("127.0.0.1", 0, tls, "query.port")
        self.service.add_to(self.site)
        self._held: dict[mp.TaskId, Held] = {}
        self._next: dict[int, int] = {}
        self._commands: queue.SimpleQueue[tuple[Future, Callable[[], Any]] | None] = queue.SimpleQueue()
        self._loop = threading.Thread(target=self._run, name=f"loop of {name}", daemon=True)
        self._loop.start()
        self.http.start()
        self.start_answering()

    def start_answering(self) -> None:
        self.service.open(self, self.application.catalog)

    def _run(self) -> None:
        while (command := self._commands.get()) is not None:
            future, function = command
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

    # What the query service asks for.

    def holdings(self) -> dict[mp.TaskId, Held]:
        return self._held

    def holding(self, task: mp.TaskId) -> Held | None:
        return self.holdings().get(task)

    def globals_ready(self) -> bool:
        return True

    def call(self, function: Callable[[], Any]) -> Future:
        future: Future = Future()
        self._commands.put((future, function))
        return future

    def backend_of_store(self, store: str) -> Any:
        return self.file if self.application.catalog[store].persistent else self.memory

    # What tests do with it.

    def do(self, function: Callable[[], Any]) -> Any:
        """Run a function in the loop and wait for it."""
        return self.call(function).result(30)

    def take(self, partition: int, role: Role = Role.ACTIVE) -> None:
        """Hold a partition, restored from the changelog."""
        self.do(lambda: self._take(partition, role))

    def _take(self, partition: int, role: Role) -> None:
        task = mp.TaskId(0, partition)
        stores = {}
        for builder in STORES:
            backend = self.file if builder.persistent else self.memory
            store = builder.build(partition, backend, f"{APPLICATION}-{builder.name}-changelog")
            rows = store.restore(self.application.changelog(builder.name, partition))
            backend.write([(builder.name, partition, rows)], {(builder.name, partition): (1, store.metadata())})
            stores[builder.name] = store
        committed = self.application.committed[partition]
        self._next[partition] = committed
        positions = {f"{TOPIC}-{partition}": committed} if role is Role.ACTIVE else {}
        held = Held(role, TaskState.RUNNING, stores, positions, time.monotonic(), 0)
        self._held = {**self._held, task: held}

    def follow(self, partition: int) -> None:
        """Bring a copy up to date."""
        self.drop(partition)
        self.take(partition, Role.STANDBY)

    def drop(self, partition: int) -> None:
        """Close a partition and delete its rows."""
        self.do(lambda: self._drop(partition))

    def _drop(self, partition: int) -> None:
        task = mp.TaskId(0, partition)
        held = self._held.get(task)
        self._held = {each: found for each, found in self._held.items() if each != task}
        if held is not None:
            for name, store in held.stores.items():
                store.close()
                self.backend_of_store(name).drop(name, partition)

    def alter(self, partition: int, **changes: Any) -> None:
        """Change the reported state of a partition."""
        task = mp.TaskId(0, partition)
        self.do(lambda: setattr(self, "_held", {**self._held, task: replace(self._held[task], **changes)}))

    def put(self, store: str, partition: int, *arguments: Any) -> None:
        """Put a row into a store, as the task would for one record."""
        self._held[mp.TaskId(0, partition)].stores[store].put(*arguments)
        self._next[partition] += 1

    def commit(self, partition: int) -> None:
        """Commit the puts: write to the changelog, then to the backend, then move the positions."""
        task = mp.TaskId(0, partition)
        held = self._held[task]
        for name, store in held.stores.items():
            out: list[Any] = []
            store.flush(out)
            self.application.log(name, partition, out)
            rows = store.seal()
            self.backend_of_store(name).write([(name, partition, rows)], {(name, partition): (1, store.metadata())})
            store.committed()
        self.application.committed[partition] = self._next[partition]
        self._held = {**self._held, task: replace(held, positions={f"{TOPIC}-{partition}": self._next[partition]})}

    def close(self) -> None:
        """Close the worker, as at a normal end."""
        self.http.stop()
        self._commands.put(None)
        self._loop.join(60)
        self.file.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Coordinator:
    """A coordinator that serves the assignment over HTTP; tests set the assignment."""

    def __init__(self, alone: bool) -> None:
        self.view = View(APPLICATION, Epoch(1, 1))
        self.asked = 0
        self.broken = False
        self.http = HttpServer("127.0.0.1", -1 if alone else 0)
        self.http.route("GET", "/v1/applications/{application}/assignment", self._assignment)
        self.http.start()

    @property
    def url(self) -> str | None:
        return self.http.url

    async def _assignment(self, _request: web.Request) -> web.Response:
        self.asked += 1
        if self.broken:
            return web.Response(status=503)
        return web.Response(body=msgspec.json.encode(self.view), content_type="application/json")


class Application:
    """Workers, their partitions, and the changelog that they share."""

    def __init__(
        self, workers: int = 3, partitions: int = 6, *, alone: bool = False, access: Access | None = None
    ) -> None:
        self.access = access or Access()
        self.partitions = partitions
        self.committed = dict.fromkeys(range(partitions), 0)
        self._clients: list[Client] = []
        self._changelogs: dict[tuple[str, int], list[Any]] = {}
        made = topology()
        self.plan = make_plan(made, {TOPIC: partitions}, APPLICATION)
        self.catalog = store_catalog(made, self.plan, Environment(APPLICATION, Handlers()))
        self.coordinator = Coordinator(alone)
        self.workers = [Worker(self, f"w{each}") for each in range(workers)]
        self.owners: dict[int, Worker] = {}
        self.standbys: dict[int, tuple[Worker, ...]] = {}
        for partition in range(partitions):
            self.owners[partition] = self.workers[partition % workers]
            self.owners[partition].take(partition)
        self.publish()

    def changelog(self, store: str, partition: int) -> list[Any]:
        return self._changelogs.get((store, partition), [])

    def log(self, store: str, partition: int, out: list[Any]) -> None:
        log = self._changelogs.setdefault((store, partition), [])
        log += [(record[2], record[1], record[6], None) for record in out]

    def publish(self) -> None:
        """Send the current assignment to the coordinator."""
        members = tuple(Member(each.name, each.site.url, alive=each.site.port != 0) for each in self.workers)
        active = {f"0_{partition}": worker.name for partition, worker in self.owners.items()}
        standby = {f"0_{partition}": tuple(each.name for each in found) for partition, found in self.standbys.items()}
        self.coordinator.view = View(
            APPLICATION, Epoch(1, self.coordinator.view.epoch.number + 1),
            members=members, owners=active, active=active, standby=standby,
        )  # fmt: skip

    def move(self, partition: int, worker: Worker, *, tell: bool = True) -> None:
        """Move a partition; for a moment no worker has it."""
        self.owners[partition].drop(partition)
        worker.take(partition)
        self.owners[partition] = worker
        if tell:
            self.publish()

    def put(self, store: str, key: Any, *rest: Any, commit: bool = True) -> int:
        """Put into a store where the key belongs; returns the partition."""
        info = self.catalog[store]
        partition = info.partition_of(info.key.serialize(key))
        owner = self.owners[partition]

        arguments = (key, *rest)
        if store in ("visits", "brief"):
            value, start, end = rest
            arguments = (mp.Windowed(key, start, end), value)

        def change() -> None:
            owner.put(store, partition, *arguments)
            if commit:
                owner.commit(partition)

        owner.do(change)
        return partition

    def urls(self) -> list[str]:
        return [url for each in self.workers if (url := each.site.url)]

    def client(self, *workers: Worker, **options: Any) -> Client:
        """Return a client for these workers, or for all; it is closed with the application."""
        urls = [url for each in workers or self.workers if (url := each.site.url)]
        self._clients.append(Client(*urls, **options))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for worker in self.workers:
            worker.close()
        self.coordinator.http.stop()
