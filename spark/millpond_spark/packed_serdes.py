"""Pickle the serdes of a store, to send them to executors.

Serdes are functions, some of which Python cannot pickle: the methods of msgspec's decoders and of compiled formats. For
these the arguments of their constructors are sent. Classes of the application are sent by name, so executors need its
modules.
"""

from __future__ import annotations

import io
import pickle
import struct
from typing import Any

import msgspec
from pyspark import cloudpickle

from millpond import serdes
from millpond.errors import SnapshotError
from millpond.serdes import Serde

__all__ = ("pack", "unpack")

_PRIMITIVES = {id(each): name for name in serdes.__all__ if isinstance(each := getattr(serdes, name), Serde)}
_Base: Any = cloudpickle.Pickler


def _reduced(pickler: Any, obj: Any) -> Any:
    """Return the reduced form of an object that Python cannot pickle; see `pickle.Pickler.reducer_override`."""
    if id(obj) in _PRIMITIVES:
        return getattr, (serdes, _PRIMITIVES[id(obj)])
    if isinstance(obj, struct.Struct):
        return struct.Struct, (obj.format,)
    if isinstance(obj, msgspec.json.Decoder):
        return _json_decoder, (obj.type, obj.strict, obj.dec_hook, obj.float_hook)
    if isinstance(obj, msgspec.msgpack.Decoder):
        return _msgpack_decoder, (obj.type, obj.strict, obj.dec_hook, obj.ext_hook)
    if isinstance(obj, msgspec.json.Encoder | msgspec.msgpack.Encoder):
        return _encoder, (type(obj), obj.enc_hook, obj.decimal_format, obj.uuid_format, obj.order)
    return _Base.reducer_override(pickler, obj)


_Pickler: Any = type("_Pickler", (_Base,), {"reducer_override": _reduced})


def pack(key: Serde[Any], value: Serde[Any]) -> bytes | None:
    """Return the serdes of keys and values as bytes; None if they cannot be pickled, as with a connection."""
    target = io.BytesIO()
    try:
        _Pickler(target, protocol=pickle.DEFAULT_PROTOCOL).dump((key, value))
    except Exception:  # noqa: BLE001  # a serde may contain anything
        return None
    return target.getvalue()


def unpack(data: bytes, store: str) -> tuple[Serde[Any], Serde[Any]]:
    """Return the serdes of keys and values from the bytes that `pack` returned.

    Raises:
        SnapshotError: this executor cannot import a module that they need.
    """
    try:
        key, value = pickle.loads(data)  # noqa: S301  # from this job's own driver
    except ImportError as error:
        raise SnapshotError(
            f"an executor cannot import a module for the serdes of store '{store}' ({error}): install the application "
            "for Spark's executors, as for workers."
        ) from error
    return key, value


def _json_decoder(type: Any, strict: bool, dec_hook: Any, float_hook: Any) -> Any:  # noqa: FBT001  # called by pickle
    return msgspec.json.Decoder(type, strict=strict, dec_hook=dec_hook, float_hook=float_hook)


def _msgpack_decoder(type: Any, strict: bool, dec_hook: Any, ext_hook: Any) -> Any:  # noqa: FBT001  # called by pickle
    return msgspec.msgpack.Decoder(type, strict=strict, dec_hook=dec_hook, ext_hook=ext_hook)


def _encoder(kind: Any, enc_hook: Any, decimal_format: str, uuid_format: str, order: Any) -> Any:
    return kind(enc_hook=enc_hook, decimal_format=decimal_format, uuid_format=uuid_format, order=order)
