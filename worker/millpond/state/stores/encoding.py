"""Encode staged entries as changelog records and rows, column by column.

This runs once per changed key and commit, so it uses C loops over whole columns; batches with deletions are encoded
entry by entry. Values are encoded when they are put, so that an error belongs to the record that puts them. Only values
that can certainly be encoded are left to the flush.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import add
from typing import Any

from millpond.state.backend import Rows
from millpond.state.formats import pack_timestamp

__all__ = ("Produced", "encode_entries", "encode_missing")

Produced = tuple[Any, ...]
"""A changelog record, in the order of `Producer.produce`'s positional arguments: topic, value, key, partition, None,
None, timestamp in ms[, headers]."""

_NOTHING = type(None)


def encode_entries(  # noqa: PLR0913  # the columns, once per flush
    raw_keys: Sequence[bytes],
    data: Sequence[bytes | None],
    timestamps: Sequence[int],
    *,
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
        data: the encoded value of each key; None for a deletion.
        timestamps: the timestamp of each key, in ms.
        timestamped: whether the values of rows begin with the timestamp.
        topic: the changelog topic; None without a changelog.
        partition: the partition of the changelog.
        prefix: the prefix of row keys.
        suffix: the suffix of row keys and of changelog keys.
        out: the list that changelog records are appended to.
        rows: the list that rows are appended to.
    """
    keys = [raw_key + suffix for raw_key in raw_keys] if suffix else raw_keys
    stored: Sequence[bytes | None]
    if not timestamped:
        stored = data
    elif _NOTHING in set(map(type, data)):
        stored = [
            None if value is None else pack_timestamp(timestamp) + value
            for value, timestamp in zip(data, timestamps, strict=True)
        ]
    else:
        stored = list(map(add, map(pack_timestamp, timestamps), data))
    if topic is not None:
        out += zip(repeat(topic), data, keys, repeat(partition), _nones, _nones, timestamps)
    rows += zip(map(prefix.__add__, keys), stored, strict=True)


def encode_missing(
    data: list[bytes | None], values: Sequence[Any], encode: Callable[[Any], bytes]
) -> list[bytes | None]:
    """Return the encoded values; encode those that were not encoded at their put (see `stage_count`).

    Args:
        data: the encoded value of each key; None for a deletion or a missing value.
        values: the value of each, None for a deletion.
        encode: encodes a missing value.
    """
    kinds = set(map(type, data))
    if _NOTHING not in kinds:
        return data
    if len(kinds) == 1 and _NOTHING not in set(map(type, values)):
        return list(map(encode, values))
    return [
        encode(value) if raw is None and value is not None else raw for raw, value in zip(data, values, strict=True)
    ]


_nones = repeat(None)
