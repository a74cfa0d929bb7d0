"""The options of commands that read snapshots, for the location and a version in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from millpond.errors import ConfigError, SnapshotError
from millpond.runtime.config.model import Config
from millpond.snapshots import versions
from millpond.snapshots.locations import Location

__all__ = ("SnapshotPlace", "existing_version", "location_options", "snapshot_place")


def location_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--location`` and ``--credentials-dir`` to a command."""
    credentials = click.option(
        "--credentials-dir", type=click.Path(path_type=Path), metavar="DIR",
        help="A directory with files named AWS_ACCESS_KEY_ID and so on, such as a mounted Secret.",
    )  # fmt: skip
    location = click.option(
        "--location",
        "uri",
        metavar="URI",
        help="A directory, file:///directory or s3://bucket/prefix. Default: the setting 'bootstrap.location'.",
    )
    return location(credentials(function))


class SnapshotPlace(NamedTuple):
    """The place of an application's snapshots."""

    uri: str
    credentials_dir: Path | None
    """With files of credentials; None for the environment's."""


def snapshot_place(config: Config, uri: str | None, credentials_dir: Path | None) -> SnapshotPlace:
    """Return the place in the options, else the one in the configuration, from which workers load snapshots.

    Raises:
        ConfigError: neither the options nor the configuration name a place.
    """
    if uri is not None:
        return SnapshotPlace(uri, credentials_dir)
    if config.bootstrap_location is None:
        raise ConfigError(
            "the location of snapshots is not set: use --location URI, or the setting 'bootstrap.location'."
        )
    return SnapshotPlace(config.bootstrap_location, credentials_dir or config.bootstrap_credentials_dir)


def existing_version(location: Location, application: str, version: str | None) -> str:
    """Return `version` if it exists; the newest version if it is None.

    Raises:
        SnapshotError: the version does not exist, or no version exists.
    """
    found = versions.versions(location, application)
    if not found:
        raise SnapshotError(
            f"application '{application}' has no snapshot in '{location.uri}': check --location and --application-id."
        )
    if version is not None and version not in found:
        raise SnapshotError(
            f"snapshot {version} of '{application}' does not exist: 'millpond snapshot list' shows all versions."
        )
    return version or found[0]
