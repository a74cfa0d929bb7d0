"""Export of the rows of a store to a Parquet file."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from millpond.errors import StateError
from millpond.snapshots.store_columns import StoreColumns

from .sources import Row

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ("Exported", "export_parquet", "require_pyarrow")

_BATCH = 20_000


class Exported(NamedTuple):
    """The counts of an export."""

    rows: int
    undecoded_keys: int
    undecoded_values: int
    bytes: int


def require_pyarrow() -> None:
    """Check that Parquet can be written.

    Raises:
        StateError: pyarrow is not installed.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError as error:
        raise StateError(
            "this installation of millpond cannot write Parquet because 'pyarrow' is missing: pip install "
            "'millpond[spark]', or only pyarrow."
        ) from error


def export_parquet(
    rows: Iterable[Row], columns: StoreColumns, path: Path, on_rows: Callable[[int], object] = lambda _count: None
) -> Exported:
    """Write rows to a file. The file gets its name when it is complete; an existing file is replaced.

    Args:
        rows: keys in store format, and values.
        columns: the columns of the store.
        path: the path of the file; its directory must exist.
        on_rows: called with the number of rows after each batch.

    Raises:
        StateError: the file cannot be written, or a row does not have the layout of the store.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".partial", dir=path.parent)
        os.close(handle)
        with pq.ParquetWriter(temporary, columns.schema, compression="zstd") as writer:
            exported = _write(rows, columns, writer, on_rows)
        Path(temporary).chmod(0o644)
        size = Path(temporary).stat().st_size
        Path(temporary).replace(path)
        temporary = ""
        return exported._replace(bytes=size)
    except struct.error as error:
        raise StateError(
            f"a row does not have the layout of the store ({error}): use the version of the application that wrote it."
        ) from error
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise StateError(
            f"cannot write '{path}' ({reason}): check the directory, its permissions and its free space."
        ) from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _write(
    rows: Iterable[Row], columns: StoreColumns, writer: pq.ParquetWriter, on_rows: Callable[[int], object]
) -> Exported:
    total = keys = values = 0
    remaining = iter(rows)
    while some := list(islice(remaining, _BATCH)):
        batch = columns.batch(some)
        writer.write_batch(batch.columns)
        total += len(some)
        keys += batch.undecoded_keys
        values += batch.undecoded_values
        on_rows(len(some))
    return Exported(total, keys, values, 0)
