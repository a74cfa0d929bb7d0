"""The error for a row of a store that cannot be decoded, because another version of the application wrote it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from millpond.errors import BrokerError, MillpondError, SerializationError
from millpond.serdes import Serde

__all__ = ("UnreadableRow", "cure_of", "raise_error", "reader_of", "row_error")

#: Of msgspec, and so of Json and MsgPack.
_MISSING_FIELD = re.compile(r"missing required field `([^`]+)`")


class UnreadableRow(SerializationError):
    """A row of a store cannot be decoded. To drop the input record would not help, so no message advises it.

    Attributes:
        store: the name of the store.
        waited: what the row is, if it waited in the store to be sent, such as `result`: it alone is lost if the
            application continues. Empty if the row was needed for the input record.
    """

    def __init__(self, store: _Store, serde: Serde[Any], error: Exception, *, waited: str = "") -> None:
        """Describe the row.

        Args:
            store: the store.
            serde: the serde that cannot decode it.
            error: what the serde raised.
            waited: see the attribute.
        """
        self.store: str = store.name
        self.waited: str = waited
        super().__init__(f"store '{store.name}' has a row that {serde.name} cannot decode{_reason(store, error)}")
        self.__cause__: BaseException | None = error


def _reason(store: _Store, error: Exception) -> str:
    """Return the cause and the cures, as the rest of a sentence."""
    if isinstance(error, SerializationError):  # of a schema registry: its message has them
        return f": {str(error).removesuffix('.')}"
    default = f"{cure}, " if (cure := cure_of(error)) else ""
    return (
        f" ({type(error).__name__}: {' '.join(str(error).split())}), because it was written as another type. The input "
        f"record is not the cause: {default}keep the old type, {_OF_TOPIC if store.of_topic else _OF_CHANGELOG}"
    )


def cure_of(error: Exception, *, of: str = "rows") -> str:
    """Return the simplest cure for a row, or record, without a field that its type requires; no text for others."""
    missing = _MISSING_FIELD.search(str(error))
    return f"give the field `{missing[1]}` a default, with which old {of} are read" if missing else ""


_OF_TOPIC = "or produce the rows of its topic again"
_OF_CHANGELOG = (
    "give the store a new name so that it begins empty, or stop the workers and run `millpond reset` to make it again "
    "from the inputs"
)


class _Store(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def value_serde(self) -> Serde[Any]: ...
    @property
    def of_topic(self) -> bool: ...


def row_error(error: Exception, store: _Store, *, serde: Serde[Any] | None = None, waited: str = "") -> Exception:
    """Return the error for a row that cannot be decoded.

    Args:
        error: what the serde raised. Errors of which a row is no cause, such as those of brokers, are returned.
        store: the store.
        serde: the serde; None is that of the store's values.
        waited: see `UnreadableRow`.
    """
    if isinstance(error, UnreadableRow | BrokerError) or (
        isinstance(error, MillpondError) and not isinstance(error, SerializationError)
    ):
        return error
    return UnreadableRow(store, store.value_serde if serde is None else serde, error, waited=waited)


def reader_of(store: _Store) -> Callable[[bytes], Any]:
    """Return the function that decodes values of a store's rows, and raises `row_error`."""
    decode = store.value_serde.deserialize

    def read(data: bytes) -> Any:
        try:
            return decode(data)
        except Exception as error:
            raise row_error(error, store) from error

    return read


def raise_error(error: Exception, _timestamp: int) -> None:
    """Raise an error, where nothing handles rows that cannot be decoded."""
    raise error
