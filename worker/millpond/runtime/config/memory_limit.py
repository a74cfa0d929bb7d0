"""The memory limit of the container, and the sizes that follow from it."""

from __future__ import annotations

from pathlib import Path

__all__ = ("container_limit", "row_cache_bytes")

_ROW_CACHE_AT_MOST = 256 * 1024**2
#: The part of the container's memory that the row cache takes by default.
_ROW_CACHE_PART = 4


def row_cache_bytes(given: int, root: Path = Path("/")) -> int:
    """Return the size of the row cache in bytes.

    Args:
        given: the setting `rocksdb.row.cache.bytes`; -1 means the default.
        root: the root of the file system.
    """
    if given >= 0:
        return given
    limit = container_limit(root)
    return _ROW_CACHE_AT_MOST if limit is None else min(_ROW_CACHE_AT_MOST, limit // _ROW_CACHE_PART)


def container_limit(root: Path = Path("/")) -> int | None:
    """Return the smallest memory limit of the process's control groups in bytes, of version 2 or 1; None without one.

    A container sees its own group as the root of the hierarchy, or all groups, with its own in `/proc/self/cgroup`.

    Args:
        root: the root of the file system.
    """
    limits: list[int] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        if not controllers:
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = Path(path.strip("/"))
        for each in (group, *group.parents):
            given = _read(top / each / name).strip()
            if given.isdecimal():
                limits.append(int(given))
    return min(limits, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
