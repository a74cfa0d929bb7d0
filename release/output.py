"""The directory that a release is built into."""

from __future__ import annotations

import shutil
from pathlib import Path

from .failures import ReleaseFailed

__all__ = ("SUMS", "emptied")

SUMS = "SHA256SUMS"
"""The file with the checksums, which a finished release has."""


def emptied(directory: Path, default: Path | None = None) -> Path:
    """Return the directory, made or emptied.

    Args:
        directory: the directory.
        default: a directory that only releases write: it is emptied also if the last one was not finished.

    Raises:
        ReleaseFailed: it contains something other than a release.
    """
    if directory.exists() and not directory.is_dir():
        raise ReleaseFailed(f"--output {directory} is no directory: name a new or empty directory.")
    is_release = directory == default or (directory / SUMS).exists()
    if directory.exists() and any(directory.iterdir()) and not is_release:
        raise ReleaseFailed(
            f"--output {directory} has other files than a release's: name a new or empty directory, since a release "
            "deletes what is in it."
        )
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory
