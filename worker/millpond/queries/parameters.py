"""Parsing of request parameters; unknown parameters and invalid values are rejected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from millpond.durations import Duration, DurationTooLong, milliseconds
from millpond.times import parse_epoch_ms

from .catalog import StoreInfo
from .failures import FailureReason, QueryFailed
from .messages import Read
from .rendering import Format, KeyFormat

__all__ = ("OPTIONS", "RequestOptions", "duration_ms", "position_of", "time_ms")

#: Parameters that every query for rows accepts.
OPTIONS = frozenset(
    {
        "key_format", "format", "timeout", "max_staleness", "max_lag", "position", "isolation", "partition", "reverse",
        "limit",
    }
)  # fmt: skip

_DEFAULT_TIMEOUT_MS = 10_000
_MAX_TIMEOUT_MS = 3_600_000
_MAX_LONG = 2**63 - 1


@dataclass(frozen=True)
class RequestOptions:
    """The options of one request."""

    key_format: KeyFormat
    format: Format
    read: Read
    """The request for rows, without its keys and times."""
    partition: int | None
    """The partition to read; None: the one of the key, or all."""

    @classmethod
    def of(cls, application: str, info: StoreInfo, query: Mapping[str, str], names: frozenset[str]) -> RequestOptions:
        """Parse the options of a request.

        Args:
            application: id of the application.
            info: the store.
            query: all parameters of the request.
            names: parameters that this kind of query accepts beside OPTIONS.

        Raises:
            QueryFailed: a parameter is unknown or has an invalid value.
        """
        unknown = sorted(set(query) - OPTIONS - names)
        if unknown:
            known = ", ".join(sorted(OPTIONS | names))
            raise bad_request(f"unknown parameter '{unknown[0]}'; this query accepts {known}")
        committed = _choice(query, "isolation", ("read_committed", "read_uncommitted")) == "read_committed"
        bound = position_of(query.get("position", ""))
        for name in bound:
            topic = name.rpartition("-")[0]
            if topic not in info.inputs:
                inputs = ", ".join(f"'{each}'" for each in sorted(info.inputs)) or "none"
                raise bad_request(
                    f"position: the tasks of store '{info.name}' do not read topic '{topic}'; they read {inputs}"
                )
        limit = _count(query, "limit")
        if limit == 0:
            raise bad_request("limit: must be at least 1")
        partition = _count(query, "partition")
        if partition is not None and partition >= info.partitions:
            raise QueryFailed(
                FailureReason.DOES_NOT_EXIST,
                f"store '{info.name}' has no partition {partition}; its partitions are 0 to {info.partitions - 1}.",
                (partition,),
            )
        timeout_ms = duration_ms("timeout", query["timeout"]) if "timeout" in query else _DEFAULT_TIMEOUT_MS
        read = Read(
            application=application,
            store=info.name,
            partitions=tuple(range(info.partitions)) if partition is None else (partition,),
            reverse=_choice(query, "reverse", ("false", "true")) == "true",
            limit=limit,
            # Global stores have no uncommitted rows.
            committed=committed or info.subtopology is None,
            max_staleness_ms=duration_ms("max_staleness", query["max_staleness"]) if "max_staleness" in query else None,
            max_lag=_count(query, "max_lag"),
            bound=bound,
            timeout_ms=min(timeout_ms, _MAX_TIMEOUT_MS),
        )
        return cls(
            KeyFormat(_choice(query, "key_format", tuple(KeyFormat))),
            Format(_choice(query, "format", tuple(Format))),
            read,
            partition,
        )

    def reading(self, **fields: Any) -> Read:
        """Return the request for rows with its keys and times."""
        return msgspec.structs.replace(self.read, **fields)


def bad_request(message: str) -> QueryFailed:
    """Return the failure of an invalid request."""
    return QueryFailed(FailureReason.BAD_REQUEST, f"{message}.")


def duration_ms(name: str, text: str) -> int:
    """Parse `250`, `250ms`, `5s`, `2m` or `1h` into milliseconds; raises QueryFailed."""
    try:
        number = _number(text) if text.isascii() and text.isdecimal() else milliseconds(Duration.parse(text))
    except DurationTooLong:
        return _MAX_LONG
    except ValueError:
        raise bad_request(f"{name}: '{text}' is not a duration; write milliseconds, or 250ms, 5s, 2m, 1h") from None
    return min(number, _MAX_LONG)


def time_ms(query: Mapping[str, str], name: str, default: int) -> int:
    """Parse a number or an ISO 8601 time (UTC if it has no time zone) into epoch milliseconds; raises QueryFailed."""
    text = query.get(name)
    if text is None:
        return default
    if re.fullmatch(r"-?[0-9]+", text):
        return -_number(text[1:]) if text.startswith("-") else _number(text)
    try:
        return parse_epoch_ms(text)
    except ValueError:
        raise bad_request(
            f"{name}: '{text}' is not a time; write epoch milliseconds, or 2026-01-31T12:00:00Z"
        ) from None


def position_of(text: str) -> dict[str, int]:
    """Parse a position such as `orders-0:17,orders-1:4` into next offsets by `topic-partition`; raises QueryFailed."""
    position: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, colon, offset = part.rpartition(":")
        topic, dash, partition = name.rpartition("-")
        if not (colon and dash and topic and _is_number(partition) and _is_number(offset)):
            raise bad_request(f"position: '{part}' is not a position; write topic-partition:offset, as in orders-0:17")
        position[f"{topic}-{_number(partition)}"] = _number(offset)
    return position


def _count(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not _is_number(text):
        raise bad_request(f"{name}: '{text}' is not a whole number from 0")
    return _number(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _number(digits: str) -> int:
    """Return the number, at most 2^63-1: messages hold no larger number, and Python parses long ones slowly."""
    return min(int(digits), _MAX_LONG) if len(digits) < 20 else _MAX_LONG


def _choice(query: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = query.get(name, str(choices[0]))
    if text not in choices:
        raise bad_request(f"{name}: '{text}' is not one of {', '.join(choices)}")
    return text
