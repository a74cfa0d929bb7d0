"""The versions of an application's snapshots: folders ``<application>/<version>/…``, complete with their manifest."""

from __future__ import annotations

import logging
import re
import secrets
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from millpond.errors import SnapshotError
from millpond.times import epoch_ms, moment

from .locations import Location
from .manifest import Manifest, decode, encode
from .sst import file_sha256

__all__ = (
    "MANIFEST",
    "created_ms",
    "file_path",
    "new_version",
    "newest",
    "publish",
    "read",
    "remove",
    "retain",
    "sweep",
    "verify",
    "versions",
)

log: logging.Logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
"""The name of the manifest's file."""

#: Clocks of machines may differ by this much.
_CLOCK_SKEW_MS = 60_000
_STAMP = "%Y%m%dT%H%M%SZ"
_VERSION = re.compile(r"^(\d{8}T\d{6}Z)-[0-9a-f]{6}$")


def new_version(now_ms: int) -> str:
    """Return an id for a new version, `YYYYMMDDTHHMMSSZ-xxxxxx`; ids sort by time.

    Args:
        now_ms: epoch ms.
    """
    return f"{moment(now_ms).strftime(_STAMP)}-{secrets.token_hex(3)}"


def created_ms(version: str) -> int | None:
    """Return the start time of a version, in epoch ms; None if the name is not a version id."""
    found = _VERSION.match(version)
    if found is None:
        return None
    try:
        return epoch_ms(datetime.strptime(found[1], _STAMP).replace(tzinfo=UTC))
    except ValueError:  # the 99th of a month
        return None


def file_path(application: str, version: str, path: str) -> str:
    """Return the path of a version's file, relative to the location."""
    return f"{application}/{version}/{path}"


def versions(location: Location, application: str) -> list[str]:
    """Return the complete versions, newest first.

    Raises:
        SnapshotError: the location cannot be read.
    """
    return [each for each in _folders(location, application) if _is_complete(location, application, each)]


def newest(location: Location, application: str, now_ms: int) -> Manifest | None:
    """Return the manifest of the newest usable version; None without one.

    A version that cannot be read, or whose time is in the future, is skipped with a warning: an older one may be
    usable.

    Args:
        location: the location of the snapshots.
        application: application id.
        now_ms: epoch ms.

    Raises:
        SnapshotError: the location cannot be read.
    """
    return next(_usable(location, application, now_ms), None)


def read(location: Location, application: str, version: str) -> Manifest:
    """Return the manifest of a version.

    Raises:
        SnapshotError: the manifest is missing or damaged, or of a newer format.
    """
    manifest = decode(location.get(file_path(application, version, MANIFEST)))
    if (manifest.application, manifest.version) != (application, version):
        raise SnapshotError(
            f"the manifest of snapshot {version} is of '{manifest.application}' {manifest.version}: the folder was "
            "renamed; make a new snapshot"
        )
    return manifest


def publish(location: Location, manifest: Manifest) -> None:
    """Write the manifest, which makes the version complete.

    Raises:
        SnapshotError: a file in the manifest is missing or has another size; then nothing is written.
    """
    folder = f"{manifest.application}/{manifest.version}"
    sizes = dict(location.list(folder))
    for file in manifest.files:
        found = sizes.get(f"{folder}/{file.path}")
        if found != file.bytes:
            state = "is missing" if found is None else f"has {found} bytes instead of {file.bytes}"
            raise SnapshotError(f"snapshot {manifest.version} is not complete: its file '{file.path}' {state}")
    location.put(f"{folder}/{MANIFEST}", encode(manifest))


def remove(location: Location, application: str, version: str) -> None:
    """Delete a version, its manifest first.

    Raises:
        SnapshotError: the location cannot be changed.
    """
    manifest = file_path(application, version, MANIFEST)
    # Without its manifest a version does not exist, whatever files are left.
    location.delete([manifest])
    location.delete([path for path, _ in location.list(f"{application}/{version}") if path != manifest])


def retain(location: Location, application: str, keep: int, now_ms: int) -> list[str]:
    """Delete all versions older than the newest usable ones; return the deleted versions.

    A version that cannot be read does not count among those to keep.

    Args:
        location: the location of the snapshots.
        application: application id.
        keep: how many usable versions to keep, at least 1.
        now_ms: epoch ms.

    Raises:
        SnapshotError: the location cannot be changed.
    """
    if keep < 1:
        raise SnapshotError(f"at least one snapshot must be kept, not {keep}")
    kept = [each.version for each in islice(_usable(location, application, now_ms), keep)]
    if len(kept) < keep:
        return []
    expired = sorted(version for version in versions(location, application) if version < kept[-1])
    for version in expired:
        remove(location, application, version)
    return expired


def sweep(location: Location, application: str, *, older_than_ms: int, now_ms: int) -> list[str]:
    """Delete the folders of incomplete versions, which failed jobs left; return their versions.

    Args:
        location: the location of the snapshots.
        application: application id.
        older_than_ms: younger folders are kept: their job may still run.
        now_ms: epoch ms.

    Raises:
        SnapshotError: the location cannot be changed.
    """
    removed = []
    for version in reversed(_folders(location, application)):
        if now_ms - _time_of(version) >= older_than_ms and not _is_complete(location, application, version):
            remove(location, application, version)
            removed.append(version)
    return removed


def verify(location: Location, manifest: Manifest) -> list[str]:
    """Read every file of a version; return one sentence for each file that differs from the manifest.

    Raises:
        SnapshotError: the location cannot be listed.
    """
    folder = f"{manifest.application}/{manifest.version}"
    sizes = dict(location.list(folder))
    wrong = []
    with tempfile.TemporaryDirectory(prefix="millpond-verify-") as scratch:
        local = Path(scratch, "file")
        for file in manifest.files:
            found = sizes.get(f"{folder}/{file.path}")
            if found is None:
                wrong.append(f"file '{file.path}' is missing")
            elif found != file.bytes:
                wrong.append(f"file '{file.path}' has {found} bytes instead of {file.bytes}")
            else:
                try:
                    location.fetch(f"{folder}/{file.path}", local)
                except SnapshotError as error:
                    wrong.append(str(error))
                    continue
                if file_sha256(local) != file.sha256:
                    wrong.append(f"file '{file.path}' is damaged: its SHA-256 is not the manifest's")
                local.unlink()
    return wrong


def _folders(location: Location, application: str) -> list[str]:
    """Return all versions, newest first, complete or not."""
    return sorted((each for each in location.folders(application) if created_ms(each) is not None), reverse=True)


def _is_complete(location: Location, application: str, version: str) -> bool:
    return location.exists(file_path(application, version, MANIFEST))


def _usable(location: Location, application: str, now_ms: int) -> Iterator[Manifest]:
    """Yield the manifests of usable versions, newest first."""
    for version in _folders(location, application):
        if not _is_complete(location, application, version):
            continue
        if _time_of(version) > now_ms + _CLOCK_SKEW_MS:
            log.warning(
                "snapshot %s of %s: skipped, since its time is in the future on this machine", version, application
            )
            continue
        try:
            yield read(location, application, version)
        except SnapshotError as error:
            log.warning("snapshot %s of %s: skipped: %s", version, application, error)


def _time_of(version: str) -> int:
    found = created_ms(version)
    assert found is not None
    return found
