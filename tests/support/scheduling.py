"""Which test goes to which of pytest's processes: one after the other, but groups as a whole.

`pytest.mark.xdist_group` names a group, as it does for pytest-xdist, whose own way of telling its main process (a suffix of
test ids) does nothing under pytest 9.2: tests that must not run side by side would. Here each process writes down the groups
that it found, and the scheduler reads them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ("GroupScheduling", "group_of", "write_groups")

_MARK = "xdist_group"


def group_of(item: pytest.Item) -> str | None:
    """The group of a test: all of it runs in one process, one test after the other."""
    mark = item.get_closest_marker(_MARK)
    return None if mark is None else str(mark.args[0])


def write_groups(directory: Path, items: Iterable[pytest.Item]) -> None:
    """Write down, for the scheduler, the groups of tests that have one. Every process writes the same."""
    groups = {item.nodeid: group for item in items if (group := group_of(item)) is not None}
    mine = directory / f"groups-{os.getpid()}"
    mine.write_text(json.dumps(groups))
    mine.replace(directory / "groups.json")


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out tests in their order, and a group at the place of its first test.

    Args:
        config: of pytest's main process.
        log: as pytest-xdist gives it.
        directory: where `write_groups` wrote.
    """

    def __init__(self, config: pytest.Config, log: Any, directory: Path) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._directory = directory
        self._groups: Mapping[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:
            self._groups = json.loads((self._directory / "groups.json").read_text())
        assert self._groups is not None
        return self._groups.get(nodeid, nodeid)
