"""What a request's parameters say, checked; anything that cannot be understood is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from millpond.durations import Duration, DurationTooLong, milliseconds

from .catalog import StoreInfo
from .failures import FailureReason, QueryFailed
from .messages import Read
from .rendering import Format, KeyFormat

__all__ = ("OPTIONS", "RequestOptions", "duration_ms", "position_of", "time_ms")

#: Parameters that every query of rows takes.
OPTIONS = frozenset(
    {
        "key_format", "format", "timeout", "max_staleness", "max_lag", "position", "isolation", "partition", "reverse",
        "limit",
    }
)  # fmt: skip

_DEFAULT_TIMEOUT_MS = 10_000
_LONGEST_TIMEOUT_MS = 3_600_000
_MAX_LONG = 2**63 - 1


@dataclass(frozen=True)
class RequestOptions:
    """How a query is to be answered."""

    key_format: KeyFormat
    format: Format
    read: Read
    """With nothing said yet about keys and times."""
    partition: int | None
    """The partition to look into; None: where the key's hash says, or all."""

    @classmethod
    def of(cls, application: str, info: StoreInfo, query: Mapping[str, str], names: frozenset[str]) -> RequestOptions:
        """The options of a request.

        Args:
            application: whose store it is.
            info: the store.
            query: all parameters of the request.
            names: those that this kind of query takes beside OPTIONS.

        Raises:
            QueryFailed: one is unknown, or has a value that cannot be used.
        """
        unknown = sorted(set(query) - OPTIONS - names)
        if unknown:
            known = ", ".join(sorted(OPTIONS | names))
            raise bad(f"there is no parameter '{unknown[0]}' here; there are {known}")
        committed = _choice(query, "isolation", ("read_committed", "read_uncommitted")) == "read_committed"
        bound = position_of(query.get("position", ""))
        for name in bound:
            topic = name.rpartition("-")[0]
            if topic not in info.inputs:
                inputs = ", ".join(f"'{each}'" for each in sorted(info.inputs)) or "none"
                raise bad(
                    f"position: '{topic}' is no topic that the tasks of store '{info.name}' read; those are {inputs}"
                )
        limit = _count(query, "limit")
        if limit == 0:
            raise bad("limit: at least 1")
        partition = _count(query, "partition")
        if partition is not None and partition >= info.partitions:
            raise QueryFailed(
                FailureReason.DOES_NOT_EXIST,
                f"store '{info.name}' has no partition {partition}: it has {info.partitions}, from 0.",
                (partition,),
            )
        timeout_ms = duration_ms("timeout", query["timeout"]) if "timeout" in query else _DEFAULT_TIMEOUT_MS
        read = Read(
            application=application,
            store=info.name,
            partitions=tuple(range(info.partitions)) if partition is None else (partition,),
            reverse=_choice(query, "reverse", ("false", "true")) == "true",
            limit=limit,
            # Global stores have nothing that is not committed.
            committed=committed or info.subtopology is None,
            max_staleness_ms=duration_ms("max_staleness", query["max_staleness"]) if "max_staleness" in query else None,
            max_lag=_count(query, "max_lag"),
            bound=bound,
            timeout_ms=min(timeout_ms, _LONGEST_TIMEOUT_MS),
        )
        return cls(
            KeyFormat(_choice(query, "key_format", tuple(KeyFormat))),
            Format(_choice(query, "format", tuple(Format))),
            read,
            partition,
        )

    def reading(self, **fields: Any) -> Read:
        """The request with its keys and times."""
        return msgspec.structs.replace(self.read, **fields)


def bad(message: str) -> QueryFailed:
    """A request that cannot be understood."""
    return QueryFailed(FailureReason.BAD_REQUEST, f"{message}.")


def duration_ms(name: str, text: str) -> int:
    """Milliseconds of `250`, `250ms`, `5s`, `2m` or `1h`; raises QueryFailed."""
    try:
        number = _number(text) if text.isascii() and text.isdecimal() else milliseconds(Duration.parse(text))
    except DurationTooLong:
        return _MAX_LONG
    except ValueError:
        raise bad(f"{name}: '{text}' is no duration; write milliseconds, or 250ms, 5s, 2m, 1h") from None
    return min(number, _MAX_LONG)


def time_ms(query: Mapping[str, str], name: str, default: int) -> int:
    """Epoch milliseconds of a number, or of a time in ISO 8601 (UTC unless it says otherwise); raises QueryFailed."""
    text = query.get(name)
    if text is None:
        return default
    if re.fullmatch(r"-?[0-9]+", text):
        return -_number(text[1:]) if text.startswith("-") else _number(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise bad(f"{name}: '{text}' is no time; write epoch milliseconds, or 2026-01-31T12:00:00Z") from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def position_of(text: str) -> dict[str, int]:
    """A position such as `orders-0:17,orders-1:4`: next offsets by topic and partition; raises QueryFailed."""
    position: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, colon, offset = part.rpartition(":")
        topic, dash, partition = name.rpartition("-")
        if not (colon and dash and topic and _is_number(partition) and _is_number(offset)):
            raise bad(f"position: '{part}' is no position; write topic-partition:offset, as in orders-0:17")
        position[f"{topic}-{_number(partition)}"] = _number(offset)
    return position


def _count(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not _is_number(text):
        raise bad(f"{name}: '{text}' is no count")
    return _number(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _number(digits: str) -> int:
    """The number, or the largest there is: it has to fit the messages, and long ones take Python long to read."""
    return min(int(digits), _MAX_LONG) if len(digits) < 20 else _MAX_LONG


def _choice(query: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = query.get(name, str(choices[0]))
    if text not in choices:
        raise bad(f"{name}: '{text}' is not one of {', '.join(choices)}")
    return text
