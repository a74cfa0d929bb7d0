"""The distribution of tests to pytest's processes: single tests in order, groups as a whole.

`pytest.mark.xdist_group` names a group, as in pytest-xdist. Its own way of passing groups to its main process (a suffix
of test ids) does not work with pytest 9.2: tests that must not run in parallel would. Here each process writes its
groups into a file, and the scheduler reads them.
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
_FROM_THE_END = 2


def group_of(item: pytest.Item) -> str | None:
    """Return the group of a test, whose tests run in one process, one after the other."""
    mark = item.get_closest_marker(_MARK)
    return None if mark is None else str(mark.args[0])


def write_groups(directory: Path, items: Iterable[pytest.Item]) -> None:
    """Write the groups of tests into a file for the scheduler. Every process writes the same."""
    groups = {item.nodeid: group for item in items if (group := group_of(item)) is not None}
    mine = directory / f"groups-{os.getpid()}"
    mine.write_text(json.dumps(groups))
    mine.replace(directory / "groups.json")


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Distributes tests in their order, and a group at the place of its first test.

    The third of three processes begins at the end: tests there compute, and those in front of them wait for brokers, so
    that all processors are busy all the time.

    Args:
        config: of pytest's main process.
        log: given by pytest-xdist.
        directory: the directory of `write_groups`.
    """

    def __init__(self, config: pytest.Config, log: Any, directory: Path) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._directory = directory
        self._groups: Mapping[str, str] | None = None

    def _assign_work_unit(self, node: Any) -> None:
        if int(node.gateway.id.removeprefix("gw")) % 3 == _FROM_THE_END:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:
            self._groups = json.loads((self._directory / "groups.json").read_text())
        assert self._groups is not None
        return self._groups.get(nodeid, nodeid)
