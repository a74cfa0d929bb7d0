"""Explains serialization errors: names the serde, and the key or value that it rejects.

Operators and sinks call the bare functions of serdes, so the cause is determined after the error. For a number under
`String`, Python's own error is only `descriptor 'encode' for 'str' objects doesn't apply to a 'int' object`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any

from millpond.errors import SerializationError, TopologyError
from millpond.serdes import Serde
from millpond.state.own_stores import CustomStore
from millpond.state.unreadable_rows import UnreadableRow, row_error
from millpond.user_code import raised_in_millpond

_WRITING = ("encoded", "serialize", "stage", "stage_count", "put", "flush", "encode", "serialize_key")

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
    """Return a `SerializationError` if a row or a record's key does not fit a store of its node, else `error`."""
    if isinstance(error, TopologyError | UnreadableRow):
        return error
    if row := _unreadable_row(error):
        return row
    if not raised_in_millpond(error):
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


def _unreadable_row(error: Exception) -> Exception | None:
    """Return the error for a row that a store cannot decode, because it was written as another type; None otherwise."""
    trace = error.__traceback__
    readers: list[FrameType] = []
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__", "")).startswith("millpond.state.stores."):
            readers.append(frame)
        elif readers and frame.f_code.co_name in _WRITING:
            return None
        trace = trace.tb_next
    # Reading functions are methods of a store, or closures that have some; a comprehension has the method around it.
    if not readers or readers[-1].f_code.co_name.lstrip("_") in _WRITING:
        return None
    store = next(filter(None, map(_store_of, reversed(readers))), None)
    return None if store is None else row_error(error, store)


def _store_of(frame: FrameType) -> Any:
    """Return the store whose function a frame runs: `self`, or that of a method it uses."""
    for found in frame.f_locals.values():
        for each in (found, getattr(found, "__self__", None)):
            if isinstance(getattr(each, "value_serde", None), Serde) and isinstance(getattr(each, "name", None), str):
                return each
    return None
