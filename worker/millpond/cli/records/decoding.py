"""Records as JSON objects: the lines of `millpond consume`. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import Message

from millpond.errors import BrokerError
from millpond.serdes import Windowed
from millpond.serdes.serde import framed

from .application_coders import Coders
from .coders import Coder, base64_of, named

__all__ = ("Decoded", "decode")


class Decoded(NamedTuple):
    """A record as JSON."""

    line: dict[str, Any]
    problem: str = ""
    """Why a part of it could not be decoded, which the line has as base64 then."""
    without_trace: bool = False
    """Whether the header with the stack trace of a dead letter was left out."""
    no_registry: str = ""
    """Why a part of it is base64 though it may be right: the schema registry does not answer."""


_STACK_TRACE = "__streams.errors.stacktrace"
_SHOWN_AS = {what: named("auto", "", is_key=what == "key") for what in ("key", "value")}
"""What shows a part of a dead letter that the application cannot decode: so it can be corrected and produced again."""


def decode(message: Message, coders: Coders, *, stack_traces: bool = True, needs_key: bool = False) -> Decoded:
    """Return a record as JSON: key, value, timestamp, topic, partition, offset; window and headers if it has any.

    Times are epoch ms. What cannot be decoded is `{"base64": …}`, in a dead letter JSON or text if it is that, and the
    line has the reason as `error`, before the headers.

    Args:
        message: the record.
        coders: the formats.
        stack_traces: whether the headers of a dead letter contain the stack trace of its error.
        needs_key: whether a key in base64 is of no use, since it is compared.

    Raises:
        ConfigError: the record is of no topic of the application.
        BrokerError: the schema registry cannot be reached, and the key is needed.
    """
    headers, unreadable = _headers_of(message)
    if coders.choose is not None:
        coders = coders.choose(headers)
    line: dict[str, Any] = {"key": None}
    parts = _Parts(coders, needs_key=needs_key)
    problems = parts.problems
    problems += unreadable
    raw_key = _framed(coders.key, message.key(), headers)
    raw_value = _framed(coders.value, message.value(), headers)
    if raw_key is not None:
        try:
            raw_key, raw_value, start, end = coders.split(raw_key, raw_value)
        except Exception as error:  # noqa: BLE001 - a damaged record may not even split into its parts
            problems.append(f"the record is not of this changelog: {error}")
            line |= {"key": base64_of(raw_key), "value": None if raw_value is None else base64_of(raw_value)}
        else:
            key = parts.decoded(coders.key, raw_key, "key")
            if isinstance(key, Windowed):
                key, start, end = key.key, key.start_ms, key.end_ms
            line["key"] = key
            if start is not None:
                line["window"] = {"start": start, "end": end}
    if "value" not in line:
        line["value"] = None if raw_value is None else parts.decoded(coders.value, raw_value, "value")
    line |= {
        "timestamp": message.timestamp()[1],
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
    }
    if problems:
        line["error"] = "; ".join(problems)
    pairs = list(headers) if headers else []
    shown = [(name, data) for name, data in pairs if stack_traces or name != _STACK_TRACE]
    if shown:
        line["headers"] = [[name, None if data is None else _text(_bytes(data))] for name, data in shown]
    return Decoded(line, line.get("error", ""), len(shown) < len(pairs), parts.no_registry)


def _headers_of(message: Message) -> tuple[Any, list[str]]:
    """Return the headers of a record, and why there are none if the client cannot return them."""
    try:
        return message.headers(), []
    except (SystemError, UnicodeDecodeError):
        return None, ["the name of a header is not UTF-8, so the headers are left out"]


def _framed(coder: Coder, data: str | bytes | None, headers: Any) -> bytes | None:
    return None if data is None else framed(coder.header, _bytes(data), headers)


class _Parts:
    """Decodes the parts of one record, and collects why parts cannot be decoded."""

    def __init__(self, coders: Coders, *, needs_key: bool) -> None:
        self.problems: list[str] = []
        self.no_registry = ""
        self._readable = coders.readable
        self._needs_key = needs_key

    def decoded(self, coder: Coder, data: bytes, what: str) -> Any:
        try:
            return coder.decode(data)
        except BrokerError as error:
            if self._needs_key and what == "key":
                raise
            self.no_registry = str(error)
            self.problems.append(f"{what}: {error}")
            return base64_of(data)
        except Exception as error:  # noqa: BLE001 - serdes may be user code
            self.problems.append(f"{what}: {error}")
            return _SHOWN_AS[what].decode(data) if self._readable else base64_of(data)


def _text(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64_of(data)


def _bytes(data: Any) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)
