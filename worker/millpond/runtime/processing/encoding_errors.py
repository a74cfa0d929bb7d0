"""Which serde rejected what, found out after the error: operators and sinks call the bare functions of serdes.

`descriptor 'encode' for 'str' objects doesn't apply to a 'int' object` is all that Python says of a number under `String`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.errors import SerializationError
from millpond.serdes import Serde

__all__ = ("of_sink", "of_stores")


def of_sink(
    error: Exception, topic: str, key: Any, key_serde: Serde[Any], value: Any, value_serde: Serde[Any]
) -> Exception:
    """The error of a record that cannot be encoded for a topic; another error as it is."""
    for part, serde, given in (("key", key_serde, key), ("value", value_serde, value)):
        if reason := _rejected(serde, given):
            return _told(
                error, f"the {part} does not fit topic '{topic}': {reason}; give the serde of its type as {part}="
            )
    return error


def of_stores(error: Exception, key: Any, stores: Mapping[str, Any]) -> Exception:
    """The error of a record whose key does not fit a store of its node; an error of the user's own code as it is."""
    if _raised_by_user(error):
        return error
    for name, store in stores.items():
        serde = getattr(store, "key_serde", None)
        if isinstance(serde, Serde) and (reason := _rejected(serde, key)):
            return _told(
                error,
                f"the key does not fit store '{name}': {reason}; give the serde of its type as key= where the stream is "
                "grouped or the table is made",
            )
    return error


def _rejected(serde: Serde[Any], given: Any) -> SerializationError | None:
    if given is None:
        return None
    try:
        serde.serialize(given)
    except Exception as error:
        return serde.encoding_failed(given, error)
    return None


def _told(error: Exception, text: str) -> SerializationError:
    told = SerializationError(text)
    told.__cause__ = error
    return told


def _raised_by_user(error: Exception) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or not str(trace.tb_frame.f_globals.get("__name__", "")).startswith("millpond.")
