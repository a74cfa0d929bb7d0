"""The I/O of a task's stores: opened, restored, promoted, demoted, and closed."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.runtime.offsets.completeness import Completeness
from millpond.runtime.processing.environment import Environment
from millpond.runtime.restoring.changelog_reader import ChangelogReader
from millpond.runtime.restoring.snapshot_restorer import SnapshotRestorer

from .changelog_copies import ChangelogCopies
from .events import ChangelogReplaced, Event, SnapshotAwaited, StoresOpened
from .held_tasks import HeldTask
from .instructions import OpenStores
from .task_stores import TaskStores

__all__ = ("StoreOperations",)


class StoreOperations:
    """Opens and closes the stores of tasks, and has their changelogs read.

    Args:
        stores: the state of all tasks.
        reader: fills stores from changelogs.
        copies: reads the changelogs.
        environment: of the worker.
        topology: the hash of the worker's topology.
    """

    def __init__(
        self,
        stores: TaskStores,
        reader: ChangelogReader,
        copies: ChangelogCopies,
        environment: Environment,
        topology: str,
    ) -> None:
        self._stores = stores
        self._reader = reader
        self._copies = copies
        self._environment = environment
        self._topology = topology

    def open(self, held: HeldTask, how: OpenStores, snapshots: SnapshotRestorer | None) -> Event:
        """Open the stores of a task, and start to restore them up to the ends that the last lookup found.

        Args:
            held: the task.
            how: the instruction.
            snapshots: restores stores from snapshots; None where the application has none.

        Returns:
            What became of it.

        Raises:
            MillpondError: the stores cannot be opened.
        """
        where = held.found
        assert where is not None
        if how.following and not where.committed and self._stores.doubtful(held.id, where):
            return ChangelogReplaced(held.id)
        if snapshots is not None and how.snapshot:
            wanted = self._stores.wanted
            if snapshots.awaits(held.id, lambda: wanted(held.id, where), how.together):
                return SnapshotAwaited(held.id)
        if not how.following:
            self._take_position(held)
        try:
            self._stores.open(held, where, topology=self._topology, following=how.following)
        except BaseException:
            self._stores.close(held, for_good=False)
            raise
        for changelog in held.changelogs:
            self._reader.add(changelog)
        self._copies.read(changelog for changelog in held.changelogs if how.following or not changelog.done)
        return StoresOpened(held.id, held.restored)

    def _take_position(self, held: HeldTask) -> None:
        where = held.found
        assert where is not None
        held.digest = self._stores.digest(where, held.id)
        held.committed, held.where = where.committed, where

    def become_active(self, held: HeldTask) -> None:
        """Restore the open stores of a copy to the ends that the last look-up found."""
        where = held.found
        assert where is not None
        self._take_position(held)
        for changelog in held.changelogs:
            self._reader.promote(changelog, self._stores.end_of(changelog.source, where))
            if changelog.bounded and not changelog.done:
                # What lay beyond the bound was read and left out: read it again.
                self._copies.unassign([changelog])
                self._copies.read([changelog])
        self._copies.unassign(changelog for changelog in held.changelogs if changelog.done)

    def become_copy(self, held: HeldTask) -> Event:
        """Forget what is not committed, and follow the changelogs from there."""
        ran = held.task is not None
        held.end_task()
        held.committed, held.where = {}, None
        for changelog in held.changelogs:
            store = changelog.store
            store.revert()
            offset = changelog.backend.offset(store.name, store.partition)
            if offset is not None:
                changelog.position = max(offset, 0)
            if ran:
                known = changelog.backend.provenance(store.name, store.partition)
                changelog.completeness = Completeness(self._environment.now_ms() if known is None else known.as_of_ms)
                changelog.whole = False
            changelog.end = max(changelog.end, changelog.position)
            changelog.seen_end = -1
            self._reader.demote(changelog)
        self._copies.unassign(held.changelogs)
        self._copies.read(held.changelogs)
        return StoresOpened(held.id, held.restored)

    def stop_restoring(self, held_tasks: Iterable[HeldTask]) -> None:
        """Read the changelogs of tasks no more, since all is restored."""
        for held in held_tasks:
            for changelog in held.changelogs:
                self._reader.remove(changelog)
            self._copies.unassign(held.changelogs)

    def close(self, held: HeldTask, *, for_good: bool) -> None:
        """End the task if it is active, and close its stores.

        Args:
            held: the task.
            for_good: whether the worker holds the task no more: what is only in memory goes, too.
        """
        self.stop_restoring([held])
        # Stores are closed rather than reverted: the one may have to read a file that is broken, the other not.
        self._stores.close(held, for_good=for_good)
        held.end_task()
        held.where = None
