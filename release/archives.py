"""Archives that are the same, byte for byte, whenever they are made of the same files."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path

__all__ = ("normalised", "normalised_wheel")


def normalised(archive: Path, epoch: int) -> None:
    """Rewrite a .tar.gz in place: sorted members, one time, no owner, and no time in gzip's header.

    Args:
        archive: the archive.
        epoch: the time of all members, in epoch seconds.
    """
    raw = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with archive.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as packed:
        packed.write(raw.getvalue())


def normalised_wheel(wheel: Path) -> None:
    """Rewrite a wheel in place: the same members and times, with modes that do not show the umask of its maker.

    Args:
        wheel: the wheel.
    """
    raw = io.BytesIO()
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(raw, "w") as new:
        for member in old.infolist():
            executable = member.external_attr >> 16 & 0o100
            member.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            new.writestr(member, old.read(member))
    wheel.write_bytes(raw.getvalue())
