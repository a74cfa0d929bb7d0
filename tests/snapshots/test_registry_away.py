"""Rows of stores are shown and exported while a schema registry does not answer."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow")

import millpond as mp
from millpond.errors import BrokerError
from millpond.inspection.decoding import LoggedStore, RowDecoder
from millpond.serdes.fail_fast import fails_fast
from millpond.snapshots.layouts import layout_of
from millpond.snapshots.store_columns import columns_of

KEY = bytes(4) + b"k"
CALLS: list[bool] = []


def unreachable(_given: Any) -> Any:
    CALLS.append(fails_fast())
    raise BrokerError("the schema registry at http://r cannot be used now: no answer.")


AVRO: mp.Serde[Any] = mp.Serde("Avro", unreachable, unreachable)
STORE = mp.KeyValueStoreBuilder(name="rows", key=mp.String, value=AVRO, timestamped=False)


def test_rows_are_shown_as_hexadecimal_text_and_wait_for_nothing() -> None:
    """The reason is told."""
    CALLS.clear()
    decoder = RowDecoder(layout_of(STORE), LoggedStore(STORE, "rows-changelog", layout_of(STORE)))
    assert decoder.no_registry == ""
    assert [decoder.row(KEY, b"\0\1") for _ in range(3)] == [{"key": "k", "value": "0001"}] * 3
    assert decoder.no_registry == "the schema registry at http://r cannot be used now: no answer."
    assert CALLS == [True] * 3


def test_export_without_a_registry_fails_at_its_first_row() -> None:
    """Else a table would have nulls in place of values that are right."""
    CALLS.clear()
    with pytest.raises(BrokerError, match="no answer"):
        columns_of(STORE, "rows-changelog").batch([(KEY, b"\0\1")] * 3)
    assert len(CALLS) == 1
