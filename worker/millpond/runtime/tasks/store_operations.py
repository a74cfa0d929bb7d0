"""The I/O of a task's stores: open, restore, promote, demote, and close them."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.runtime.all_steps import take_all
from millpond.runtime.offsets.completeness import Completeness
from millpond.runtime.processing.environment import Environment
from millpond.runtime.restoring.changelog_reader import ChangelogReader
from millpond.runtime.restoring.snapshot_restorer import SnapshotRestorer

from .changelog_copies import ChangelogCopies
from .events import ChangelogReplaced, Event, SnapshotAwaited, StoresOpened
from .held_tasks import HeldTask
from .instructions import OpenStores
from .start_positions import StartPositions
from .task_stores import TaskStores

__all__ = ("StoreOperations",)


class StoreOperations:
    """The operations that open and close the stores of tasks, and start to read their changelogs.

    Args:
        stores: the state of all tasks.
        reader: restores stores from changelogs.
        copies: assigns changelogs to their consumer.
        environment: the environment of the worker.
        topology: the hash of the worker's topology.
        positions: the start positions of inputs.
    """

    def __init__(  # noqa: PLR0913 - the parts that it connects
        self,
        stores: TaskStores,
        reader: ChangelogReader,
        copies: ChangelogCopies,
        environment: Environment,
        topology: str,
        positions: StartPositions,
    ) -> None:
        self._stores = stores
        self._reader = reader
        self._copies = copies
        self._environment = environment
        self._topology = topology
        self._positions = positions

    def open(self, held: HeldTask, how: OpenStores, snapshots: SnapshotRestorer | None) -> Event:
        """Open the stores of a task, and start to restore them to the ends that the last lookup found.

        Args:
            held: the task.
            how: the instruction.
            snapshots: restores stores from snapshots; None without a location of snapshots.

        Returns:
            `StoresOpened`, `SnapshotAwaited` or `ChangelogReplaced`.

        Raises:
            TopicError: the committed offsets are not in the present topics of the inputs.
            MillpondError: the stores cannot be opened.
        """
        lookup = held.last_lookup
        assert lookup is not None
        if how.following and not lookup.committed and self._stores.changelog_replaced(held.id, lookup):
            return ChangelogReplaced(held.id)
        if snapshots is not None and how.snapshot:
            wanted = self._stores.wanted
            if snapshots.awaits(held.id, lambda: wanted(held.id, lookup), how.together):
                return SnapshotAwaited(held.id)
        if not how.following:
            self._take_position(held)
        try:
            self._stores.open(held, lookup, topology=self._topology, following=how.following)
        except BaseException:
            self._stores.close(held, for_good=False)
            raise
        for changelog in held.changelogs:
            self._reader.add(changelog)
        self._copies.read(changelog for changelog in held.changelogs if how.following or not changelog.done)
        return StoresOpened(held.id, held.restored)

    def _take_position(self, held: HeldTask) -> None:
        lookup = held.last_lookup
        assert lookup is not None
        self._positions.check(lookup)
        held.topics = lookup.inputs
        held.digest = self._stores.digest(lookup, held.id)
        held.committed, held.confirmed, held.activated_with = lookup.committed, False, lookup

    def become_active(self, held: HeldTask) -> None:
        """Promote a copy: restore its open stores to the ends that the last lookup found.

        Raises:
            TopicError: the committed offsets are not in the present topics of the inputs.
        """
        lookup = held.last_lookup
        assert lookup is not None
        self._take_position(held)
        self._stores.check_windows(held, lookup)
        for changelog in held.changelogs:
            self._reader.promote(changelog, self._stores.end_of(changelog.source, lookup))
            if changelog.bounded and not changelog.done:
                # Records beyond the former bound were read and skipped, so they are read again.
                self._copies.unassign([changelog])
                self._copies.read([changelog])
        self._copies.unassign(changelog for changelog in held.changelogs if changelog.done)

    def become_copy(self, held: HeldTask) -> Event:
        """Demote a task: drop its uncommitted changes, and follow the changelogs from the last commit."""
        ran = held.task is not None
        held.end_task()
        held.committed, held.activated_with = {}, None
        for store in held.stores.values():
            store.detach()
        for changelog in held.changelogs:
            store = changelog.store
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
        """Stop reading the changelogs of tasks."""
        for held in held_tasks:
            for changelog in held.changelogs:
                self._reader.remove(changelog)
            self._copies.unassign(held.changelogs)

    def close(self, held: HeldTask, *, for_good: bool) -> None:
        """Close the task if it is active, and its stores, whichever of them fail.

        Args:
            held: the task.
            for_good: whether the worker no longer holds the task, so that rows in memory are dropped, too.
        """
        held.activated_with = None
        take_all(
            (
                lambda: self.stop_restoring([held]),
                # Stores are not reverted before they are closed: that may have to read a corrupted file.
                lambda: self._stores.close(held, for_good=for_good),
                held.end_task,
            )
        )
