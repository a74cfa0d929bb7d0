"""Parsers of setting values from a file, the environment, a flag or a program.

Every parser takes any object and returns the value for the runtime, or raises `ValueError` with the end of a sentence:
the expected form. The caller adds the setting and its source.
"""

from __future__ import annotations

import hmac
import importlib
import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from millpond.checks import check_function, nearest
from millpond.durations import Duration, milliseconds
from millpond.errors import TopologyError
from millpond.serdes.checking import check_serde
from millpond.texts import said
from millpond.topology.optimization import OPTIMIZATIONS, parse_optimization
from millpond.topology.settings.resets import parse_reset
from millpond.topology.user_metrics import LEVELS

__all__ = (
    "HIDDEN",
    "Secret",
    "as_bool",
    "as_bytes",
    "as_choice",
    "as_count",
    "as_duration_ms",
    "as_handler",
    "as_names",
    "as_object",
    "as_path",
    "as_reset",
    "as_serde",
    "as_server",
    "as_servers",
    "as_text",
    "as_topic",
    "as_url",
    "as_worker",
    "import_object",
    "is_import_path",
    "is_secret",
    "nearest",
    "protocols_of",
    "shown_default",
    "unless_import_path",
)

Parser = Callable[[Any], Any]

HIDDEN = "[hidden]"
"""Text shown instead of a secret."""

_SECRET = re.compile(
    r"(^|[._-])(password|passphrase|passwd|secret|token|user\.info|jaas\.config)$|\.key\.pem$|^sasl\.oauthbearer\.config$"
)
_MILLISECOND = timedelta(milliseconds=1)
_SIZES = {
    "": 1, "b": 1,
    "k": 1024, "kb": 1000, "kib": 1024,
    "m": 1024**2, "mb": 1000**2, "mib": 1024**2,
    "g": 1024**3, "gb": 1000**3, "gib": 1024**3,
}  # fmt: skip
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SERVER = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s/:]+):\d{1,5}")
_BROKER = re.compile(
    r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s/:;@\[\]]+)(:(?P<port>\d{1,5}))?|(?:[0-9a-fA-F]*:){2,}[0-9a-fA-F]*"
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MAX_MS = 2**63 - 1


class Secret:
    """A text that must not be shown: printing, logging, dumping or pickling it gives `[hidden]` or an error.

    Two secrets are equal when their texts are. Only `reveal` returns the text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, for the client that needs it and for nothing else."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled")


def is_secret(key: str) -> bool:
    """Return whether the value of the setting `key` is a secret."""
    return _SECRET.search(key.lower()) is not None


def as_text(given: object) -> str:
    """Return text that is not empty, without white space around it."""
    if not isinstance(given, str) or not given.strip():
        raise ValueError("expected a text")
    return given.strip()


def as_servers(given: object) -> str:
    """Return addresses of brokers, as librdkafka takes them: also `SASL_SSL://host:port`, and without a port (9092)."""
    text = as_text(given)
    for entry in (each.strip() for each in text.split(",")):
        protocol, separator, address = entry.rpartition("://")
        known = not separator or protocol.upper() in _PROTOCOLS
        if entry and not (known and _BROKER.fullmatch(address)):
            form = "expected host:port,host:port" + ("" if known else f", without '{protocol}://'")
            near = _BROKER.match(address.rpartition("@")[2])
            if near and near["host"]:
                raise ValueError(f"{form}; did you mean '{near['host']}:{near['port'] or 9092}'?")
            raise ValueError(form)
    return text


def protocols_of(servers: str) -> list[str]:
    """Return the protocols that addresses of brokers begin with, in upper case."""
    return [each.partition("://")[0].strip().upper() for each in servers.split(",") if "://" in each]


def as_topic(given: object) -> str:
    """Return a valid topic name. Application ids follow the same rule, since topic names begin with them."""
    text = as_text(given)
    if not _TOPIC.fullmatch(text) or text in {".", ".."}:
        raise ValueError("expected at most 249 letters, digits, '.', '_' and '-'")
    return text


def as_worker(given: object) -> str:
    """Return a valid worker id: it becomes part of a directory's name and of a transactional id."""
    text = as_topic(given)
    if text == "unowned":
        raise ValueError("expected another name: 'unowned' is reserved for tasks without an owner")
    return text


def as_bool(given: object) -> bool:
    """Return a boolean."""
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given.strip().lower() in {"true", "false"}:
        return given.strip().lower() == "true"
    raise ValueError("expected true or false")


def as_count(low: int, high: int = 2**31 - 1, *, besides: tuple[int, ...] = ()) -> Parser:
    """Return a parser of whole numbers from `low` to `high`, and of those in `besides`."""

    def parse(given: object) -> int:
        number = _as_integer(given)
        if number is None:
            raise ValueError("expected a whole number")
        if not low <= number <= high and number not in besides:
            raise ValueError(f"expected {_bounds(low, high, besides)}")
        return number

    return parse


def as_duration_ms(low: int, high: int = _MAX_MS, *, besides: tuple[int, ...] = ()) -> Parser:
    """Return a parser of durations, in milliseconds: integers, timedeltas, or text such as ``100ms`` or ``1.5m``."""
    expected = "expected whole milliseconds, or a duration such as '100ms', '5s', '2m', '1h' or '1d'"

    def parse(given: object) -> int:
        number = _as_integer(given)
        if number is not None:
            ms = number
        elif isinstance(given, timedelta):
            ms = milliseconds(given)
        elif isinstance(given, str):
            text = given.strip()
            try:
                ms = milliseconds(Duration.parse(text[1:] if text[:1] in {"+", "-"} else text))
            except ValueError:
                raise ValueError(expected) from None
            ms = -ms if text[0] == "-" else ms
        else:
            raise ValueError(expected)
        if not low <= ms <= high and ms not in besides:
            raise ValueError(f"expected {_bounds(low, high, besides)} milliseconds")
        return ms

    return parse


def as_bytes(low: int, *, besides: tuple[int, ...] = ()) -> Parser:
    """Return a parser of sizes, in bytes: integers or text such as ``64MiB``, ``64M`` (the same), ``10MB`` (10^7)."""

    def parse(given: object) -> int:
        number = _as_integer(given)
        if number is None and isinstance(given, str) and (found := _QUANTITY.fullmatch(given.strip())):
            unit = _SIZES.get(found[2].lower())
            number = None if unit is None else int(float(found[1]) * unit)
        if number is None:
            raise ValueError("expected a number of bytes such as 10485760 or '10MiB'")
        if number < low and number not in besides:
            raise ValueError(f"expected {_bounds(low, None, besides)} bytes")
        return number

    return parse


def as_choice(*names: str, also: dict[str, str] | None = None) -> Parser:
    """Return a parser that accepts one of `names`; `also` maps further spellings to them."""

    def parse(given: object) -> str:
        text = str(given).strip().lower()
        text = (also or {}).get(text, text)
        if text not in names:
            near = nearest(text, names)
            hint = f"; did you mean '{near}'?" if near else ""
            raise ValueError(f"expected {_listed(names)}{hint}")
        return text

    return parse


def as_reset(given: object) -> str:
    """Return a reset policy for inputs without a committed offset, as in `auto.offset.reset`."""
    return parse_reset(given)


def as_level(given: object) -> str:
    """Return a level of `metrics.recording.level`, in upper case as in Kafka Streams."""
    text = str(given).strip().upper()
    if text not in LEVELS:
        near = nearest(text, LEVELS)
        raise ValueError(f"expected {_listed(LEVELS)}{f'; did you mean {near!r}?' if near else ''}")
    return text


def as_optimization(given: object) -> str:
    """Return the rewrites of `topology.optimization`: `none`, `all`, or names divided by commas."""
    text = ",".join(map(str, given)) if isinstance(given, list | tuple) else str(given)
    rules = parse_optimization(text)
    if len(rules) in (0, len(OPTIMIZATIONS)):
        return "all" if rules else "none"
    return ",".join(rule for rule in OPTIMIZATIONS if rule in rules)


def as_path(given: object) -> Path:
    """Return a path; ``~`` is the home directory."""
    if not isinstance(given, (str, os.PathLike)) or not str(given).strip():
        raise ValueError("expected a path")
    return Path(given).expanduser()


def as_names(given: object) -> tuple[str, ...]:
    """Return names, from a list or from text with commas."""
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ValueError("expected names separated by commas")
    return tuple(name.strip() for name in names if name.strip())


def as_url(given: object) -> str:
    """Return an HTTP base URL, without a slash at the end."""
    text = as_text(given).strip()
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError("expected a URL such as http://127.0.0.1:7070")
    return text.rstrip("/")


def as_server(given: object) -> str:
    """Return an HTTP base URL, from a URL or from Kafka Streams' form ``host:port``."""
    text = as_text(given)
    if "://" not in text and _SERVER.fullmatch(text):
        text = f"http://{text}"
    try:
        return as_url(text)
    except ValueError:
        raise ValueError("expected host:port, or a URL such as http://10.0.0.7:8080") from None


def as_serde(short: dict[str, str]) -> Parser:
    """Return a parser of serdes, which are found as by `as_object`."""
    parse = as_object(short, "a serde")

    def parse_serde(given: object) -> object:
        found = given if isinstance(given, type) else parse(given)
        try:
            check_serde("the setting", found)
        except TopologyError as error:
            raise ValueError(_without_full_stop(error)) from None
        return found

    return parse_serde


def as_handler(short: dict[str, str]) -> Parser:
    """Return a parser of exception handlers, which are found as by `as_object` and called with (context, error)."""
    parse = as_object(short, "a handler")

    def parse_handler(given: object) -> object:
        found = parse(given)
        try:
            check_function("a worker", found, "context", "error")
        except TopologyError as error:
            raise ValueError(_without_full_stop(error)) from None
        return found

    return parse_handler


def _without_full_stop(error: TopologyError) -> str:
    return str(error).removesuffix(".")


def as_object(short: dict[str, str], what: str) -> Parser:
    """Return a parser of objects: the object itself, a short name, or an import path such as ``package.module:NAME``.

    For a class, the object is an instance that is made without arguments.

    Args:
        short: import paths by short name.
        what: the kind of object, for error messages, such as "a serde".
    """

    def parse(given: object) -> object:
        if not isinstance(given, str):
            return _instantiated(given)
        text = given.strip()
        if path := short.get(text):
            return _instantiated(import_object(path))
        if ":" in text:
            return _instantiated(import_object(text))
        near = nearest(text.rsplit(".", 1)[-1].rsplit("$", 1)[-1], short)
        hint = f"; did you mean '{near}'?" if near else ""
        raise ValueError(
            f"expected {what}: {_listed(tuple(short))}, or an import path such as 'package.module:NAME'{hint}"
        )

    return parse


def unless_import_path(parse: Parser) -> Parser:
    """Return a parser that imports nothing: it returns an import path as it is, and other values as `parse` does."""
    return lambda given: given if is_import_path(given) else parse(given)


def is_import_path(given: object) -> bool:
    """Return whether the value of a setting is an import path, which `as_object` would import."""
    return isinstance(given, str) and ":" in given


def _instantiated(found: object) -> object:
    if not isinstance(found, type):
        return found
    try:
        made: object = found()
    except Exception as error:
        raise ValueError(
            f"{found.__name__}() cannot be called without arguments ({error}); name an object instead of a class"
        ) from error
    return made


def import_object(path: str) -> object:
    """Return the object at ``package.module:NAME``; `NAME` may contain dots.

    Raises:
        ValueError: the module cannot be imported or has no such attribute.
    """
    module_name, _, attributes = path.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except SystemExit as error:
        raise ValueError(f"module '{module_name}' exits when it is imported") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {said(error)}".removesuffix(".")
        raise ValueError(f"module '{module_name}' cannot be imported ({reason})") from error
    for attribute in attributes.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            near = nearest(attribute, dir(found))
            hint = f"; did you mean '{near}'?" if near else ""
            raise ValueError(f"module '{module_name}' has no '{attributes}'{hint}") from None
    return found


def _as_integer(given: object) -> int | None:
    if isinstance(given, bool):
        return None
    if isinstance(given, int):
        return given
    if isinstance(given, str) and re.fullmatch(r"[+-]?\d+", given.strip()):
        return int(given)
    return None


def _bounds(low: int, high: int | None, besides: tuple[int, ...]) -> str:
    bounded = high is not None and high < 2**31 - 1
    text = f"{low} to {high}" if bounded else f"at least {low}"
    return " or ".join([text, *map(str, besides)])


def _listed(names: tuple[str, ...]) -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def shown_default(key: str, default: object) -> str:
    """Return the text of a default, with a unit if it has one; the text is a valid value."""
    if default is None or default in ("", ()):
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int) and default > 0:
        units = _SHOWN_DURATIONS if key.endswith(".ms") else _SHOWN_SIZES if key.endswith(".bytes") else ()
        for unit, size in units:
            if default % size == 0:
                return f"{default // size}{unit}"
    return str(default)


_SHOWN_DURATIONS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
_SHOWN_SIZES = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))
