"""Errors of the serdes while a program reads a store of its worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

import millpond as mp
from millpond.errors import BrokerError
from millpond.queries.catalog import QueryableKind, StoreInfo
from millpond.queries.failures import FailureReason, QueryFailed
from millpond.runtime.worker.embedding import local_stores
from millpond.runtime.worker.embedding.local_stores import ReadOnlyKeyValueStore
from millpond.serdes.fail_fast import fails_fast


class Rows(local_stores._Reading):
    """A store with one row."""

    row = b"{"

    def rows(self, **_bounds: Any) -> Any:
        return iter([(b"k", b"", self.row)])


def store(value: mp.Serde[Any], key: mp.Serde[Any] = mp.String) -> ReadOnlyKeyValueStore[Any, Any]:
    info = StoreInfo(name="rows", kind=QueryableKind.KEY_VALUE, partitions=1, key=key, value=value, timestamped=False)
    return ReadOnlyKeyValueStore(Rows(cast("Any", None), info, None, True, False))


def unreachable(_given: Any) -> Any:
    assert fails_fast(), "a program that reads a store does not wait for a registry"
    raise BrokerError("the schema registry at http://localhost:1 cannot be used now: no answer")


DOWN: mp.Serde[Any] = mp.Serde("Avro", unreachable, unreachable)


class Newer(mp.Struct):
    """A type with a required field that the row lacks."""

    x: int


READS: list[Callable[[ReadOnlyKeyValueStore[Any, Any]], Any]] = [
    lambda rows: rows.get("k"),
    lambda rows: list(rows.all()),
]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("rows", [store(DOWN), store(mp.Bytes, DOWN)], ids=["value", "key"])
def test_registry_that_does_not_answer_fails_a_read_that_may_be_tried_again(rows: Any, read: Any) -> None:
    """It may succeed later."""
    with pytest.raises(QueryFailed, match=r"cannot read store 'rows': the schema registry at .* no answer") as raised:
        read(rows)
    assert (raised.value.reason, raised.value.passing) == (FailureReason.REGISTRY_UNAVAILABLE, True)


@pytest.mark.parametrize("read", READS)
def test_row_that_cannot_be_decoded_fails_a_read(read: Any) -> None:
    """Another attempt gives the same error."""
    with pytest.raises(QueryFailed, match=r"cannot read store 'rows': Json\(dict\) cannot decode") as raised:
        read(store(mp.Json(dict)))
    assert (raised.value.reason, raised.value.passing) == (FailureReason.STORE_EXCEPTION, False)


@pytest.mark.parametrize("read", READS)
def test_row_of_another_type_fails_a_read_with_the_cure(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The field that the type requires needs a default."""
    monkeypatch.setattr(Rows, "row", b"{}")
    older = "because it was written as another type: give the field `x` a default, with which old rows are read"
    with pytest.raises(QueryFailed, match=r"cannot read store 'rows': Json\(Newer\) cannot decode") as raised:
        read(store(mp.Json(Newer)))
    assert older in str(raised.value)
