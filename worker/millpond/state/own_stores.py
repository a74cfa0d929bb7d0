"""Stores of one's own: objects of the user in memory, and the rows from which they can be made again.

    log() ──> dirty ──flush()──> rows and changelog records ──commit──> backend

The backend has the committed rows, as of every other store. The user's objects have those and the changes since. When a
task goes back to its last commit, the objects are cleared and made again from the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from millpond.calls import checked_class
from millpond.checks import kind_of
from millpond.errors import ConfigError, MillpondError, SerializationError, StateError, TopologyError
from millpond.serdes import Bytes, Serde
from millpond.state.backend import Backend, Rows
from millpond.state.formats import (
    PARTITION_LENGTH,
    TIMESTAMP_LENGTH,
    partition_prefix,
    unpack_timestamp,
)
from millpond.state.rows import timestamped_key_value_rows
from millpond.texts import said

from .builders import StoreBuilder
from .store_readers import StoreReader
from .stores.encoding import Produced, encode_entries
from .stores.staged_store import ChangelogRecord, StagedStore, StoreContext

__all__ = ("CustomStore", "StateStore", "StateStoreBuilder")


class StateStore(ABC):
    """A store of your own, such as an index, a sketch or a priority queue: objects in memory, restored by a changelog.

    A subclass has any methods for processors, and logs each change of its state as a key and a value in bytes. The last
    value of each key has to be enough to make the state again. `mp.StateStoreBuilder` puts it into a topology::

        class Seen(mp.StateStore):
            def __init__(self) -> None:
                self.words: set[str] = set()

            def add(self, word: str) -> bool:
                if word in self.words:
                    return False
                self.log(word.encode(), b"")
                self.words.add(word)
                return True

            def restore(self, key: bytes, value: bytes | None, timestamp: int) -> None:
                if value is None:
                    self.words.discard(key.decode())
                else:
                    self.words.add(key.decode())

            def clear(self) -> None:
                self.words.clear()

    Log a change before you make it: if the bytes cannot be logged, the state stays as it is.

    What it logs is committed with the offsets and the results of the task. Nothing that it keeps elsewhere is: not in
    files, not in other systems, and not in attributes that `clear` and `restore` do not set.
    """

    __log: CustomStore | None = None

    @property
    def name(self) -> str:
        """The store's name."""
        return self.__owner("name").name

    @property
    def partition(self) -> int:
        """The task's partition."""
        return self.__owner("partition").partition

    @property
    def is_open(self) -> bool:
        """Whether the store belongs to a task that is not closed."""
        return self.__log is not None and self.__log.is_open

    def log(self, key: bytes, value: bytes | None, timestamp: int | None = None) -> None:
        """Log a change of the state; the last one of each key is what `restore` gets.

        Args:
            key: the key.
            value: the value; None deletes the key.
            timestamp: the changelog record's timestamp, in epoch ms; None is that of the current record.

        Raises:
            SerializationError: the key or the value is not of bytes.
            StateError: the store is closed, or is being restored.
        """
        self.__owner("log()").log(key, value, timestamp)

    def init(self) -> None:  # noqa: B027  # most stores need none
        """Prepare the store; called once, before the first `restore`."""

    @abstractmethod
    def restore(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Apply a change that was logged.

        Called for each key when a task starts, and when it goes back to its last commit; then after `clear`.

        Args:
            key: the key.
            value: the value; None for a key that was deleted.
            timestamp: the changelog record's timestamp, in epoch ms.
        """

    @abstractmethod
    def clear(self) -> None:
        """Forget the whole state; do not log it. The last commit is restored after it."""

    def flush(self) -> None:  # noqa: B027  # most stores need none
        """Log changes that are not logged yet; called before each commit, perhaps several times."""

    def close(self) -> None:  # noqa: B027  # most stores need none
        """Release what the store holds; called once, when the task ends. Do not log anything."""

    def __owner(self, what: str) -> CustomStore:
        if self.__log is None:
            raise StateError(
                f"{type(self).__name__}.{what} was used before the store belonged to a task: use init() in place of "
                "__init__()"
            )
        return self.__log

    def _belong_to(self, owner: CustomStore) -> None:
        if self.is_open:
            raise ConfigError(
                f"store '{owner.name}': supplier= made the same {type(self).__name__} for two tasks, which would mix "
                "their states; make a new one each time, for example by giving the class"
            )
        self.__log = owner


class CustomStore(StagedStore[bytes, bytes]):
    """The rows of a `StateStore`, between it and the runtime."""

    backend_reads: int

    def __init__(
        self, name: str, partition: int, backend: Backend, user: StateStore, *, changelog_topic: str | None = None
    ) -> None:
        super().__init__(name, partition, backend, Bytes, Bytes, caching=False, changelog_topic=changelog_topic)
        self._user = user
        self._dirty: dict[bytes, tuple[bytes | None, int]] = {}  # in the order of the last changes
        self._low, self._high = partition_prefix(partition), partition_prefix(partition + 1)
        self._started = False
        self._loading = False
        self._readers = 0

    @property
    def of_user(self) -> StateStore:
        """The user's store, for processors."""
        return self._user

    @property
    def of_reader(self) -> Any:
        """The user's store for processors that may only read it, because a topic fills it; see `StoreReader`."""
        return StoreReader(self)

    def read(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method of the user's store, which must not log; if it is a generator, neither while it is read."""
        self._readers += 1
        try:
            found = method(*arguments, **options)
        finally:
            self._readers -= 1
        return self._reading(found) if isinstance(found, Generator) else found

    def _reading(self, rows: Generator[Any, None, Any]) -> Iterator[Any]:
        while True:
            self._readers += 1
            try:
                row = next(rows)
            except StopIteration:
                return
            finally:
                self._readers -= 1
            yield row

    def attach(self, context: StoreContext) -> None:
        """Attach the store to its task, and make the user's state from the committed rows."""
        super().attach(context)
        if not self._started:
            self._started = True
            self._user._belong_to(self)  # noqa: SLF001  # the class is made for this one
            self._call("init")
        self._load()

    def log(self, key: Any, value: Any, timestamp: int | None) -> None:
        """Stage a change; see `StateStore.log`."""
        self._check_open()
        if self._loading:
            raise StateError(
                f"store '{self.name}': log() was called by restore() or clear(), which only repeat what was logged"
            )
        if self._readers:
            raise TopologyError(
                f"store '{self.name}' cannot be changed here, because only the processor that fills it from its "
                "topic may change it; send a record to that topic instead."
            )
        if not isinstance(key, bytes) or not isinstance(value, bytes | None):
            wrong = f"a key of {kind_of(key)}" if not isinstance(key, bytes) else f"a value of {kind_of(value)}"
            raise SerializationError(f"store '{self.name}': log() takes bytes, and was given {wrong}; encode it.")
        self._dirty.pop(key, None)
        self._dirty[key] = (value, self._timestamp() if timestamp is None else timestamp)

    def _load(self) -> None:
        """Make the user's state again from the committed rows."""
        self._loading = True
        try:
            self._call("clear")
            restore = self._user.restore
            for key, row in self._backend.range(self.name, self._low, self._high):
                (timestamp,) = unpack_timestamp(row)
                try:
                    restore(key[PARTITION_LENGTH:], row[TIMESTAMP_LENGTH:], timestamp)
                except Exception as error:
                    raise self._failed("restore", error) from error
        finally:
            self._loading = False

    def _call(self, method: str) -> None:
        try:
            getattr(self._user, method)()
        except MillpondError:
            raise
        except Exception as error:
            raise self._failed(method, error) from error

    def _failed(self, method: str, error: Exception) -> StateError:
        return StateError(
            f"store '{self.name}': {type(self._user).__name__}.{method}() raised {type(error).__name__}: {said(error)}"
        )

    # For the runtime

    def flush(self, out: list[Produced]) -> None:
        """Turn staged changes into rows and changelog records (appended to `out`)."""
        if self._started:
            self._call("flush")
        if not self._dirty:
            return
        changes = list(self._dirty.values())
        self._entry_size.sample(islice(self._dirty.items(), 16))
        rows = self._flushed
        encode_entries(
            list(self._dirty),
            [value for value, _ in changes],
            [timestamp for _, timestamp in changes],
            timestamped=True,
            topic=self.changelog_topic,
            partition=self.partition,
            prefix=self._prefix,
            suffix=b"",
            out=out,
            rows=rows,
        )
        self._dirty.clear()
        self._row_size.sample(rows[-16:])

    def revert(self) -> None:
        """Discard staged, flushed and sealed changes, and go back to the backend's rows."""
        self._discard()
        if self._started and not self._closed:
            self._load()

    def detach(self) -> None:
        """Discard changes, and clear the user's state: a copy has only the rows, until it is attached again."""
        self._discard()
        if self._started and not self._closed:
            self._loading = True
            try:
                self._call("clear")
            finally:
                self._loading = False

    def _discard(self) -> None:
        self._dirty.clear()
        self._flushed = Rows()
        self._sealed = Rows()

    def restore(self, records: Iterable[ChangelogRecord]) -> Rows:
        """Return the backend rows of changelog records; the user's state is made from them when the task starts."""
        row = timestamped_key_value_rows(self.partition)
        return Rows(
            [row(key, value, timestamp, headers) for key, value, timestamp, headers in records if key is not None]
        )

    def close(self) -> None:
        """Close the user's store, and discard everything in memory; nothing is written."""
        if not self._closed and self._started:
            self._loading = True  # it logs nothing from now on
            self._call("close")
        super().close()
        self._dirty.clear()

    def _evict(self, count: int) -> None:
        """Evict nothing: the entries are the user's."""

    def _dirty_count(self) -> int:
        return len(self._dirty)

    def _entry_count(self) -> int:
        return len(self._dirty)

    def _some_entries(self) -> Iterable[object]:
        return self._dirty.items()


@checked_class
@dataclass(frozen=True, kw_only=True, eq=False)
class StateStoreBuilder(StoreBuilder[bytes, bytes]):
    """A store of your own: objects in memory, and a changelog from which they are made again; see `mp.StateStore`."""

    supplier: Callable[[], StateStore]
    """Makes the store of one task; usually the class. Each task needs its own object."""

    key: Serde[bytes] | None = Bytes
    """Leave it out: a store of your own logs bytes, as `value`."""

    value: Serde[bytes] | None = Bytes
    """Leave it out: a store of your own logs bytes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.supplier):
            raise ConfigError(
                f"store '{self.name}': supplier= needs a class of your own that extends mp.StateStore, or a function "
                f"that makes one, not {kind_of(self.supplier)}"
            )
        if self.key is not Bytes or self.value is not Bytes:
            raise ConfigError(f"store '{self.name}' logs bytes, and encodes them itself; leave out its serdes")
        if self.caching:
            raise ConfigError(f"store '{self.name}' is a store of your own, which has no cache; leave out caching=")

    def build(self, partition: int, backend: Backend, changelog_topic: str | None = None) -> CustomStore:
        """Return the store of one task; see `StoreBuilder.build`."""
        user = self.supplier()
        if not isinstance(user, StateStore):
            raise ConfigError(
                f"store '{self.name}': supplier= made {kind_of(user)}, which is no mp.StateStore; let its class "
                "extend it"
            )
        return CustomStore(self.name, partition, backend, user, changelog_topic=self._logged_to(changelog_topic))
