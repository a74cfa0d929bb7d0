"""Restoring of stores from snapshots, if that is faster than a replay of their changelogs.

The activation of a task waits while threads read the newest manifest, decide, and fetch and verify files. Then the
worker's loop ingests the files, one step per turn, and the task is looked up again: its stores open with the rows of
the snapshot, and the changelog is read from the snapshot's offset on, as after any restart. If a snapshot cannot be
used, the reason is logged and the changelog is replayed.

A global store waits in the same way, under its id in place of a task's. All partitions of its topic are restored from
the snapshot, or none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from queue import SimpleQueue

from confluent_kafka import Consumer

from millpond.errors import ConfigError, SnapshotError, StateError
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.snapshots import versions
from millpond.snapshots.locations import Location, open_location
from millpond.snapshots.manifest import Manifest
from millpond.state.backend import Backend
from millpond.topology import TaskId

from .snapshot_choice import Rates, RestoreMethod, Unusable, WantedStore, choose, choose_parts
from .snapshot_files import Cancelled, SnapshotFiles
from .snapshot_requests import SnapshotRequest, SnapshotStore, store_label

__all__ = ("SnapshotRestorer", "open_bootstrap")

log: logging.Logger = logging.getLogger(__name__)

#: Number of tasks prepared at the same time, and of files fetched at the same time.
_PREPARERS = 2
_FETCHERS = 4
#: How long a manifest is used for other tasks before it is read again.
_MANIFEST_AGE_S = 10.0
#: After this time without an answer, a location is not used during the pause.
_MANIFEST_TIMEOUT_S = 15.0
_PAUSE_S = 60.0
#: After this time, or after the estimated time of the replay, a fetch that is not half done is given up.
_FETCH_TIMEOUT_S = 15.0
#: How long files of an earlier process are kept for tasks that may need them.
_KEEP_FILES_S = 60.0
#: The fetch rate is measured from this size on.
_MIN_MEASURED_BYTES = 4 << 20


class SnapshotRestorer:
    """The tasks of a worker that wait for snapshots. Its methods are for the worker's loop; none of them blocks.

    Attributes:
        rates: the restore rates of this worker, as last measured.
        fetched: bytes fetched from the location since the start.
        ingested_rows: rows ingested from snapshots.
        ingested_stores: store partitions restored from a snapshot.
        rejected_stores: store partitions for which the snapshot could not be used.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        location: Location,
        application: str,
        backend_of: Callable[[str], Backend],
        preparers: ConsumerThreads,
        files: SnapshotFiles,
        now_ms: Callable[[], int],
    ) -> None:
        """Create the restorer.

        Args:
            location: the location of the snapshots.
            application: the worker's application id.
            backend_of: returns the backend of a store.
            preparers: threads that each prepare one task at a time.
            files: fetches files.
            now_ms: the wall-clock time, in epoch ms.
        """
        self.rates: Rates = Rates()
        self.fetched: int = 0
        self.ingested_rows: int = 0
        self.ingested_stores: int = 0
        self.rejected_stores: int = 0
        self._location = location
        self._application = application
        self._backend_of = backend_of
        self._preparers = preparers
        self._files = files
        self._now_ms = now_ms
        self._requests: dict[TaskId, SnapshotRequest] = {}
        self._distrusted: set[str] = set()
        self._decided: set[TaskId] = set()
        self._to_look_up: list[TaskId] = []
        self._preparing: set[SnapshotRequest] = set()
        self._answers: SimpleQueue[tuple[SnapshotRequest, list[SnapshotStore]]] = SimpleQueue()
        self._reading = threading.Lock()
        self._manifest: tuple[float, Manifest | SnapshotError | None] | None = None
        self._paused_until = 0.0
        self._delete_files_at: float | None = time.monotonic() + _KEEP_FILES_S

    def awaits(self, task: TaskId, wanted: Callable[[], Sequence[WantedStore]], among: int = 1) -> bool:
        """Return whether a task waits for a snapshot before it is activated; request one if that may be faster.

        Args:
            task: the task, with no open stores; for a global store, its id in place of a task's.
            wanted: returns the store partitions to restore.
            among: number of tasks that are activated now; one loop restores them all.
        """
        if task in self._requests:
            return True
        if task in self._decided:
            self._decided.discard(task)
            return False
        if time.monotonic() < self._paused_until or self._stuck:
            return False
        rates = self.rates.shared(among)
        request = SnapshotRequest(task, [each for each in wanted() if each.store not in self._distrusted], rates)
        if choose(request.replay_records, rates.replay, 0, 1.0, 0) is RestoreMethod.REPLAY and not any(
            each.needed for each in request.wanted
        ):
            return False
        log.info(
            "%s: %d changelog records to restore; looking for a snapshot in %s",
            request.name, request.replay_records, self._location.uri,
        )  # fmt: skip
        self._requests[task] = request
        self._delete_files_at = None
        self._preparing.add(request)
        self._preparers.run(lambda: self._prepare(request))
        return True

    @property
    def waiting(self) -> int:
        """The number of tasks that wait."""
        return len(self._requests)

    def pending(self, task: TaskId) -> bool:
        """Return whether a task waits for a snapshot."""
        return task in self._requests

    def described(self, task: TaskId) -> str:
        """Return the thing that a task waits for, with the progress, as a noun phrase."""
        progress = self._requests[task].progress
        return f"a snapshot ({progress.done} of {progress.total} bytes fetched)"

    def forget(self, task: TaskId) -> bool:
        """Stop the wait of a task; return whether the task waited. Fetched files are kept for a while."""
        self._decided.discard(task)
        request = self._requests.pop(task, None)
        if request is None:
            return False
        request.unwanted = request.progress.cancelled = True
        if request.ingestion is not None:
            with suppress(StateError):  # then it is done when the state file is opened next
                request.ingestion.abandon()
        if not self._requests:
            self._delete_files_at = time.monotonic() + _KEEP_FILES_S
        return True

    def distrust(self, store: str) -> None:
        """Restore a store only from its changelog until this process ends, because its rows were corrupted."""
        self._distrusted.add(store)

    def skip(self, task: TaskId) -> None:
        """Make a task restore without a snapshot after its next lookup."""
        self._decided.add(task)

    def replay_rate(self, rate: float | None) -> None:
        """Set the measured rate of replays, in records per second; None if it is not measured."""
        if rate is not None:
            self.rates.replay = rate

    def turn(self) -> Collection[TaskId]:
        """Ingest one step; return the tasks to look up again, restored from a snapshot or not.

        Raises:
            StateError: the state file fails.
        """
        while not self._answers.empty():
            request, ready = self._answers.get()
            self._preparing.discard(request)
            self.fetched += request.progress.fetched
            if self._requests.get(request.task) is request:
                request.ready = deque(ready)
        if not self._requests:
            self._delete_old_files()
            return self._take_tasks_to_look_up()
        self._give_up_slow_requests()
        for each in self._requests.values():
            if each.ready is not None:
                if each.ready:
                    self._ingest(each, each.ready)
                if not each.ready:
                    self._release(each)
                break
        return self._take_tasks_to_look_up()

    def close(self) -> None:
        """Stop all fetches; fetched files stay for the next start."""
        for task in list(self._requests):
            self.forget(task)
        self._preparers.close()
        self._files.close()

    def _take_tasks_to_look_up(self) -> Collection[TaskId]:
        tasks, self._to_look_up = self._to_look_up, []
        return tasks

    @property
    def _stuck(self) -> bool:
        """Whether all threads still work on abandoned requests, so that a new request would not be prepared."""
        late = time.monotonic() - _MANIFEST_TIMEOUT_S
        stuck = [each for each in self._preparing if each.unwanted and each.started is not None and each.started < late]
        return len(stuck) >= _PREPARERS

    # In the loop

    def _release(self, request: SnapshotRequest) -> None:
        del self._requests[request.task]
        self._decided.add(request.task)
        self._to_look_up.append(request.task)
        request.unwanted = request.progress.cancelled = True
        if not self._requests:
            self._delete_files_at = time.monotonic()

    def _ingest(self, request: SnapshotRequest, ready: deque[SnapshotStore]) -> None:
        """Do one step: delete the old rows, ingest one file, or write the offset."""
        each = ready[0]
        store, topic = each.wanted[0].store, each.wanted[0].topic
        try:
            if request.ingestion is None:
                request.ingestion = self._backend_of(store).ingestion(store, each.partition, each.partitions)
                return
            if each.paths:
                if request.ingestion.add(each.paths[0]):
                    each.paths.popleft()
                return
            request.ingestion.finish(each.ends())
            self.ingested_rows += each.rows
            self.ingested_stores += 1
            log.info(
                "%s: ingested %d rows of snapshot %s; restoring from offset %s of %s",
                store_label(each.wanted), each.rows, each.version,
                ", ".join(str(part.offset) for part in each.parts), topic,
            )  # fmt: skip
        except StateError as error:
            self._reject(each.wanted, f"snapshot {each.version} cannot be ingested: {error}")
            if request.ingestion is not None:
                request.ingestion.abandon()
        ready.popleft()
        request.ingestion = None

    def _give_up_slow_requests(self) -> None:
        now = time.monotonic()
        for request in [each for each in self._requests.values() if each.ready is None]:
            if request.started is None:
                if now < self._paused_until or self._stuck:
                    self._release(request)
                continue
            progress, waited = request.progress, now - request.started
            if not request.planned:
                if waited > _MANIFEST_TIMEOUT_S:
                    self._paused_until = now + _PAUSE_S
                    log.warning(
                        "%s: %s has not answered for %.0f s; restoring from changelogs",
                        request.name,
                        self._location.uri,
                        waited,
                    )
                    self._release(request)
            elif progress.done < progress.total * self._expected(waited, request):
                log.warning(
                    "%s: only %d of %d bytes of the snapshot were fetched in %.0f s; restoring from changelogs",
                    request.name, progress.done, progress.total, waited,
                )  # fmt: skip
                self._release(request)

    @staticmethod
    def _expected(waited: float, request: SnapshotRequest) -> float:
        """Return the fraction of bytes that must have arrived: half in the allowed time, all in twice that time."""
        allowed = max(_FETCH_TIMEOUT_S, request.replay_records / request.rates.replay)
        return 0.0 if waited <= allowed else min(1.0, waited / allowed / 2)

    def _delete_old_files(self) -> None:
        if self._delete_files_at is not None and time.monotonic() >= self._delete_files_at:
            self._delete_files_at = None
            if self._files.set_aside():
                self._preparers.run(self._files.delete_aside)

    # In the threads

    def _prepare(self, request: SnapshotRequest) -> None:
        request.started = time.monotonic()
        ready: list[SnapshotStore] = []
        try:
            request.progress.arrived(0)
            manifest = self._newest()
            if manifest is not None:
                ready = self._choose_and_fetch(request, manifest)
        except Cancelled:
            pass
        except SnapshotError as error:
            if not request.unwanted:
                log.warning("%s: the snapshot cannot be used: %s; restoring from changelogs", request.name, error)
        except Exception:
            log.exception("%s: the snapshot cannot be used; restoring from changelogs", request.name)
        finally:
            self._answers.put((request, ready))

    def _newest(self) -> Manifest | None:
        """Return the manifest of the newest complete version; None without one."""
        with self._reading:
            if self._manifest is None or time.monotonic() - self._manifest[0] > _MANIFEST_AGE_S:
                manifest: Manifest | SnapshotError | None
                try:
                    manifest = versions.newest(self._location, self._application, self._now_ms())
                except SnapshotError as error:
                    manifest = error  # other tasks need not wait for the same error
                if manifest is None:
                    log.warning(
                        "application %s: no usable snapshot in %s: check 'bootstrap.location' or take a snapshot; "
                        "restoring from changelogs",
                        self._application, self._location.uri,
                    )  # fmt: skip
                self._manifest = time.monotonic(), manifest
            if isinstance(self._manifest[1], SnapshotError):
                raise self._manifest[1]
            return self._manifest[1]

    def _choose_and_fetch(self, request: SnapshotRequest, manifest: Manifest) -> list[SnapshotStore]:
        chosen = [
            store for each in request.groups if (store := self._choose(manifest, each, request.rates)) is not None
        ]
        files = [file for each in chosen for file in each.files]
        request.progress.total = total = sum(each.bytes for each in files)
        request.planned = True
        if not chosen:
            return []
        began = time.monotonic()
        fetched = iter(self._files.fetch(f"{manifest.application}/{manifest.version}", files, request.progress))
        seconds = time.monotonic() - began
        if request.progress.fetched >= _MIN_MEASURED_BYTES:
            self.rates.snapshot = request.progress.fetched / seconds
        log.info("%s: fetched %d bytes of snapshot %s in %.1f s", request.name, total, manifest.version, seconds)
        for each in chosen:
            each.paths.extend(next(fetched) for _ in each.files)
        return chosen

    def _choose(self, manifest: Manifest, wanted: Sequence[WantedStore], rates: Rates) -> SnapshotStore | None:
        """Return the store to restore, still without its files; None if its changelog is replayed."""
        try:
            choice = choose_parts(manifest, wanted, self._application, self._now_ms(), rates)
        except Unusable as reason:
            self._reject(wanted, f"snapshot {manifest.version} {reason}")
            return None
        if not choice.parts:
            log.info(
                "%s: replaying %d records (estimated %.0f s; %.0f s with snapshot %s)",
                store_label(wanted), sum(each.replay_records for each in wanted), *choice.estimate, manifest.version,
            )  # fmt: skip
            return None
        store = manifest.store(wanted[0].store)
        return SnapshotStore(wanted, choice.parts, "" if store is None else store.topic_id, manifest.version, deque())

    def _reject(self, wanted: Sequence[WantedStore], reason: str) -> None:
        self.rejected_stores += 1
        log.warning("%s: %s; restoring from changelog %s", store_label(wanted), reason, wanted[0].topic)


def open_bootstrap(
    config: Config, backend_of: Callable[[str], Backend], now_ms: Callable[[], int]
) -> SnapshotRestorer | None:
    """Open the location of snapshots; return None if none is configured.

    Args:
        config: the configuration of the worker.
        backend_of: returns the backend of a store.
        now_ms: the wall-clock time, in epoch ms.

    Raises:
        ConfigError: the location is of an unknown kind, or a library for it is not installed.
    """
    if config.bootstrap_location is None:
        return None
    try:
        location = open_location(config.bootstrap_location, config.bootstrap_credentials_dir)
    except SnapshotError as error:
        raise ConfigError(f"setting 'bootstrap.location': {error}.") from error
    files = SnapshotFiles(
        location, config.directory / "snapshots", ConsumerThreads("millpond-fetch", _FETCHERS, _no_consumer)
    )
    preparers = ConsumerThreads("millpond-snapshot", _PREPARERS, _no_consumer)
    return SnapshotRestorer(location, config.application_id, backend_of, preparers, files, now_ms)


def _no_consumer() -> Consumer:
    raise AssertionError("snapshots are not read from Kafka")
