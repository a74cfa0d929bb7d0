"""The rows in the state directory of a stopped worker, opened read-only."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

from rocksdict import AccessType, Rdict, ReadOptions

from millpond.errors import MillpondError, StateDirectoryLocked, StateError
from millpond.forks import opened_here
from millpond.state.formats import partition_prefix
from millpond.state.rocksdb.checkpoints import read_checkpoints
from millpond.state.rocksdb.database import STORE
from millpond.state.rocksdb.options import StateFileOptions, Tuning
from millpond.state.rocksdb.state_file import FORMAT

from .sources import HeldStore, NotReadable, Row, StoreRows

__all__ = ("StateDirectory", "open_directories")

_CACHE_BYTES = 32 << 20


class StateDirectory:
    """The state directory of one stopped worker, open until `close`.

    RocksDB leaves files even in a database that it opens read-only, so it opens a directory of links to the files.
    """

    def __init__(self, path: Path) -> None:
        """Open the database.

        Args:
            path: `<state.dir>/<application.id>/<worker>`.

        Raises:
            StateDirectoryLocked: the worker of the directory is running.
            StateError: the path is not a worker's state directory, or cannot be read.
        """
        self.path = path
        self._closing = ExitStack()
        try:
            self._check()
            links = Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="millpond-state-")), "db")
            _link(path / "db", links)
            tuning = Tuning(StateFileOptions(cache_bytes=_CACHE_BYTES, write_buffer_bytes=_CACHE_BYTES // 4))
            families = {name: tuning.family() for name in Rdict.list_cf(str(links), tuning.database())}
            self._stores = {name.removeprefix(STORE) for name in families if name.startswith(STORE)}
            self._database = Rdict(
                str(links), tuning.database(), column_families=families, access_type=AccessType.read_only()
            )
            self._closing.callback(self._database.close)
            self._checkpoints = read_checkpoints(self._database)
        except Exception as error:
            self.close()
            if isinstance(error, MillpondError):
                raise
            raise StateError(
                f"cannot read the state directory '{path}' ({_reason(error)}): start its worker once, which "
                "repairs the database if possible"
            ) from error

    @property
    def name(self) -> str:
        """The name of the worker."""
        return self.path.name

    def _check(self) -> None:
        try:
            written = (self.path / "format").read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            raise StateError(
                f"'{self.path}' is not a worker's state directory ({error.strerror}): give <state.dir> or "
                "<state.dir>/<application.id>/<worker>"
            ) from error
        if written != FORMAT:
            raise StateError(
                f"the state directory '{self.path}' has the format '{written}', but this version of millpond reads "
                f"'{FORMAT}': use the version that wrote it"
            )
        self._closing.enter_context(_locked(self.path))

    def held(self) -> list[HeldStore]:
        """See `Source`."""
        return [
            HeldStore(store, partition, "", None if (store, partition) in self._checkpoints.unfinished else offset)
            for (store, partition), (offset, _) in sorted(self._checkpoints.written.items())
        ]

    @contextmanager
    def open(self, store: str, partition: int) -> Iterator[StoreRows]:
        """See `Source`."""
        key = (store, partition)
        offset, metadata = self._checkpoints.written.get(key, (None, b""))
        if offset is None or key in self._checkpoints.unfinished or store not in self._stores:
            raise NotReadable("the directory has no valid rows: restoring had not started, or was interrupted")
        topic_id, as_of_ms, _ = self._checkpoints.provenances.get(key) or ("", None, False)
        rows = self._rows(store, partition)
        try:
            yield StoreRows(offset, metadata, topic_id, as_of_ms, rows)
        finally:
            del rows

    def _rows(self, store: str, partition: int) -> Iterator[Row]:
        options = ReadOptions()
        options.set_iterate_upper_bound(partition_prefix(partition + 1))
        try:
            iterator = self._database.get_column_family(STORE + store).iter(options)
            iterator.seek(partition_prefix(partition))
            while iterator.valid():
                yield iterator.key(), iterator.value()
                iterator.next()
            iterator.status()
        except Exception as error:
            raise NotReadable(f"the database in '{self.path}' is damaged: {_reason(error)}") from error

    def close(self) -> None:
        """Close the database and release the directory's lock. Idempotent."""
        self._closing.close()


def open_directories(path: Path, application: str) -> list[StateDirectory]:
    """Open a worker's directory, or those of all workers of an application below `state.dir`.

    Raises:
        StateError: no directory exists, or one cannot be read or has a running worker.
    """
    if (path / "format").exists():
        return [StateDirectory(path)]
    below = path / application
    try:
        found = sorted(each.parent for each in below.glob("*/format")) if path.is_dir() else []
    except OSError as error:
        raise StateError(
            f"cannot read the state directory '{path}' ({error.strerror}): check its permissions"
        ) from error
    if not found:
        raise StateError(
            f"'{path}' has no state of '{application}': give <state.dir> or <state.dir>/<application.id>/<worker>"
        )
    opened: list[StateDirectory] = []
    try:
        opened.extend(map(StateDirectory, found))
    except BaseException:
        for each in opened:
            each.close()
        raise
    return opened


def _link(source: Path, target: Path) -> None:
    """Create a directory with links to the files of another one. The file that rocksdict rewrites is copied instead."""
    target.mkdir()
    for each in source.iterdir():
        if each.name == "LOCK" or each.name.startswith("LOG"):
            continue
        if each.suffix == ".json":
            shutil.copyfile(each, target / each.name)
        else:
            (target / each.name).symlink_to(each.absolute())


def _locked(path: Path) -> AbstractContextManager[object]:
    """Keep the worker from starting while its directory is read; a missing lock file is not created.

    Raises:
        StateDirectoryLocked: the worker is running.
    """
    try:
        file = opened_here(lambda: (path / "lock").open("rb"))
    except FileNotFoundError:
        return nullcontext()
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise StateDirectoryLocked(f"the worker of '{path}' is running: stop it, or read from it with --url") from None
    return file


def _reason(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
