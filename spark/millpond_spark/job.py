"""Make a snapshot of an application's state: the driver's part, from the boundaries to the manifest.

Only the manifest makes a version complete, and it is written last. A job that fails or is killed leaves a folder
without a manifest, which readers ignore and a later job deletes.
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

from millpond.catalog import indexes
from millpond.catalog.indexes import CatalogVersion, StoreTable, table_path
from millpond.errors import SnapshotError
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.missing_rights import Operation
from millpond.runtime.processing.handlers import fail_on_error
from millpond.runtime.topics.plan import outside_topics, plan_with
from millpond.snapshots import versions
from millpond.snapshots.locations import Location, open_location
from millpond.snapshots.manifest import Manifest
from millpond.topology import Topology

from .build import Place, Tables, Work, build
from .cuts.boundaries import check_topics_unchanged, read_boundaries, wall_ms
from .cuts.moving_cut import MovingCut
from .failures import translated_errors
from .iceberg_tables import CatalogPlace, complete_tables
from .incremental import Base
from .kafka_options import kafka_options
from .progress import OnProgress, Stage, no_progress
from .stores import Stores, stores_of
from .table_rows import ColumnDecoder, decoder_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("FILE_BYTES", "Snapshot", "StartSpark", "create_snapshot")

log = logging.getLogger(__name__)

FILE_BYTES = 64 * 1024 * 1024
"""The default size of files, approximately, before compression."""

StartSpark = Callable[[], contextlib.AbstractContextManager["SparkSession"]]
"""A function that returns a context manager, which starts Spark and stops it at the end of the block."""

_KAFKA_TIMEOUT = timedelta(seconds=30)
#: Incomplete versions that are older belong to failed jobs.
_ABANDONED_MS = 24 * 3_600_000
#: The name and content of a file that shows that a location can be written.
_MARK = "in-progress"


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that was made."""

    manifest: Manifest
    records: Mapping[str, int]
    """Store -> number of changelog records that were read."""
    base: str | None
    """The previous version whose rows were reused; None when everything was read from the changelogs."""
    skipped: Mapping[str, str]
    """Store without a snapshot -> the reason, a clause whose subject is the store."""
    removed: tuple[str, ...]
    """Versions that retention deleted."""
    seconds: float
    """How long the job took."""
    tables: tuple[StoreTable, ...] = ()
    """The tables of the state catalog that were written."""


def create_snapshot(  # noqa: PLR0913  # options are keyword-only
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
        topology: the topology of the application.
        config: the configuration of the application.
        uri: the location of snapshots: a directory, `file:///directory` or `s3://bucket/prefix`. Executors use it, too.
        spark: starts Spark, after everything else is checked.
        credentials_dir: the credentials of the location, see `open_location`; executors have the same directory.
        keep: how many versions to keep, with this one; None for all.
        full: whether to read the changelogs from their beginning, even where the previous version could be reused.
        catalog: the location of the state catalog, like `uri` and with the same credentials, where each store is also
            written as a table; None for no tables.
        file_bytes: the approximate size of a file in bytes, before compression.
        on_progress: called with the progress.
        now_ms: the wall-clock time, in epoch ms.

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
    cluster = KafkaAdmin(config.admin_settings(), patience=_KAFKA_TIMEOUT, stopping=lambda: False)
    stores = stores_of(topology, _seen(cluster, topology, config), config)
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
        # An unusable location fails before the work is done. The file has content: a full disk may accept an empty
        # file.
        location.put(f"{place.root}/{_MARK}", _MARK.encode())
        tables = None
        if tables_place is not None:
            tables_place.location.put(f"{table_path(config.application_id, version)}/{_MARK}", _MARK.encode())
            tables = Tables(tables_place, _decoders(stores, config))
        with spark() as session, translated_errors(cluster.access):
            boundaries = read_boundaries(cluster, config, stores.logged, now_ms)
            base = Base.of(previous, stores.logged, boundaries, now_ms())
            lenient = config.deserialization_exception_handler is not fail_on_error
            work = Work(stores.logged, boundaries, base, place, options, file_bytes, tables, lenient=lenient)
            if tables is not None:
                headers = frozenset(each.topic for each in work.sources() if each.needs_headers)
                cut = MovingCut(cluster, config, stores.logged, boundaries, headers, now_ms)
                work = replace(work, cut=cut if cut.needed else None)
            built = build(session.newSession(), work, on_progress)
        on_progress(Stage.PUBLISHING, 0, 0)
        check_topics_unchanged(cluster, boundaries, now_ms(), base.oldest_ms(stores.logged, built.boundaries))
        manifest = Manifest(
            application=config.application_id,
            topology=stores.topology,
            version=version,
            created_ms=built.boundaries.as_of_ms,
            stores=built.stores,
        )
        _drop_unlisted(place, manifest)
        if tables_place is not None:
            _publish_tables(tables_place, built.boundaries.as_of_ms, built.tables, keep)
        versions.publish(location, manifest)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to raise
            versions.remove(location, config.application_id, version)
        if tables_place is not None:
            with contextlib.suppress(Exception):
                indexes.remove(tables_place.location, config.application_id, version)
        raise
    removed = _delete_old(location, config.application_id, keep, now_ms())
    if tables_place is not None:
        _delete_old_tables(tables_place, keep, now_ms())
    return Snapshot(
        manifest, built.records, base.version, stores.skipped, removed, time.monotonic() - began, built.tables
    )


def _seen(cluster: KafkaAdmin, topology: Topology, config: Config) -> Mapping[str, int]:
    """Return the partition count of every topic, of which none of the application's is only hidden."""
    existing = cluster.topics()
    read = {topic for store in topology.global_stores for topic in store.source.topics}
    for part in topology.subtopologies():
        read |= part.source_topics & set(part.changelogs.values())
    outside = outside_topics(topology, config).keys() - existing.keys()
    cluster.check_seen({each: Operation.READ if each in read else Operation.DESCRIBE for each in outside})
    internal = {each.name for each in plan_with(topology, existing, config).internal} - existing.keys()
    cluster.check_seen(dict.fromkeys(internal, Operation.READ))
    return existing


def _absolute(uri: str) -> str:
    """Return a location that does not depend on the current directory, which differs in executors."""
    return str(Path(uri).absolute()) if uri and "://" not in uri else uri


def _decoders(stores: Stores, config: Config) -> dict[str, ColumnDecoder]:
    """Return the decoder of each store; default serdes are filled in."""
    decoders = {}
    for store in stores.logged:
        builder = stores.builders[store.name]
        key, value = builder.key or config.default_key_serde, builder.value or config.default_value_serde
        decoders[store.name] = decoder_of(replace(builder, key=key, value=value), store.layout, store.topic)
    return decoders


def _publish_tables(place: CatalogPlace, as_of_ms: int, tables: tuple[StoreTable, ...], keep: int | None) -> None:
    """Complete the tables, and write their index last: a reader sees all tables of the version, or none."""
    index = CatalogVersion(application=place.application, version=place.version, as_of_ms=as_of_ms, tables=tables)
    earlier = indexes.versions(place.location, place.application)
    complete_tables(place, index, earlier if keep is None else earlier[: keep - 1])
    place.location.delete([f"{table_path(place.application, place.version)}/{_MARK}"])
    indexes.publish(place.location, index)


def _drop_unlisted(place: Place, manifest: Manifest) -> None:
    """Delete the files of Spark task attempts whose result was not used."""
    listed = {f"{place.root}/{file.path}" for file in manifest.files}
    place.location.delete([path for path, _ in place.location.list(place.root) if path not in listed])


def _delete_old(location: Location, application: str, keep: int | None, now_ms: int) -> tuple[str, ...]:
    """Delete old versions, and incomplete ones of failed jobs; log errors, since the new snapshot is complete."""
    removed: list[str] = []
    try:
        if keep is not None:
            removed = versions.retain(location, application, keep, now_ms)
        versions.sweep(location, application, older_than_ms=_ABANDONED_MS, now_ms=now_ms)
    except SnapshotError as error:
        log.warning("application %s: cannot delete old snapshots: %s", application, error)
    return tuple(removed)


def _delete_old_tables(place: CatalogPlace, keep: int | None, now_ms: int) -> None:
    """Delete tables of old and incomplete versions; see `_delete_old`."""
    try:
        if keep is not None:
            indexes.retain(place.location, place.application, keep)
        indexes.sweep(place.location, place.application, older_than_ms=_ABANDONED_MS, now_ms=now_ms)
    except SnapshotError as error:
        log.warning("application %s: cannot delete old tables: %s", place.application, error)
