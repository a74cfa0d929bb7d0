"""Encode staged entries as changelog records and rows, column by column.

This runs once per changed key and commit, so it uses C loops over whole columns; batches with deletions are encoded
entry by entry. Values are encoded when they are put, so that an error belongs to the record that puts them. Only values
that can certainly be encoded are left to the flush.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import add
from typing import Any

from millpond.state.backend import Row, Rows
from millpond.state.formats import pack_timestamp

__all__ = ("Produced", "encode_entries", "encode_few", "encode_missing")

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


def encode_few(  # noqa: PLR0913  # the columns, once per flush
    entries: Iterable[tuple[bytes, bytes | None, Any, int]],
    encode: Callable[[Any], bytes],
    *,
    timestamped: bool,
    topic: str | None,
    partition: int,
    prefix: bytes,
    suffix: bytes,
    out: list[Produced],
    rows: list[Row],
) -> None:
    """Do what `encode_missing` and `encode_entries` do, for windows with so few keys that columns cost more than rows.

    Args:
        entries: raw key, encoded value (None if it is not encoded yet), value (None for a deletion) and timestamp.
        encode: encodes a value.
        timestamped: see `encode_entries`, as for the others.
        topic: …
        partition: …
        prefix: …
        suffix: …
        out: …
        rows: …
    """
    for raw_key, data, value, timestamp in entries:
        if data is None and value is not None:
            data = encode(value)
        key = raw_key + suffix
        if topic is not None:
            out.append((topic, data, key, partition, None, None, timestamp))
        rows.append((prefix + key, pack_timestamp(timestamp) + data if timestamped and data is not None else data))


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
