"""Explains serialization errors: names the serde, and the key or value that it rejects.

Operators and sinks call the bare functions of serdes, so the cause is determined after the error. For a number under
`String`, Python's own error is only `descriptor 'encode' for 'str' objects doesn't apply to a 'int' object`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.errors import SerializationError, TopologyError
from millpond.serdes import Serde
from millpond.state.own_stores import CustomStore

__all__ = ("explain_sink_error", "explain_store_error")


def explain_sink_error(  # noqa: PLR0913 - a record and its serdes
    error: Exception, topic: str, key: Any, key_serde: Serde[Any], value: Any, value_serde: Serde[Any]
) -> Exception:
    """Return a `SerializationError` if a record cannot be serialized for a topic, else `error`."""
    for part, serde, given in (("key", key_serde, key), ("value", value_serde, value)):
        if reason := _rejection(serde, given):
            return _explained(
                error, f"the {part} does not fit topic '{topic}': {reason}; give the serde of its type as {part}="
            )
    return error


def explain_store_error(error: Exception, key: Any, stores: Mapping[str, Any]) -> Exception:
    """Return a `SerializationError` if a record's key does not fit a store of its node, else `error`."""
    if isinstance(error, TopologyError) or _raised_by_user(error):
        return error
    for name, store in stores.items():
        if isinstance(store, CustomStore):
            continue  # the keys of a store of one's own are not those of records
        serde = getattr(store, "key_serde", None)
        if isinstance(serde, Serde) and (reason := _rejection(serde, key)):
            return _explained(
                error,
                f"the key does not fit store '{name}': {reason}; give the serde of its type as key= where the stream "
                "is grouped or the table is created",
            )
    return error


def _rejection(serde: Serde[Any], given: Any) -> SerializationError | None:
    """Return the reason why a serde rejects a key or value; None if it accepts them."""
    if given is None:
        return None
    try:
        serde.serialize(given)
    except Exception as error:  # noqa: BLE001 - serdes may be user code
        return serde.encoding_failed(given, error)
    return None


def _explained(error: Exception, text: str) -> SerializationError:
    explained = SerializationError(text)
    explained.__cause__ = error
    return explained


def _raised_by_user(error: Exception) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or not str(trace.tb_frame.f_globals.get("__name__", "")).startswith("millpond.")
