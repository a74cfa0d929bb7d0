"""Restores stores from snapshots where that is quicker than replaying their changelogs.

A task waits, unopened, while threads read the newest manifest, decide, and fetch and verify files. Then the worker's loop
ingests them, one step per turn, and the task is looked up again: its stores are opened on rows that end where the snapshot
ends, and the changelog is read on from there as after any restart. Whatever goes wrong with a snapshot is logged with its
reason, and the changelog is replayed.

A global store waits in the same way, under the number that its topology gives it beside those of tasks. All partitions of its
topic come from the snapshot, or none does.
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

from .snapshot_choice import Rates, Unusable, WantedStore, Way, choose, choose_parts
from .snapshot_files import Cancelled, SnapshotFiles
from .snapshot_requests import Ready, SnapshotRequest, described

__all__ = ("SnapshotRestorer", "open_bootstrap")

log = logging.getLogger(__name__)

#: Tasks whose snapshots are prepared at a time, and files fetched at a time.
_PREPARERS = 2
_FETCHERS = 4
#: A manifest is not read again for other tasks within so long.
_MANIFEST_AGE_S = 10.0
#: A location that does not answer for so long is left alone for a while.
_MANIFEST_TIMEOUT_S = 15.0
_PAUSE_S = 60.0
#: Fetching may take so long, or as long as the replay would, before it is given up where not half of it is done.
_FETCH_S = 15.0
#: Files of an earlier process are kept so long for tasks that come back to them.
_LEFTOVERS_S = 60.0
#: The rate of fetching is measured where so much was fetched.
_MEASURABLE_BYTES = 4 << 20


class SnapshotRestorer:
    """The tasks of a worker that wait for snapshots. Its methods are the loop's, and none of them waits.

    Attributes:
        rates: what this worker achieves, as measured last.
        fetched: bytes that came from the location since the start.
        ingested_rows: taken from snapshots.
        ingested_stores: store partitions restored from one.
        refused_stores: store partitions that a snapshot could not be used for.
    """

    def __init__(
        self,
        location: Location,
        application: str,
        backend_of: Callable[[str], Backend],
        preparers: ConsumerThreads,
        files: SnapshotFiles,
        now_ms: Callable[[], int],
    ) -> None:
        """Args:
        location: where the snapshots are.
        application: the worker's application id.
        backend_of: where the rows of a store go.
        preparers: threads that prepare a task each.
        files: fetches files.
        now_ms: the wall clock, in epoch ms.
        """
        self.rates = Rates()
        self.fetched = self.ingested_rows = self.ingested_stores = self.refused_stores = 0
        self._location = location
        self._application = application
        self._backend_of = backend_of
        self._preparers = preparers
        self._files = files
        self._now_ms = now_ms
        self._jobs: dict[TaskId, SnapshotRequest] = {}
        self._distrusted: set[str] = set()
        self._decided: set[TaskId] = set()
        self._fresh: list[TaskId] = []
        self._begun: set[SnapshotRequest] = set()
        self._answers: SimpleQueue[tuple[SnapshotRequest, list[Ready]]] = SimpleQueue()
        self._reading = threading.Lock()
        self._manifest: tuple[float, Manifest | SnapshotError | None] | None = None
        self._paused_until = 0.0
        self._clear_at: float | None = time.monotonic() + _LEFTOVERS_S

    def awaits(self, task: TaskId, wanted: Callable[[], Sequence[WantedStore]], among: int = 1) -> bool:
        """Whether a task that could be opened now waits for a snapshot instead; begins with it where that is worth trying.

        Args:
            task: the task; none of its stores is open. For a global store, the number that its processor has in place of a task.
            wanted: tells what has to be restored.
            among: how many tasks are opened at this time; one loop restores them all.
        """
        if task in self._jobs:
            return True
        if task in self._decided:
            self._decided.discard(task)
            return False
        if time.monotonic() < self._paused_until or self._stuck:
            return False
        rates = self.rates.shared(among)
        job = SnapshotRequest(task, [each for each in wanted() if each.store not in self._distrusted], rates)
        if choose(job.replay_records, rates.replay, 0, 1.0, 0) is Way.REPLAY and not any(
            each.needed for each in job.wanted
        ):
            return False
        log.info(
            "%s: %d changelog records to restore; looking for a snapshot in %s",
            job.name, job.replay_records, self._location.uri,
        )  # fmt: skip
        self._jobs[task] = job
        self._clear_at = None
        self._begun.add(job)
        self._preparers.run(lambda: self._prepare(job))
        return True

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        return len(self._jobs)

    def pending(self, task: TaskId) -> bool:
        """Whether a task waits for a snapshot."""
        return task in self._jobs

    def described(self, task: TaskId) -> str:
        """How far a waiting task is, as a noun phrase."""
        progress = self._jobs[task].progress
        return f"a snapshot ({progress.done} of {progress.total} bytes fetched)"

    def forget(self, task: TaskId) -> bool:
        """Let a task wait no longer; return whether it did. What was fetched is kept for a while."""
        self._decided.discard(task)
        job = self._jobs.pop(task, None)
        if job is None:
            return False
        job.unwanted = job.progress.cancelled = True
        if job.ingestion is not None:
            with suppress(StateError):  # then the next one who opens the state file does it
                job.ingestion.abandon()
        if not self._jobs:
            self._clear_at = time.monotonic() + _LEFTOVERS_S
        return True

    def distrust(self, store: str) -> None:
        """Restore a store from its changelog only, for as long as this process lives: its rows were corrupted."""
        self._distrusted.add(store)

    def skip(self, task: TaskId) -> None:
        """Open a task without a snapshot when it is looked up next."""
        self._decided.add(task)

    def replay_rate(self, rate: float | None) -> None:
        """Take what was measured of replays, in records per second; None when nothing was."""
        if rate is not None:
            self.rates.replay = rate

    def turn(self) -> Collection[TaskId]:
        """Ingest a little of what is there; return the tasks that are to be looked up again, with or without a snapshot.

        Raises:
            StateError: the state file fails.
        """
        while not self._answers.empty():
            job, ready = self._answers.get()
            self._begun.discard(job)
            self.fetched += job.progress.fetched
            if self._jobs.get(job.task) is job:
                job.ready = deque(ready)
        if not self._jobs:
            self._clear_leftovers()
            return self._take_fresh()
        self._give_up_slow_ones()
        for each in self._jobs.values():
            if each.ready is not None:
                if each.ready:
                    self._ingest(each, each.ready)
                if not each.ready:
                    self._decide(each)
                break
        return self._take_fresh()

    def close(self) -> None:
        """Fetch nothing more; what was fetched stays for the next start."""
        for task in list(self._jobs):
            self.forget(task)
        self._preparers.close()
        self._files.close()

    def _take_fresh(self) -> Collection[TaskId]:
        fresh, self._fresh = self._fresh, []
        return fresh

    @property
    def _stuck(self) -> bool:
        """Whether every thread is still at a task that was given up: what is begun now would not be prepared."""
        late = time.monotonic() - _MANIFEST_TIMEOUT_S
        stuck = [each for each in self._begun if each.unwanted and each.started is not None and each.started < late]
        return len(stuck) >= _PREPARERS

    # In the loop ----------------------------------------------------------------------------------------------

    def _decide(self, job: SnapshotRequest) -> None:
        del self._jobs[job.task]
        self._decided.add(job.task)
        self._fresh.append(job.task)
        job.unwanted = job.progress.cancelled = True
        if not self._jobs:
            self._clear_at = time.monotonic()

    def _ingest(self, job: SnapshotRequest, ready: deque[Ready]) -> None:
        """One step: the old rows go, or one file comes, or the offset is written."""
        each = ready[0]
        store, topic = each.wanted[0].store, each.wanted[0].topic
        try:
            if job.ingestion is None:
                job.ingestion = self._backend_of(store).ingestion(store, each.partition, each.partitions)
                return
            if each.paths:
                if job.ingestion.add(each.paths[0]):
                    each.paths.popleft()
                return
            job.ingestion.finish(each.ends())
            self.ingested_rows += each.rows
            self.ingested_stores += 1
            log.info(
                "%s: ingested %d rows of snapshot %s; restoring on from offset %s of %s",
                described(each.wanted), each.rows, each.version, ", ".join(str(part.offset) for part in each.parts), topic,
            )  # fmt: skip
        except StateError as error:
            self._refused(each.wanted, f"snapshot {each.version} cannot be ingested: {error}")
            if job.ingestion is not None:
                job.ingestion.abandon()
        ready.popleft()
        job.ingestion = None

    def _give_up_slow_ones(self) -> None:
        now = time.monotonic()
        for job in [each for each in self._jobs.values() if each.ready is None]:
            if job.started is None:
                if now < self._paused_until or self._stuck:
                    self._decide(job)
                continue
            progress, waited = job.progress, now - job.started
            if not job.planned:
                if waited > _MANIFEST_TIMEOUT_S:
                    self._paused_until = now + _PAUSE_S
                    log.warning(
                        "%s: %s does not answer for %.0f s; restoring from changelogs",
                        job.name,
                        self._location.uri,
                        waited,
                    )
                    self._decide(job)
            elif progress.done < progress.total * self._expected(waited, job):
                log.warning(
                    "%s: %d of %d bytes of the snapshot came in %.0f s; restoring from changelogs",
                    job.name, progress.done, progress.total, waited,
                )  # fmt: skip
                self._decide(job)

    @staticmethod
    def _expected(waited: float, job: SnapshotRequest) -> float:
        """The part that has to have come after so many seconds: half in the time allowed, and all in twice that."""
        allowed = max(_FETCH_S, job.replay_records / job.rates.replay)
        return 0.0 if waited <= allowed else min(1.0, waited / allowed / 2)

    def _clear_leftovers(self) -> None:
        if self._clear_at is not None and time.monotonic() >= self._clear_at:
            self._clear_at = None
            if self._files.set_aside():
                self._preparers.run(self._files.delete_aside)

    # In the threads -------------------------------------------------------------------------------------------

    def _prepare(self, job: SnapshotRequest) -> None:
        job.started = time.monotonic()
        ready: list[Ready] = []
        try:
            job.progress.arrived(0)
            manifest = self._newest()
            if manifest is not None:
                ready = self._fetched(job, manifest)
        except Cancelled:
            pass
        except SnapshotError as error:
            if not job.unwanted:
                log.warning("%s: the snapshot cannot be used: %s; restoring from changelogs", job.name, error)
        except Exception:
            log.exception("%s: the snapshot cannot be used; restoring from changelogs", job.name)
        finally:
            self._answers.put((job, ready))

    def _newest(self) -> Manifest | None:
        """The manifest of the newest complete version; None when there is none."""
        with self._reading:
            if self._manifest is None or time.monotonic() - self._manifest[0] > _MANIFEST_AGE_S:
                manifest: Manifest | SnapshotError | None
                try:
                    manifest = versions.newest(self._location, self._application, self._now_ms())
                except SnapshotError as error:
                    manifest = error  # the others need not wait for the same
                if manifest is None:
                    log.warning(
                        "no snapshot of '%s' in %s can be used: check 'bootstrap.location', or make one; "
                        "restoring from changelogs",
                        self._application, self._location.uri,
                    )  # fmt: skip
                self._manifest = time.monotonic(), manifest
            if isinstance(self._manifest[1], SnapshotError):
                raise self._manifest[1]
            return self._manifest[1]

    def _fetched(self, job: SnapshotRequest, manifest: Manifest) -> list[Ready]:
        chosen = [found for each in job.groups if (found := self._chosen(manifest, each, job.rates)) is not None]
        files = [file for each in chosen for file in each.files]
        job.progress.total = total = sum(each.bytes for each in files)
        job.planned = True
        if not chosen:
            return []
        began = time.monotonic()
        fetched = iter(self._files.fetch(f"{manifest.application}/{manifest.version}", files, job.progress))
        seconds = time.monotonic() - began
        if job.progress.fetched >= _MEASURABLE_BYTES:
            self.rates.snapshot = job.progress.fetched / seconds
        log.info("%s: fetched %d bytes of snapshot %s in %.1f s", job.name, total, manifest.version, seconds)
        for each in chosen:
            each.paths.extend(next(fetched) for _ in each.files)
        return chosen

    def _chosen(self, manifest: Manifest, wanted: Sequence[WantedStore], rates: Rates) -> Ready | None:
        """What to restore store partitions from, its files not there yet; None when their changelogs are replayed."""
        try:
            choice = choose_parts(manifest, wanted, self._application, self._now_ms(), rates)
        except Unusable as reason:
            self._refused(wanted, f"snapshot {manifest.version} {reason}")
            return None
        if not choice.parts:
            log.info(
                "%s: replaying %d records (about %.0f s, and %.0f s with snapshot %s)",
                described(wanted), sum(each.replay_records for each in wanted), *choice.estimate, manifest.version,
            )  # fmt: skip
            return None
        store = manifest.store(wanted[0].store)
        return Ready(wanted, choice.parts, "" if store is None else store.topic_id, manifest.version, deque())

    def _refused(self, wanted: Sequence[WantedStore], reason: str) -> None:
        self.refused_stores += 1
        log.warning("%s: %s; restoring from changelog %s", described(wanted), reason, wanted[0].topic)


def open_bootstrap(
    config: Config, backend_of: Callable[[str], Backend], now_ms: Callable[[], int]
) -> SnapshotRestorer | None:
    """Return what restores from snapshots; None where no location is configured.

    Args:
        config: of the worker.
        backend_of: where the rows of a store go.
        now_ms: the wall clock, in epoch ms.

    Raises:
        ConfigError: the location is of an unknown kind, or what opens it is not installed.
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
