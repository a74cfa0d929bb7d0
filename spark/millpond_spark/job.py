"""Make a snapshot of an application's state: the driver's part, from the first question to the manifest.

Nothing but the manifest makes a version complete, and it is written last. A job that fails or is killed leaves a folder without one,
which readers do not see and a later job deletes.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.catalog import versions as catalog_versions
from millpond.catalog.versions import CatalogVersion, StoreTable, table_path
from millpond.errors import SnapshotError
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.processing.handlers import fail_on_error
from millpond.snapshots import versions
from millpond.snapshots.locations import Location, open_location
from millpond.snapshots.manifest import Manifest
from millpond.topology import Topology

from .boundaries import check_topics_unchanged, fix_boundaries, wall_ms
from .build import Place, Tables, Work, build
from .catalog import CatalogPlace, complete_tables
from .catalog_rows import ColumnDecoder, decoder_of
from .failures import one_sentence
from .incremental import Base
from .kafka_options import kafka_options
from .progress import OnProgress, Stage, no_progress
from .stores import Stores, stores_of

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
    tables: tuple[StoreTable, ...] = ()
    """The tables of the state catalog that were written."""


def create_snapshot(
    topology: Topology,
    config: Config,
    uri: str,
    spark: StartSpark,
    *,
    credentials_dir: Path | str | None = None,
    keep: int | None = None,
    full: bool = False,
    catalog: str | None = None,
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
        catalog: where the state catalog is, like `uri`, with the same credentials; then each store is also written as a table. None
            for no tables.
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
    uri = _absolute(uri)
    if keep is not None and keep < 1:
        raise SnapshotError(f"at least one snapshot must be kept, not {keep}.")
    location = open_location(uri, credentials_dir)
    options = kafka_options(config.consumer_settings())
    cluster = KafkaAdmin(config.admin_settings(), patience=_PATIENCE, stopping=lambda: False)
    stores = stores_of(topology, cluster.topics(), config)
    previous = None if full else versions.newest(location, config.application_id, now_ms())
    credentials = None if credentials_dir is None else str(Path(credentials_dir).absolute())
    version = versions.new_version(now_ms())
    place = Place(location, credentials, config.application_id, version)
    tables_place = None
    if catalog is not None:
        tables_place = CatalogPlace(
            open_location(_absolute(catalog), credentials_dir), credentials, config.application_id, version
        )
    try:
        # Whatever is wrong with the location shows before the work is done; a full disk still takes an empty file.
        location.put(f"{place.root}/{_MARK}", _MARK.encode())
        tables = None
        if tables_place is not None:
            tables_place.location.put(f"{table_path(config.application_id, version)}/{_MARK}", _MARK.encode())
            tables = Tables(tables_place, _decoders(stores, config))
        with spark() as session, one_sentence():
            boundaries = fix_boundaries(cluster, config, stores.logged, now_ms)
            base = Base.of(previous, stores.logged, boundaries, now_ms())
            lenient = config.deserialization_exception_handler is not fail_on_error
            work = Work(stores.logged, boundaries, base, place, options, file_bytes, tables, lenient)
            built = build(session.newSession(), work, on_progress)
        on_progress(Stage.PUBLISHING, 0, 0)
        check_topics_unchanged(cluster, boundaries, now_ms(), base.oldest_ms(stores.logged, boundaries))
        manifest = Manifest(
            application=config.application_id,
            topology=stores.topology,
            version=version,
            created_ms=boundaries.as_of_ms,
            stores=built.stores,
        )
        _drop_unlisted(place, manifest)
        if tables_place is not None:
            _publish_tables(tables_place, boundaries.as_of_ms, built.tables, keep)
        versions.publish(location, manifest)
    except BaseException:
        with contextlib.suppress(Exception):  # what failed counts
            versions.remove(location, config.application_id, version)
        if tables_place is not None:
            with contextlib.suppress(Exception):
                catalog_versions.remove(tables_place.location, config.application_id, version)
        raise
    removed = _tidy(location, config.application_id, keep, now_ms())
    if tables_place is not None:
        _tidy_tables(tables_place, keep, now_ms())
    return Snapshot(
        manifest, built.records, base.version, stores.skipped, removed, time.monotonic() - began, built.tables
    )


def _absolute(uri: str) -> str:
    """Return a location whose path does not depend on the current directory, which executors have another of."""
    return str(Path(uri).absolute()) if uri and "://" not in uri else uri


def _decoders(stores: Stores, config: Config) -> dict[str, ColumnDecoder]:
    """Return what decodes each store, the default serdes put in."""
    decoders = {}
    for store in stores.logged:
        builder = stores.builders[store.name]
        key, value = builder.key or config.default_key_serde, builder.value or config.default_value_serde
        decoders[store.name] = decoder_of(replace(builder, key=key, value=value), store.layout, store.topic)
    return decoders


def _publish_tables(place: CatalogPlace, as_of_ms: int, tables: tuple[StoreTable, ...], keep: int | None) -> None:
    """Complete the tables, and write their index last: a reader sees all tables of the version, or none."""
    index = CatalogVersion(application=place.application, version=place.version, as_of_ms=as_of_ms, tables=tables)
    earlier = catalog_versions.versions(place.location, place.application)
    complete_tables(place, index, earlier if keep is None else earlier[: keep - 1])
    place.location.delete([f"{table_path(place.application, place.version)}/{_MARK}"])
    catalog_versions.publish(place.location, index)


def _drop_unlisted(place: Place, manifest: Manifest) -> None:
    """Delete what attempts of tasks left that did not count."""
    listed = {f"{place.root}/{file.path}" for file in manifest.files}
    place.location.delete([path for path, _ in place.location.list(place.root) if path not in listed])


def _tidy(location: Location, application: str, keep: int | None, now_ms: int) -> tuple[str, ...]:
    """Delete old versions, and what failed jobs left. The new snapshot is there, whatever becomes of the old ones."""
    removed: list[str] = []
    try:
        if keep is not None:
            removed = versions.retain(location, application, keep, now_ms)
        versions.sweep(location, application, older_than_ms=_ABANDONED_MS, now_ms=now_ms)
    except SnapshotError as error:
        log.warning("old snapshots of %s cannot be deleted: %s", application, error)
    return tuple(removed)


def _tidy_tables(place: CatalogPlace, keep: int | None, now_ms: int) -> None:
    """Delete tables of old versions, and what failed jobs left; see `_tidy`."""
    try:
        if keep is not None:
            catalog_versions.retain(place.location, place.application, keep)
        catalog_versions.sweep(place.location, place.application, older_than_ms=_ABANDONED_MS, now_ms=now_ms)
    except SnapshotError as error:
        log.warning("old tables of %s cannot be deleted: %s", place.application, error)
