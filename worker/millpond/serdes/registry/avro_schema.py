"""The Avro schema of a type."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from msgspec import inspect

from millpond.errors import ConfigError

__all__ = ("avro_schema",)

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_RECORDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_ARRAYS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)
_PLAIN: dict[type, Any] = {
    inspect.BoolType: "boolean",
    inspect.IntType: "long",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BytesType: "bytes",
    inspect.ByteArrayType: "bytes",
    inspect.NoneType: "null",
    inspect.DateTimeType: {"type": "long", "logicalType": "timestamp-micros"},
    inspect.DateType: {"type": "int", "logicalType": "date"},
    inspect.TimeType: {"type": "long", "logicalType": "time-micros"},
    inspect.UUIDType: {"type": "string", "logicalType": "uuid"},
}


def avro_schema(type: type[Any], /, *, namespace: str = "") -> dict[str, Any]:
    """Return the Avro schema of a struct, a dataclass or a TypedDict, for `Avro(..., schema=...)`.

    Integers are `long`, fractions `double`, times in microseconds. A field that may be None is a union with `null`.
    Defaults of fields are those of the schema, so that older records can be read. If other programs depend on it, write
    it to a file, or compare it in a test.

    Args:
        type: the type.
        namespace: the namespace of its record, and of the records and enums in it.

    Raises:
        ConfigError: a field has a type that Avro's schema does not follow from, such as `Decimal` or `Any`.

    Example:
        >>> from millpond.serdes.registry import avro_schema
        >>> class Order(mp.Struct):
        ...     item: str
        >>> avro_schema(Order)["fields"]
        [{'name': 'item', 'type': 'string'}]
    """
    info = inspect.type_info(type)
    if not isinstance(info, _RECORDS) or getattr(info, "array_like", False):
        raise ConfigError(f"avro_schema needs a struct, a dataclass or a TypedDict, not {type!r}.")
    schema: dict[str, Any] = _Schemas(namespace).of(info, type.__qualname__)
    return schema


class _Schemas:
    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._classes: dict[str, Any] = {}

    def of(self, info: Any, path: str) -> Any:
        """Return the schema of a type; `path` names the field for messages."""
        if isinstance(info, inspect.Metadata):
            return self.of(info.type, path)
        if isinstance(info, _RECORDS) and not getattr(info, "array_like", False):
            return self._record(info, path)
        if isinstance(info, _ARRAYS):
            return {"type": "array", "items": self.of(info.item_type, path)}
        if isinstance(info, inspect.DictType) and isinstance(info.key_type, inspect.StrType):
            return {"type": "map", "values": self.of(info.value_type, path)}
        if isinstance(info, inspect.UnionType):
            return sorted((self.of(each, path) for each in info.types), key=lambda each: each != "null")
        if isinstance(info, (inspect.EnumType, inspect.LiteralType)):
            return self._enum(info, path)
        found = _PLAIN.get(type(info))
        if found is None:
            kind = type(info).__name__.removesuffix("Type")
            raise ConfigError(f"avro_schema has no Avro type for {path} ({kind}): write the schema by hand.")
        return found

    def _record(self, info: Any, path: str) -> Any:
        if (known := self._named(info.cls, path)) is not None:
            return known
        name = info.cls.__name__
        fields = [self._field(each, f"{name}.{each.encode_name}") for each in info.fields]
        space = {"namespace": self._namespace} if self._namespace else {}
        return {"type": "record", "name": _checked(name, path), **space, "fields": fields}

    def _field(self, field: Any, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": _checked(field.encode_name, path), "type": self.of(field.type, path)}
        default = field.default
        if field.default_factory in (list, dict, set, frozenset, tuple):
            default = {} if field.default_factory is dict else []
        default = _in_json(getattr(default, "value", default))  # the value of a member of an enum
        if default is None or isinstance(default, (bool, int, float, str, list, dict)):
            if isinstance(found["type"], list) and default is not None:  # a default is one of the union's first type
                found["type"] = sorted(found["type"], key=lambda each: each == "null")
            found["default"] = default
        return found

    def _enum(self, info: Any, path: str) -> Any:
        values = [each.value for each in info.cls] if isinstance(info, inspect.EnumType) else list(info.values)
        if all(type(each) is int for each in values):
            return "long"
        if not all(isinstance(each, str) for each in values):
            raise ConfigError(f"avro_schema has no Avro type for the values of {path}: write the schema by hand.")
        if isinstance(info, inspect.LiteralType) or not all(map(_NAME.fullmatch, values)):
            return "string"
        if (known := self._named(info.cls, path)) is not None:
            return known
        return {"type": "enum", "name": info.cls.__name__, "symbols": values}

    def _named(self, cls: Any, path: str) -> str | None:
        """Return the name of a class if its schema was written before."""
        known = self._classes.setdefault(cls.__name__, None)
        if known is None:
            self._classes[cls.__name__] = cls
            return None
        if known is not cls:
            raise ConfigError(
                f"avro_schema found two types with the name {cls.__name__}, at {path}: rename one of them."
            )
        return str(cls.__name__)


def _in_json(value: Any) -> Any:
    """Return a default as a schema has it: bytes as text, times as numbers. Other values are returned as they are."""
    match value:
        case bytes():
            return value.decode("latin-1")
        case datetime() if value.tzinfo is not None:
            return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        case datetime():  # its instant depends on the machine
            return value
        case date():
            return (value - date(1970, 1, 1)).days
        case time():
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        case UUID():
            return str(value)
        case _:
            return value


def _checked(name: str, path: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"avro_schema cannot use '{name}' of {path}, which is no name in Avro: rename it.")
    return name
