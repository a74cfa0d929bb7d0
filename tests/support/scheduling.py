"""The order and the grouping of tests that several processes run.

`pytest.mark.xdist_group` names a group, as in pytest-xdist. Its own way of passing groups to its main process (a suffix
of test ids) does not work with pytest 9.2: tests that must not run in parallel would. Here each process writes what the
scheduler has to know of its tests into a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support import preparing

__all__ = ("GroupScheduling", "Plan", "group_of", "telling", "write_plan")

_MARK = "xdist_group"
_FROM_THE_END = 2
_API_SERVER = "apiserver"
_FIRST_S, _EVERY_S = 10.0, 30.0
"""When the terminal tells what tests wait for."""


def group_of(item: pytest.Item) -> str | None:
    """Return the group of a test, whose tests run in one process, one after the other."""
    mark = item.get_closest_marker(_MARK)
    return None if mark is None else str(mark.args[0])


class Plan(NamedTuple):
    """What the scheduler has to know of tests, by their ids."""

    groups: Mapping[str, str]
    """Of those that have one."""
    needs: Mapping[str, list[str]]
    """What has to be fetched or built, of those that need something."""


def write_plan(directory: Path, items: Iterable[pytest.Item]) -> None:
    """Write the plan into a file for the main process. Every process writes the same."""
    groups, needs = {}, {}
    for item in items:
        if (group := group_of(item)) is not None:
            groups[item.nodeid] = group
        if needed := [each for each in preparing.PREPARED if item.get_closest_marker(each)]:
            needs[item.nodeid] = needed
    mine = directory / f"plan-{os.getpid()}"
    mine.write_text(json.dumps([groups, needs]))
    mine.replace(directory / "plan.json")


def _read_plan(directory: Path) -> Plan:
    return Plan(*json.loads((directory / "plan.json").read_text()))


@contextlib.contextmanager
def telling(directory: Path, reporter: pytest.TerminalReporter) -> Iterator[None]:
    """While the block runs, tell now and then what is fetched or built, and how many tests wait for it."""
    ended = threading.Event()

    def tell() -> None:
        pause = _FIRST_S
        while not ended.wait(pause):
            pause = _EVERY_S
            with contextlib.suppress(FileNotFoundError):  # until all tests are collected
                waiting = Counter(each for needs in _read_plan(directory).needs.values() for each in needs)
                for line in preparing.progress(directory, waiting):
                    reporter.line("")  # the dots end where they are
                    reporter.line(line)

    thread = threading.Thread(target=tell, name="progress of preparations", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Distributes tests in their order, and a group at the place of its first test.

    Tests that need what is not there yet come after those that can run. If that is the API server, its tests are no
    group: they would begin late, and one process would run them for minutes after all others. Each process then starts
    an API server of its own.

    The third of three processes begins at the end: tests there compute, and those in front of them wait for brokers, so
    that all processors are busy all the time.

    Args:
        config: of pytest's main process.
        log: given by pytest-xdist.
        directory: the directory of `write_plan`.
    """

    def __init__(self, config: pytest.Config, log: Any, directory: Path) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._directory = directory
        self._plan: Plan | None = None
        self._scopes: dict[str, set[str]] = {}
        self._unfinished: set[str] = set()
        self._apart = False

    def schedule(self) -> None:
        """Begin to distribute the tests."""
        if self._plan is None:
            try:
                self._plan = _read_plan(self._directory)
            except FileNotFoundError:  # its processes keep to themselves which path is wrong
                paths = " ".join(self.config.args)
                raise pytest.UsageError(f"no process collected tests from {paths}: check that each exists") from None
            self._unfinished = {each for needs in self._plan.needs.values() for each in needs}
            self._apart = _API_SERVER in preparing.unfinished(self._directory, self._unfinished)
            for nodeid, needs in self._plan.needs.items():
                self._scopes.setdefault(self._split_scope(nodeid), set()).update(needs)
        super().schedule()

    def _assign_work_unit(self, node: Any) -> None:
        backwards = int(node.gateway.id.removeprefix("gw")) % 3 == _FROM_THE_END
        self.workqueue.move_to_end(self._next(backwards=backwards), last=False)
        super()._assign_work_unit(node)

    def _next(self, *, backwards: bool) -> str:
        """Return the tests to run next: the first that can run; if none can, those that can run soonest."""
        if self._unfinished:
            self._unfinished = preparing.unfinished(self._directory, self._unfinished)
        if not self._unfinished:
            return next(reversed(self.workqueue) if backwards else iter(self.workqueue))
        queue = list(reversed(self.workqueue) if backwards else self.workqueue)
        ready = (each for each in queue if self._last_need(each) < 0)
        return next(ready, None) or min(queue, key=self._last_need)

    def _last_need(self, scope: str) -> int:
        missing = self._scopes.get(scope, set()) & self._unfinished
        return max((preparing.PREPARED.index(each) for each in missing), default=-1)

    def _split_scope(self, nodeid: str) -> str:
        assert self._plan is not None
        group = self._plan.groups.get(nodeid, nodeid)
        return f"{group} {nodeid.partition('::')[0]}" if self._apart and group == _API_SERVER else group
