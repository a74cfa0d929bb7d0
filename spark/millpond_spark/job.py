"""Make a snapshot of an application's state: the driver's part, from the first question to the manifest.

Nothing but the manifest makes a version complete, and it is written last. A job that fails or is killed leaves a folder without one,
which readers do not see and a later job deletes.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.errors import SnapshotError
from millpond.runtime.cluster import Cluster
from millpond.runtime.config import Config
from millpond.snapshots import versions
from millpond.snapshots.locations import Location, open_location
from millpond.snapshots.manifest import Manifest
from millpond.topology import Topology

from .boundaries import check_topics_unchanged, fix_boundaries, wall_ms
from .build import Place, Work, build
from .failures import one_sentence
from .incremental import Base
from .kafka_options import kafka_options
from .progress import OnProgress, Stage, no_progress
from .stores import stores_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("FILE_BYTES", "Snapshot", "StartSpark", "create_snapshot")

log = logging.getLogger(__name__)

FILE_BYTES = 64 * 1024 * 1024
"""About how large files become, before compression."""

StartSpark = Callable[[], contextlib.AbstractContextManager["SparkSession"]]
"""Starts Spark, and stops it at the end of the block."""

_PATIENCE = timedelta(seconds=30)
_ABANDONED_MS = 24 * 3_600_000
_MARK = "in-progress"


@dataclass(frozen=True)
class Snapshot:
    """What was made."""

    manifest: Manifest
    records: Mapping[str, int]
    """Store -> records of its changelog that were read."""
    base: str | None
    """The previous version whose rows were taken over; None when everything was read from the changelogs."""
    skipped: Mapping[str, str]
    """Store that the snapshot does not have -> why, a clause whose subject is the store."""
    removed: tuple[str, ...]
    """Versions that retention deleted."""
    seconds: float


def create_snapshot(
    topology: Topology,
    config: Config,
    uri: str,
    spark: StartSpark,
    *,
    credentials_dir: Path | str | None = None,
    keep: int | None = None,
    full: bool = False,
    file_bytes: int = FILE_BYTES,
    on_progress: OnProgress = no_progress,
    now_ms: Callable[[], int] = wall_ms,
) -> Snapshot:
    """Make a snapshot of all stores of an application.

    Args:
        topology: the application's.
        config: the application's.
        uri: where snapshots are kept: a directory, `file:///directory` or `s3://bucket/prefix`. Executors reach it, too.
        spark: starts Spark, once everything else is known to be in order.
        credentials_dir: of the location, see `open_location`; the same directory on executors.
        keep: how many versions stay, this one included; all when None.
        full: read the changelogs from their beginning, even where a previous version could be built upon.
        file_bytes: about how large files become, before compression.
        on_progress: told how far it is.
        now_ms: the wall clock, in epoch ms.

    Raises:
        SnapshotError: the location cannot be used, or Spark fails.
        TopicError: a topic of the application does not exist.
        BrokerError: Kafka does not answer.
        JavaNotFound: Spark finds no Java to run on.
    """
    began = time.monotonic()
    on_progress(Stage.BOUNDARIES, 0, 0)
    if "://" not in uri and uri:
        uri = str(Path(uri).absolute())  # executors have another current directory
    if keep is not None and keep < 1:
        raise SnapshotError(f"at least one snapshot must be kept, not {keep}.")
    location = open_location(uri, credentials_dir)
    options = kafka_options(config.consumer_settings())
    cluster = Cluster(config.admin_settings(), patience=_PATIENCE, stopping=lambda: False)
    stores = stores_of(topology, cluster.topics(), config)
    previous = None if full else _previous(location, config.application_id)
    credentials = None if credentials_dir is None else str(Path(credentials_dir).absolute())
    version = versions.new_version(now_ms())
    place = Place(location, credentials, config.application_id, version)
    try:
        # Whatever is wrong with the location shows before the work is done.
        location.put(f"{place.root}/{_MARK}", b"")
        with spark() as session, one_sentence():
            boundaries = fix_boundaries(cluster, config, stores.logged, now_ms)
            base = Base.of(previous, stores.logged, boundaries, now_ms())
            work = Work(stores.logged, boundaries, base, place, options, file_bytes)
            built = build(session.newSession(), work, on_progress)
        on_progress(Stage.PUBLISHING, 0, 0)
        check_topics_unchanged(cluster, boundaries, now_ms())
        manifest = Manifest(
            application=config.application_id,
            topology=stores.topology,
            version=version,
            created_ms=boundaries.as_of_ms,
            stores=built.stores,
        )
        _drop_unlisted(place, manifest)
        versions.publish(location, manifest)
    except BaseException:
        with contextlib.suppress(Exception):  # what failed counts
            versions.remove(location, config.application_id, version)
        raise
    removed = _tidy(location, config.application_id, keep, now_ms())
    return Snapshot(manifest, built.records, base.version, stores.skipped, removed, time.monotonic() - began)


def _previous(location: Location, application: str) -> Manifest | None:
    """Return the newest version that can be read."""
    for version in versions.versions(location, application):
        try:
            return versions.read(location, application, version)
        except SnapshotError as error:
            log.warning("snapshot %s of %s is passed over: %s", version, application, error)
    return None


def _drop_unlisted(place: Place, manifest: Manifest) -> None:
    """Delete what attempts of tasks left that did not count."""
    listed = {f"{place.root}/{file.path}" for file in manifest.files}
    place.location.delete([path for path, _ in place.location.list(place.root) if path not in listed])


def _tidy(location: Location, application: str, keep: int | None, now_ms: int) -> tuple[str, ...]:
    """Delete old versions, and what failed jobs left. The new snapshot is there, whatever becomes of the old ones."""
    removed: list[str] = []
    try:
        if keep is not None:
            removed = versions.retain(location, application, keep)
        versions.sweep(location, application, older_than_ms=_ABANDONED_MS, now_ms=now_ms)
    except SnapshotError as error:
        log.warning("old snapshots of %s cannot be deleted: %s", application, error)
    return tuple(removed)
