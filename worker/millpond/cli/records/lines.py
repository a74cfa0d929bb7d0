"""The lines that `millpond produce` reads: JSON objects, or key and value with a separator between them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import murmur2

from millpond.durations import seem_seconds
from millpond.errors import MillpondError
from millpond.runtime.config.parsers import nearest
from millpond.serdes import Windowed
from millpond.times import moment, parse_epoch_ms

from .coders import Coder, NotEncodable, json_value

__all__ = ("BadLine", "Line", "Target", "parser", "without_mark")

_FIELDS = ("key", "value", "timestamp", "headers", "partition", "window")
_OF_ORIGIN = ("topic", "offset")
"""Fields that tell where a record was read."""
_OF_DEAD_LETTERS = "__streams.errors."
"""The headers that tell why a record is a dead letter begin so."""
_NO_TOPIC = "an unnamed topic"
_MAX_LONG = 2**63 - 1
_BOM = b"\xef\xbb\xbf"
_BOMS_OF_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_ANY = -1


class BadLine(ValueError):
    """A line that is no record; the message has the cause and the cure, without the line's number."""


class Line(NamedTuple):
    """The record of a line."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 0
    """0 for the time at which it is written."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = _ANY
    """-1 for the partition of the key."""


class Target:
    """The topic that lines are written to, and what is not kept of lines that were read from other topics.

    The partition of a record that was read elsewhere depends on the partition count there, and may be that of no key
    (dead letters). So such a record goes to the partition of its key.

    Args:
        topic: the topic's name; empty if lines of no topic are its own.
        partitions: the number of its partitions.
        keep_partitions: whether a record is written to the partition that its line names: True and False say so for all
            lines, None for those that were not read from another topic.
    """

    def __init__(self, topic: str, partitions: int, *, keep_partitions: bool | None = None) -> None:
        self.topic = topic
        self.partitions = partitions
        self._keep_partitions = keep_partitions
        self._moved: Counter[str] = Counter()
        self._addressed: Counter[str] = Counter()
        self._without_headers = 0
        self._in_seconds = 0
        self._first_seconds = 0

    def timestamp_ms(self, line: dict[str, Any]) -> int:
        """Return the timestamp of a line in epoch ms; 0 if it names none."""
        given = line.get("timestamp")
        found = _timestamp_ms(given)
        if type(given) is int and seem_seconds(found):
            self._in_seconds += 1
            self._first_seconds = self._first_seconds or found
        return found

    def partition(self, line: dict[str, Any]) -> int:
        """Return the partition that a record keeps from its line; -1 for that of its key."""
        origin = _origin(line)
        if origin not in (None, self.topic) and "offset" not in line:  # no line of `millpond consume`: written by hand
            self._addressed[str(origin)] += 1
        keep = self._keep_partitions
        if keep is None and origin in (None, self.topic):
            keep = True
        if keep:
            return _partition(line.get("partition"), self.partitions)
        if keep is None and line.get("partition") is not None:
            self._moved[origin or _NO_TOPIC] += 1
        return _ANY

    def headers(self, line: dict[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
        """Return the headers that a record keeps: those of a dead letter's error stay behind."""
        given = _headers(line.get("headers"))
        if _origin(line) == self.topic:
            return given
        kept = tuple(each for each in given if not each[0].startswith(_OF_DEAD_LETTERS))
        self._without_headers += len(kept) < len(given)
        return kept

    def notes(self) -> list[str]:
        """Return sentences about what was not kept of the lines, for people."""
        found = []
        if self._addressed:
            names = "names" if self._addressed.total() == 1 else "name"
            topics = ", ".join(f"{topic} ({count:,})" for topic, count in sorted(self._addressed.items()))
            found.append(
                f"{_count(self._addressed.total())} {names} another topic: {topics}. All go to {self.topic}, since "
                '"topic" says where a line was read, and chooses no topic: give each topic a file and a command of '
                "its own."
            )
        if self._moved:
            topics = ", ".join(sorted(self._moved))
            found.append(
                f"{_lines(self._moved.total())} read from {topics}: the partition is chosen by key, not taken from the "
                "line; --keep-partitions takes it."
            )
        if self._without_headers:
            found.append(
                f"{_lines(self._without_headers)} a dead letter: the headers {_OF_DEAD_LETTERS}* are left out."
            )
        if self._in_seconds:
            when = moment(self._first_seconds)
            has = "has" if self._in_seconds == 1 else "have"
            found.append(
                f'{_count(self._in_seconds)} {has} a "timestamp" that looks like seconds, but is read as ms: '
                f"{self._first_seconds} is {when:%Y-%m-%d}. Multiply by 1000 if these are seconds."
            )
        return found


def without_mark(first: bytes) -> bytes:
    """Return the first line of a file without UTF-8's byte order mark.

    Raises:
        BadLine: it has that of UTF-16.
    """
    if first.startswith(_BOMS_OF_UTF_16):
        raise BadLine(
            "the file is UTF-16, as `>` in Windows PowerShell writes it. Convert it to UTF-8: "
            "`iconv -f UTF-16 -t UTF-8 FILE`, or `Out-File -Encoding utf8` in PowerShell"
        )
    return first.removeprefix(_BOM)


def parser(key: Coder, value: Coder, target: Target, *, separator: str | None = None) -> Callable[[bytes], Line | None]:
    """Return the function that makes a record of a line, and None of an empty one; it raises BadLine.

    Args:
        key: the coder of keys.
        value: the coder of values.
        target: where the records are written.
        separator: the text between key and value; None for JSON objects.
    """

    def of_json(text: bytes) -> Line | None:
        if not text.strip():
            return None
        try:
            found = json_value(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadLine(_not_json(text, error)) from None
        if isinstance(found, list):
            raise BadLine(_ARRAY)
        if not isinstance(found, dict):
            raise BadLine('it is no JSON object. Write {"key": …, "value": …}')
        _check_fields(found)
        raw_key = _encoded(key, _with_window(key, found), '"key"')
        chosen = target.partition(found)
        return Line(
            raw_key,
            _encoded(value, found["value"], '"value"'),
            target.timestamp_ms(found),
            target.headers(found),
            _partition_of_key(key, raw_key, target.partitions) if chosen == _ANY else chosen,
        )

    def separated(text: bytes) -> Line | None:
        assert separator is not None
        try:
            raw_key, found, raw_value = text.decode().rstrip("\r\n").partition(separator)
        except UnicodeDecodeError as error:
            raise BadLine(_not_utf_8(error)) from None
        if not found:
            raise BadLine(f"it has no {separator!r} between key and value. Add it, or choose another --key-separator")
        return Line(
            _encoded(key, _of_text(key, raw_key), "the key"), _encoded(value, _of_text(value, raw_value), "the value")
        )

    return of_json if separator is None else separated


_ARRAY = "it is a JSON array, and no JSON object. Write one object per line, as `jq -c '.[]' FILE` does"


def _not_json(text: bytes, error: Exception) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as wrong:
        return _not_utf_8(wrong)
    stripped = text.strip()
    if stripped.startswith(b"["):
        return _ARRAY
    if stripped == b"{":
        return "the object does not end in its line. Write one object per line, as `jq -c . FILE` does"
    return f'it is not JSON ({error}). Write an object such as {{"key": "a", "value": 1}}, or give --key-separator'


def _not_utf_8(error: UnicodeDecodeError) -> str:
    return f"it is not UTF-8 ({error.reason} at byte {error.start}). Convert the file"


def _check_fields(found: dict[str, Any]) -> None:
    for name in found:
        if name not in _FIELDS and name not in _OF_ORIGIN:
            if name == "error":
                raise BadLine(
                    'it has an "error": `millpond consume` could not decode the record. Correct its key or value, and '
                    'remove "error"'
                )
            near = nearest(name, _FIELDS)
            hint = f'Did you mean "{near}"?' if near else f"The fields are {', '.join(_FIELDS)}"
            raise BadLine(f'it has a field "{name}", which is none of a record. {hint}')
    if "value" not in found:
        raise BadLine('it has no "value". Write "value": null to delete a key')


def _with_window(key: Coder, found: dict[str, Any]) -> Any:
    given = found.get("key")
    if "window" not in found:
        return given
    if given is None or not key.windowed:
        raise BadLine('it has a "window", but keys of this topic have none. Give --window, or --application')
    try:
        window = msgspec.convert(found["window"], _Window)
    except msgspec.ValidationError as error:
        raise BadLine(f'"window" is wrong ({error}). Write {{"start": …, "end": …}} in epoch ms') from None
    return Windowed(given, window.start, window.end)


class _Window(msgspec.Struct, forbid_unknown_fields=True):
    start: int
    end: int


def _encoded(coder: Coder, value: Any, what: str) -> bytes | None:
    if value is None:
        return None
    try:
        return coder.encode(value)
    except NotEncodable as error:
        raise BadLine(f"{what}: {error}") from error
    except MillpondError as error:
        raise BadLine(f"{what}: {str(error).removesuffix('.')}") from error


def _of_text(coder: Coder, text: str) -> Any:
    if coder.as_text:
        return text
    try:
        return json_value(text.encode())
    except msgspec.DecodeError as error:
        raise BadLine(
            f"{text[:50]!r} is no value of {coder.name} ({error}). Correct it, or choose another format"
        ) from None


def _timestamp_ms(given: Any) -> int:
    if given is None:
        return 0
    if type(given) is int:
        found = given
    else:
        try:
            found = parse_epoch_ms(given)
        except (TypeError, ValueError):
            raise BadLine('"timestamp" is no time. Write epoch ms, or text such as "2026-01-31T12:00:00Z"') from None
    if 0 < found <= _MAX_LONG:
        return found
    raise BadLine(
        '"timestamp" must be above 0, in epoch ms: after 1970-01-01. Correct it, or leave it out for the present time'
    )


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    if given is None:
        return ()
    pairs = list(given.items()) if isinstance(given, dict) else given
    try:
        found = msgspec.convert(pairs, list[tuple[str, str | _Raw | None]])
    except msgspec.ValidationError:
        raise BadLine(
            '"headers" are wrong. Write {"name": "text"}, or [["name", "text"], …] to repeat a name'
        ) from None
    return tuple(
        (name, each.base64 if isinstance(each, _Raw) else None if each is None else each.encode())
        for name, each in found
    )


class _Raw(msgspec.Struct, forbid_unknown_fields=True):
    base64: bytes


def _lines(number: int) -> str:
    return f"{_count(number)} {'was' if number == 1 else 'were'}"


def _count(number: int) -> str:
    return "1 line" if number == 1 else f"{number:,} lines"


def _origin(line: dict[str, Any]) -> str | None:
    """Return the topic that a record was read from; None for a line that `millpond consume` has not written."""
    found = line.get("topic")
    if found is None:
        return _NO_TOPIC if "offset" in line else None
    if not isinstance(found, str):
        raise BadLine('"topic" is no text. Correct it, or leave it out')
    return found


def _partition(given: Any, count: int) -> int:
    if given is None:
        return _ANY
    if type(given) is not int or not 0 <= given < count:
        raise BadLine(
            f'"partition" is {given!r}, but the topic has the partitions 0 to {count - 1}. Correct it, or give '
            "--by-key, which ignores it"
        )
    return given


def _partition_of_key(coder: Coder, raw_key: bytes | None, count: int) -> int:
    if raw_key is None or coder.partition_by is None:
        return _ANY
    return murmur2(coder.partition_by(raw_key), count)
