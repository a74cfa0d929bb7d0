"""Records of a topic whose schema ids are in headers, as the rows that a task writes when it processes them.

A store that is restored from its input topic copies the record's bytes. Rows have no headers, so the schema's id would
be lost. Equal keys have equal bytes only if one serde wrote them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.errors import BrokerError
from millpond.serdes import Serde

__all__ = ("recoding",)

Record = tuple[bytes, bytes | None, int, Any]
"""Key, value, timestamp in ms and headers."""


def recoding(store: Any) -> Callable[[Record], Record] | None:
    """Return the function from a record to what a task would write for it; None if no header says how to read it.

    Raises:
        BrokerError: a schema registry does not answer; raised by the function.
    """
    key_serde, value_serde = getattr(store, "key_serde", None), getattr(store, "value_serde", None)
    if key_serde is None or value_serde is None:  # a store of one's own
        return None
    if key_serde.header is None and value_serde.header is None:
        return None

    def recoded(record: Record) -> Record:
        key, value, timestamp, headers = record
        if not headers:
            return record
        data = None if value is None else _recoded(value_serde, value, headers)
        return _recoded(key_serde, key, headers), data, timestamp, headers

    return recoded


def _recoded(serde: Serde[Any], data: bytes, headers: Any) -> bytes:
    framed = serde.framed(data, headers)
    if framed == data:
        return data
    try:
        return serde.serialize(serde.deserialize(framed))
    except BrokerError:
        raise
    except Exception:  # noqa: BLE001 - serdes may be user code; who reads the row gets the error
        return framed
