"""The sources of rows: a snapshot, running workers, or the state directories of stopped workers."""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import click

from millpond.cli.application import load_topology
from millpond.cli.options import load_config
from millpond.cli.query.workers import worker_urls
from millpond.cli.session_broker import BROKER, of_session
from millpond.cli.snapshot.options import existing_version, location_options, snapshot_place
from millpond.errors import StateError
from millpond.inspection.decoding import LoggedStore, find_store, stores_of
from millpond.inspection.directory import open_directories
from millpond.inspection.reading import places
from millpond.inspection.snapshot import SnapshotSource
from millpond.inspection.sources import RowSource
from millpond.inspection.workers import RunningWorker, find_workers
from millpond.runtime.config.model import Config
from millpond.snapshots import versions
from millpond.snapshots.layouts import StoreLayout
from millpond.snapshots.locations import open_location

__all__ = ("OpenStore", "Sources", "open_store", "source_options")


def source_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for sources of rows, and for the application that decodes them, to a command."""
    for option in (
        click.option("--app", "target", metavar="MODULE:ATTRIBUTE", help="The application, whose serdes decode rows."),
        click.option(
            "--url",
            "urls",
            metavar="URL",
            multiple=True,
            help="A running worker, as http://host:port; the others are found through it.",
        ),
        click.option(
            "--session",
            "named",
            metavar="NAME",
            help="The session of `millpond dev` whose workers to read, if several run.",
        ),
        click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE", help="The token for workers."),
        click.option("--ca-file", type=click.Path(path_type=Path), metavar="FILE", help="CA certificates for workers."),
    ):
        function = option(function)
    return location_options(function)


class Origin(enum.Enum):
    """Where the rows of a store are read."""

    DIRECTORIES = "the state directories of stopped workers"
    URLS = "running workers, found through one of them"
    SESSION = "running workers of a session of `millpond dev`"
    SNAPSHOT = "a snapshot"
    COORDINATOR = "running workers, found through the coordinator of the configuration"


class Sources(NamedTuple):
    """The sources of rows that the options name."""

    config: Config
    stores: dict[str, LoggedStore] | None
    """The application's stores by name; None without --app."""
    uri: str | None
    credentials_dir: Path | None
    urls: tuple[str, ...]
    token_file: Path | None
    ca_file: Path | None
    directory: Path | None
    """The state directory of stopped workers."""
    session: str | None = None
    """The session of `millpond dev` whose broker is used, and so whose workers."""
    origin: Origin | None = None
    """Where to read the rows of a store; None if neither options nor configuration say it, and no session runs."""

    @classmethod
    def of(
        cls,
        file: Path | None,
        flags: dict[str, object],
        target: str | None,
        required: tuple[str, ...] = ("application.id",),
        named: str | None = None,
        **given: Any,
    ) -> Sources:
        """Return the sources that options name.

        Args:
            file: the configuration file.
            flags: settings of the command line, by key.
            target: the application, as ``MODULE:ATTRIBUTE``; None for that of the session, else to show rows as bytes.
            required: settings that must be set.
            named: the session of `millpond dev`, if it is named.
            given: the values of `source_options`.

        Raises:
            click.UsageError: options exclude each other.
            ConfigError: see `Config.load`.
        """
        directory = flags.pop("state.dir", None)
        if directory is not None and given["urls"]:
            raise click.UsageError(
                "--url (running workers) and --state-dir (stopped workers) exclude each other: leave out one of them."
            )
        config = load_config(file, flags, required=(), beside_session=True, imports=False)
        origin = _origin(directory, given["urls"], given["uri"], config)
        session = None
        if named is not None or BROKER in required or origin is None:
            flags, status = of_session(named, file, flags, target, config)
            if status is not None:
                session, target = status.application, target or status.target or None
                if directory is None:
                    origin = Origin.SESSION
        config = load_config(file, flags, required=required, beside_session=True, imports=target is not None)
        stores = None if target is None else stores_of(load_topology(target, config.topology_optimization), config)
        return cls(
            config,
            stores,
            directory=None if directory is None else Path(str(directory)),
            session=session,
            origin=origin,
            **given,
        )

    def workers(self, stack: ExitStack) -> list[RunningWorker]:
        """Return all running workers: found through --url, else the coordinator, else a session of `millpond dev`."""
        config = self.config
        if not self.urls and config.coordinator_url is None and self.session is None:
            raise click.UsageError(
                "the workers are missing: start `millpond dev`, or give --url URL of a running worker (or the setting "
                "'coordinator.url'), or --state-dir DIR of stopped workers."
            )
        urls = worker_urls(
            self.urls,
            config.coordinator_url,
            config.application_id if config.coordinator_url is not None else None,
            config.coordinator_token_file,
            config.coordinator_ca_file,
            session=self.session,
        )
        found = find_workers(
            urls,
            config.application_id,
            token_file=self.token_file or config.query_token_file,
            ca_file=self.ca_file or config.query_ssl_ca_location,
        )
        for each in found:
            stack.callback(each.close)
        return found

    def directories(self, stack: ExitStack) -> list[RowSource]:
        """Open the state directories of stopped workers."""
        assert self.directory is not None
        found = open_directories(self.directory, self.config.application_id)
        for each in found:
            stack.callback(each.close)
        return list(found)

    def snapshot(self, version: str | None) -> SnapshotSource:
        """Return a version of the snapshot; the newest one if `version` is None."""
        location = open_location(*snapshot_place(self.config, self.uri, self.credentials_dir))
        application = self.config.application_id
        return SnapshotSource(
            location, versions.read(location, application, existing_version(location, application, version))
        )


class OpenStore(NamedTuple):
    """A store, ready to be read."""

    layout: StoreLayout
    logged: LoggedStore | None
    places: dict[int, RowSource]
    """The source of each partition."""
    total: int
    """The number of rows; 0 if it is not known."""
    source: str
    """The source's name in messages."""


def open_store(stack: ExitStack, sources: Sources, store: str, version: str | None) -> OpenStore:
    """Return a store of the sources.

    Args:
        stack: closes the sources.
        sources: the sources of the rows.
        store: the name of the store.
        version: the version of the snapshot; None for the newest one, or for another source.

    Raises:
        click.UsageError: options exclude each other, or an option is missing.
        StateError: the store does not exist, or has another layout.
    """
    logged = None if sources.stores is None else find_store(sources.stores, store)
    if sources.session is not None and (sources.uri is not None or sources.directory is not None):
        raise click.UsageError("--session excludes --location and --state-dir: leave out one of them.")
    origin = sources.origin
    if version is not None and origin in (None, Origin.COORDINATOR):
        origin = Origin.SNAPSHOT
    if origin is None:
        raise click.UsageError(
            "the rows' source is missing: start `millpond dev`, or give --url URL of a running worker, --state-dir "
            "DIR of stopped workers, or --location URI of snapshots."
        )
    if origin is Origin.SNAPSHOT:
        return _open_snapshot(sources.snapshot(version), store, logged)
    if version is not None:
        raise click.UsageError("--snapshot cannot be used with --url, --state-dir or --session.")
    if logged is None:
        raise click.UsageError(
            "workers and their directories need the application, which knows the layout of rows: use --app."
        )
    if origin is Origin.DIRECTORIES:
        found = places(sources.directories(stack), store)
        return OpenStore(logged.layout, logged, found, 0, f"the directory {sources.directory}")
    workers = sources.workers(stack)
    found = places(workers, store, workers[0].stores.stores.get(store))
    return OpenStore(logged.layout, logged, found, 0, f"{len(workers)} running workers")


def _open_snapshot(snapshot: SnapshotSource, store: str, logged: LoggedStore | None) -> OpenStore:
    found = places([snapshot], store)
    stored = snapshot.manifest.store(store)
    assert stored is not None
    if logged is not None and logged.layout != stored.layout:
        raise StateError(
            f"snapshot {snapshot.name} has store '{store}' in another layout than the application: name the "
            "application that it was made of, or leave out --app."
        )
    total = sum(part.rows for part in stored.parts)
    return OpenStore(stored.layout, logged, found, total, f"snapshot {snapshot.name}")


def _origin(directory: object | None, urls: tuple[str, ...], uri: str | None, config: Config) -> Origin | None:
    """Return where options, or else the configuration, say that rows are; None if both leave it to a session."""
    if directory is not None:
        return Origin.DIRECTORIES
    if urls:
        return Origin.URLS
    if uri is not None or config.bootstrap_location is not None:
        return Origin.SNAPSHOT
    return Origin.COORDINATOR if config.coordinator_url is not None else None
