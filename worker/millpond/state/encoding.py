"""Staged entries become changelog records and rows, column by column.

This runs once per changed key and commit, so it is done with C loops over whole columns; what does not fit them
(deletions, a value that cannot be encoded) takes the careful way, entry by entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import add, itemgetter
from typing import Any

from millpond.serdes import Serde
from millpond.state.backend import Rows
from millpond.state.formats import pack_timestamp

__all__ = ("Produced", "encode_entries")

Produced = tuple[Any, ...]
"""A changelog record, in the order of `Producer.produce`'s positional arguments: topic, value, key, partition, None,
None, timestamp in ms[, headers]."""

Entry = tuple[Any, int]

_value, _timestamp = itemgetter(0), itemgetter(1)
_NOTHING = type(None)


def encode_entries(
    raw_keys: Sequence[bytes],
    found: Sequence[Entry],
    *,
    serde: Serde[Any],
    timestamped: bool,
    topic: str | None,
    partition: int,
    prefix: bytes,
    suffix: bytes,
    out: list[Produced],
    rows: Rows,
) -> None:
    """Append one changelog record (when `topic` is given) and one row for each key.

    Args:
        raw_keys: the keys.
        found: (value, timestamp) of each; the value is an object when the serde is immutable, else bytes.
        serde: of the values.
        timestamped: whether rows begin with the timestamp.
        topic: the changelog.
        partition: of the changelog.
        prefix: put before the key in rows.
        suffix: put after the key in both.
        out: takes the changelog records.
        rows: takes the rows.

    Raises:
        SerializationError: a value cannot be encoded.
    """
    values = list(map(_value, found))
    timestamps = list(map(_timestamp, found))
    keys = [raw_key + suffix for raw_key in raw_keys] if suffix else raw_keys
    data: list[Any]
    stored: list[Any]
    if _NOTHING in set(map(type, values)):
        encode = _careful(serde)
        data = [None if value is None else encode(value) for value in values]
        stored = [
            None if value is None else pack_timestamp(timestamp) + value if timestamped else value
            for value, timestamp in zip(data, timestamps, strict=True)
        ]
    else:
        if serde.immutable:
            try:
                data = list(map(serde.serialize, values))
            except Exception:
                data = list(map(_careful(serde), values))
        else:
            data = values
        stored = list(map(add, map(pack_timestamp, timestamps), data)) if timestamped else data
    if topic is not None:
        out += zip(repeat(topic), data, keys, repeat(partition), _nones, _nones, timestamps)
    rows += zip(map(prefix.__add__, keys), stored, strict=True)


_nones = repeat(None)


def _careful(serde: Serde[Any]) -> Any:
    if not serde.immutable:
        return lambda data: data

    def encode(value: Any) -> bytes:
        try:
            return serde.serialize(value)
        except Exception as error:
            raise serde.encoding_failed(value, error) from error

    return encode
