"""The check of state files: a store partition equals a prefix of its changelog, on the owner all of it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millpond.state import StateFile
from millpond.state.formats import PARTITION_LENGTH, SEGMENT_LENGTH, partition_prefix
from tests.chaos.checks.truth import Finding
from tests.support.kafka import Row

__all__ = ("Copies", "Layout", "find_in_stores")

_long = struct.Struct(">q")


@dataclass(frozen=True)
class Layout:
    """Where a store belongs, and how its rows differ from its changelog's records."""

    subtopology: int
    timestamped: bool = False
    """Whether the values of its rows begin with the timestamp."""
    segmented: bool = False
    """Whether the keys of its rows begin with a segment."""


@dataclass
class Copies:
    """The store partitions on the disks."""

    owned: int = 0
    """The number of store partitions on their owners."""
    complete: int = 0
    """The number of copies on other workers at the end of their changelog."""
    behind: int = 0
    """The number of other copies."""
    findings: list[Finding] = field(default_factory=list)


def find_in_stores(
    directories: Mapping[str, Path],
    changelogs: Mapping[str, Iterable[Row]],
    owners: Mapping[tuple[int, int], str | None],
    layouts: Mapping[str, Layout],
    partitions: int,
) -> Copies:
    """Compare the state files of stopped workers with the changelogs, row by row.

    Args:
        directories: the state directories by worker.
        changelogs: all committed records of each store's changelog, in order.
        owners: the worker that owns a task, by sub-topology and partition.
        layouts: the stores that are compared.
        partitions: the number of partitions of each.
    """
    copies = Copies()
    by_partition: dict[tuple[str, int], list[Row]] = {
        (store, partition): [] for store in layouts for partition in range(partitions)
    }
    for store, rows in changelogs.items():
        for row in rows:
            by_partition[store, row.partition].append(row)
    owned: set[tuple[str, int]] = set()
    for worker, directory in directories.items():
        if not directory.exists():
            continue
        with StateFile(directory) as file:
            if file.set_aside is not None:
                copies.findings.append(Finding(worker, f"its state could not be opened: {file.reason}"))
                continue
            for (store, partition), log in by_partition.items():
                mine = owners.get((layouts[store].subtopology, partition)) == worker
                text = _compare(file, store, partition, log, layouts[store], mine=mine)
                if text is not None:
                    whose = "its own" if mine else "its copy of"
                    copies.findings.append(Finding(f"{worker}, {whose} {store} {partition}", text))
                if mine:
                    owned.add((store, partition))
                    copies.owned += 1
                elif (offset := file.offset(store, partition)) is not None:
                    end = log[-1].offset + 1 if log else 0
                    copies.complete += offset >= end
                    copies.behind += offset < end
    copies.findings += [
        Finding(f"{store} {partition}", "its owner has no copy")
        for store, partition in by_partition
        if (store, partition) not in owned
    ]
    return copies


def _compare(file: StateFile, store: str, partition: int, log: list[Row], layout: Layout, *, mine: bool) -> str | None:
    offset = file.offset(store, partition)
    if offset is None:
        if mine and log:
            return "it has no changelog offset"
        offset = 0
    end = log[-1].offset + 1 if log else 0
    if mine and offset < end:
        return f"its offset is {offset}, but the changelog ends at {end}"
    wanted: dict[bytes, bytes] = {}
    for row in log:
        if row.offset >= offset:
            break
        key = row.key or b""
        if row.value is None:
            wanted.pop(key, None)
        else:
            wanted[key] = _long.pack(row.timestamp) + row.value if layout.timestamped else row.value
    skip = PARTITION_LENGTH + (SEGMENT_LENGTH if layout.segmented else 0)
    low, high = partition_prefix(partition), partition_prefix(partition + 1)
    found = {key[skip:]: value for key, value in file.range(store, low, high)}
    if found == wanted:
        return None
    wrong = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    first = wrong[0]
    return (
        f"{len(wrong)} rows differ from the changelog up to offset {offset}: {first!r} is {found.get(first)!r} instead "
        f"of {wanted.get(first)!r}"
    )
