"""Serdes that are pickled for executors."""

from __future__ import annotations

import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millpond import serdes
from millpond.errors import SnapshotError
from millpond.serdes import Serde
from tests.spark.accounts import Owned, Owner

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from millpond.snapshots.arrow_types import column_of_serde
from millpond_spark.packed_serdes import pack, unpack

HOUR = timedelta(hours=1)
WINDOWED = serdes.Windowed("k", 0, 3_600_000)


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (serdes.String, "a"),
        (serdes.Long, 2**62),
        (serdes.UUID, None),
        (serdes.Json(Owned), Owned(1, ["x"], Owner("n"), seen=datetime(2026, 1, 1))),
        (serdes.MsgPack(list[int]), [1, 2]),
        (serdes.Json(), {"a": [1]}),
        (serdes.TimeWindowedSerde(serdes.String, HOUR), WINDOWED),
        (serdes.TimeWindowedSerde(serdes.Json(Owner), HOUR), serdes.Windowed(Owner("n"), 0, 3_600_000)),
        (serdes.SessionWindowedSerde(serdes.String), WINDOWED),
        (serdes.ChangeSerde(serdes.Int), (1, 2)),
        (Serde("Own", str.encode, lambda data: data.decode().upper()), "A"),
    ],
    ids=str,
)
def test_a_serde_arrives_as_it_was(serde: Serde[Any], value: Any) -> None:
    """The unpacked serde decodes the same, and has the same column."""
    packed = pack(serde, serde)
    assert packed is not None
    for arrived in unpack(packed, "store"):
        assert arrived.name == serde.name
        assert column_of_serde(arrived).type == column_of_serde(serde).type
        if value is not None:
            assert arrived.deserialize(serde.serialize(value)) == value


def test_a_serde_with_a_connection_cannot_be_sent() -> None:
    """The store's table keeps bytes."""
    lock = threading.Lock()
    assert pack(serdes.String, Serde("Locked", str.encode, lambda data: (lock, data.decode())[1])) is None


def test_a_module_that_executors_lack_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example the application's module, when it is not installed for executors."""
    (tmp_path / "only_here.py").write_text("import msgspec\nclass Thing(msgspec.Struct):\n    a: int\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # type: ignore[import-not-found]

    packed = pack(serdes.String, serdes.Json(only_here.Thing))
    assert packed is not None
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "only_here")
    with pytest.raises(SnapshotError, match=r"store 'things' .*only_here"):
        unpack(packed, "things")
