"""Kinds of setting values: from what a file, the environment, a flag or a program gives to what the runtime uses.

Every parser takes any object and returns the value, or raises `ValueError` with half a sentence that says what is
wanted; the caller adds which setting it was and where it came from.
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
    "as_serde",
    "as_server",
    "as_text",
    "as_topic",
    "as_url",
    "as_worker",
    "import_object",
    "is_secret",
    "nearest",
    "shown_default",
)

Parser = Callable[[Any], Any]

HIDDEN = "[hidden]"
"""What is shown instead of a secret."""

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
_MAX_MS = 2**63 - 1


class Secret:
    """Text that must not be seen: every way to show, log, dump or pickle it gives `[hidden]` or an error.

    Two secrets are equal when their texts are. The text itself is only had from `reveal`.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text, for the client that needs it and nobody else."""
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
        raise TypeError("a secret is not pickled")


def is_secret(key: str) -> bool:
    """Whether the value of a setting of this name is a secret."""
    return _SECRET.search(key.lower()) is not None


def as_text(given: object) -> str:
    """Text that is not empty."""
    if not isinstance(given, str) or not given.strip():
        raise ValueError("expected a text")
    return given.strip()


def as_topic(given: object) -> str:
    """A name Kafka accepts for topics; application ids obey the same rule since they begin topic names."""
    text = as_text(given)
    if not _TOPIC.fullmatch(text) or text in {".", ".."}:
        raise ValueError("expected at most 249 letters, digits, '.', '_' and '-'")
    return text


def as_worker(given: object) -> str:
    """A worker's id: it is part of a directory's name and of a transactional id, one of which stands for nobody."""
    text = as_topic(given)
    if text == "unowned":
        raise ValueError("expected another name: 'unowned' stands for no worker")
    return text


def as_bool(given: object) -> bool:
    """True or False."""
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given.strip().lower() in {"true", "false"}:
        return given.strip().lower() == "true"
    raise ValueError("expected true or false")


def as_count(low: int, high: int = 2**31 - 1, *, besides: tuple[int, ...] = ()) -> Parser:
    """A whole number from `low` to `high`, or one of `besides`."""

    def parse(given: object) -> int:
        number = _whole(given)
        if number is None:
            raise ValueError("expected a whole number")
        if not low <= number <= high and number not in besides:
            raise ValueError(f"expected {_range(low, high, besides)}")
        return number

    return parse


def as_duration_ms(low: int, high: int = _MAX_MS, *, besides: tuple[int, ...] = ()) -> Parser:
    """Milliseconds from an integer, a timedelta, or text such as ``100ms``, ``5s``, ``1.5m``, ``2h``, ``1d``."""
    wanted = "expected whole milliseconds, or a duration such as '100ms', '5s', '2m', '1h' or '1d'"

    def parse(given: object) -> int:
        number = _whole(given)
        if number is not None:
            ms = number
        elif isinstance(given, timedelta):
            ms = milliseconds(given)
        elif isinstance(given, str):
            try:
                ms = milliseconds(Duration.parse(given))
            except ValueError:
                raise ValueError(wanted) from None
        else:
            raise ValueError(wanted)
        if not low <= ms <= high and ms not in besides:
            raise ValueError(f"expected {_range(low, high, besides)} milliseconds")
        return ms

    return parse


def as_bytes(low: int, *, besides: tuple[int, ...] = ()) -> Parser:
    """A number of bytes from an integer or text such as ``64MiB``, ``64M`` (the same) or ``10MB`` (powers of ten)."""

    def parse(given: object) -> int:
        number = _whole(given)
        if number is None and isinstance(given, str) and (found := _QUANTITY.fullmatch(given.strip())):
            unit = _SIZES.get(found[2].lower())
            number = None if unit is None else int(float(found[1]) * unit)
        if number is None:
            raise ValueError("expected a number of bytes such as 10485760 or '10MiB'")
        if number < low and number not in besides:
            raise ValueError(f"expected {_range(low, None, besides)} bytes")
        return number

    return parse


def as_choice(*names: str, also: dict[str, str] | None = None) -> Parser:
    """One of the names; `also` maps further spellings to them."""

    def parse(given: object) -> str:
        text = str(given).strip().lower()
        text = (also or {}).get(text, text)
        if text not in names:
            near = nearest(text, names)
            hint = f"; did you mean '{near}'?" if near else ""
            raise ValueError(f"expected {_either(names)}{hint}")
        return text

    return parse


def as_path(given: object) -> Path:
    """A path of the file system; ``~`` is the home directory."""
    if not isinstance(given, (str, os.PathLike)) or not str(given).strip():
        raise ValueError("expected a path")
    return Path(given).expanduser()


def as_names(given: object) -> tuple[str, ...]:
    """Names, as a list or separated by commas."""
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ValueError("expected names separated by commas")
    return tuple(name.strip() for name in names if name.strip())


def as_url(given: object) -> str:
    """A base URL of HTTP, without a slash at the end."""
    text = as_text(given).strip()
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError("expected a URL such as http://127.0.0.1:7070")
    return text.rstrip("/")


def as_server(given: object) -> str:
    """A base URL of HTTP, or Kafka Streams' form of it, ``host:port``."""
    text = as_text(given)
    if "://" not in text and _SERVER.fullmatch(text):
        text = f"http://{text}"
    try:
        return as_url(text)
    except ValueError:
        raise ValueError("expected host:port, or a URL such as http://10.0.0.7:8080") from None


def as_serde(short: dict[str, str]) -> Parser:
    """A serde, as `as_object` finds it."""
    parse = as_object(short, "a serde")

    def parse_serde(given: object) -> object:
        found = given if isinstance(given, type) else parse(given)
        try:
            check_serde("the setting", found)
        except TopologyError as error:
            raise ValueError(_clause(error)) from None
        return found

    return parse_serde


def as_handler(short: dict[str, str]) -> Parser:
    """A handler of errors, as `as_object` finds it: it is called with (context, error)."""
    parse = as_object(short, "a handler")

    def parse_handler(given: object) -> object:
        found = parse(given)
        try:
            check_function("a worker", found, "context", "error")
        except TopologyError as error:
            raise ValueError(_clause(error)) from None
        return found

    return parse_handler


def _clause(error: TopologyError) -> str:
    return str(error).removesuffix(".")


def as_object(short: dict[str, str], what: str) -> Parser:
    """An object: itself, one of the short names, or an import path such as ``package.module:NAME``.

    A class stands for an instance of it, made without arguments.

    Args:
        short: short names and the import paths they stand for.
        what: the object for error messages, such as "a serde".
    """

    def parse(given: object) -> object:
        if not isinstance(given, str):
            return _instance(given)
        text = given.strip()
        if path := short.get(text):
            return _instance(import_object(path))
        if ":" in text:
            return _instance(import_object(text))
        near = nearest(text.rsplit(".", 1)[-1].rsplit("$", 1)[-1], short)
        hint = f"; did you mean '{near}'?" if near else ""
        raise ValueError(
            f"expected {what}: {_either(tuple(short))}, or an import path such as 'package.module:NAME'{hint}"
        )

    return parse


def _instance(found: object) -> object:
    if not isinstance(found, type):
        return found
    try:
        made: object = found()
    except Exception as error:
        raise ValueError(f"{found.__name__}() cannot be made without arguments ({error}); give an object") from error
    return made


def import_object(path: str) -> object:
    """The object at ``package.module:NAME`` (`NAME` may be dotted).

    Raises:
        ValueError: the module cannot be imported or has no such attribute.
    """
    module_name, _, attributes = path.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:
        raise ValueError(f"module '{module_name}' cannot be imported ({type(error).__name__}: {error})") from error
    for attribute in attributes.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            near = nearest(attribute, dir(found))
            hint = f"; did you mean '{near}'?" if near else ""
            raise ValueError(f"module '{module_name}' has no '{attributes}'{hint}") from None
    return found


def _whole(given: object) -> int | None:
    if isinstance(given, bool):
        return None
    if isinstance(given, int):
        return given
    if isinstance(given, str) and re.fullmatch(r"[+-]?\d+", given.strip()):
        return int(given)
    return None


def _range(low: int, high: int | None, besides: tuple[int, ...]) -> str:
    bounded = high is not None and high < 2**31 - 1
    text = f"{low} to {high}" if bounded else f"at least {low}"
    return " or ".join([text, *map(str, besides)])


def _either(names: tuple[str, ...]) -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def shown_default(key: str, default: object) -> str:
    """A default the way a person would write it; what is shown can be written."""
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
