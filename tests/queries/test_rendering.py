"""Keys in requests become the bytes in the store, for every serde."""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millpond as mp
from millpond.queries import FailureReason, QueryFailed
from millpond.queries.catalog import QueryableKind, StoreInfo
from millpond.queries.rendering import Format, KeyFormat, encode, raw_key, renderer
from tests.queries.application import Point
from tests.support import generated

SERDES = {
    mp.String: st.text(),
    mp.Long: st.integers(-(2**63), 2**63 - 1),
    mp.Short: st.integers(-(2**15), 2**15 - 1),
    mp.Double: st.floats(allow_nan=False, allow_infinity=False),
    mp.Boolean: st.booleans(),
    mp.UUID: st.uuids(),
    mp.Bytes: st.binary(),
    mp.Json(Point): st.builds(Point, st.integers(-99, 99), st.integers(-99, 99)),
    mp.Json(): st.recursive(st.integers(-99, 99) | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)),
    mp.MsgPack(Point): st.builds(Point, st.integers(-99, 99), st.integers(-99, 99)),
    mp.MsgPack(uuid.UUID): st.uuids(),
    mp.Json(dt.datetime): st.datetimes(timezones=st.just(dt.UTC)),
    mp.Json(Decimal): st.decimals(allow_nan=False, allow_infinity=False),
    mp.TimeWindowedSerde(mp.String, timedelta(seconds=1)): st.builds(
        lambda key, start: mp.Windowed(key, start, start + 1000), st.text(), st.integers(0, 2**50)
    ),
    mp.SessionWindowedSerde(mp.Json(Point)): st.builds(
        mp.Windowed, st.builds(Point, st.integers(-9, 9), st.integers(-9, 9)), st.just(5), st.integers(5, 2**50)
    ),
    mp.Serde("Celsius", lambda degrees: b"%.1f" % degrees, float, immutable=True): st.integers(-400, 400).map(
        lambda tenths: tenths / 10
    ),
}


def info(key, value=mp.Long):
    return StoreInfo(name="store", kind=QueryableKind.KEY_VALUE, partitions=3, key=key, value=value, timestamped=False)


@settings(max_examples=generated.examples(60))
@given(st.sampled_from(list(SERDES)).flatmap(lambda serde: st.tuples(st.just(serde), SERDES[serde])))
def test_rendered_key_finds_its_row(case):
    """A rendered key, sent back as JSON, text or base64, is the same key."""
    serde, key = case
    raw = serde.serialize(key)
    store = info(serde)
    shown = renderer(store, Format.JSON)((raw, 0, mp.Long.serialize(1)))
    text = json.dumps(json.loads(encode(shown))["key"])
    assert raw_key(store, text, KeyFormat.JSON) == raw
    if serde is mp.String:
        assert raw_key(store, key, KeyFormat.TEXT) == raw
    elif serde is not mp.Json():  # there a text is ambiguous
        assert raw_key(store, text, KeyFormat.TEXT) == raw
        if text.startswith('"') and not _is_json(json.loads(text)):
            assert raw_key(store, json.loads(text), KeyFormat.TEXT) == raw
    assert raw_key(store, base64.b64encode(raw).decode(), KeyFormat.BASE64) == raw
    assert renderer(store, Format.BASE64)((raw, 0, b"\0"))["key"] == base64.b64encode(raw).decode()


def _is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_value_without_json_form_is_an_error():
    """The message names the type, and how to get the bytes."""
    odd = mp.Serde("Odd", lambda value: b"", lambda data: complex(1, 2))
    with pytest.raises(QueryFailed, match=r"complex.*format=base64") as raised:
        encode(renderer(info(mp.String, odd), Format.JSON)((b"key", 0, b"")))
    assert raised.value.reason is FailureReason.STORE_EXCEPTION


def test_windowed_keys_go_to_the_partition_of_the_inner_key():
    """As the producer partitions them."""
    serde = mp.TimeWindowedSerde(mp.String, timedelta(seconds=1))
    inner = info(mp.String).partition_of(b"key")
    for start in range(0, 100_000, 10_000):
        raw = serde.serialize(mp.Windowed("key", start, start + 1000))
        assert info(serde).partition_of(raw) == inner


def test_ambiguous_keys_are_read_as_json():
    """If keys are arbitrary JSON, `5` is the number, and invalid JSON is text."""
    store = info(mp.Json())
    assert raw_key(store, "5", KeyFormat.TEXT) == b"5"
    assert raw_key(store, '"5"', KeyFormat.TEXT) == b'"5"'
    assert raw_key(store, "five", KeyFormat.TEXT) == b'"five"'
    assert raw_key(store, '{"b":1,"a":2}', KeyFormat.TEXT) == b'{"a":2,"b":1}'
    assert raw_key(info(mp.Json(str)), "5", KeyFormat.TEXT) == b'"5"'
    assert msgspec.json.decode(raw_key(info(mp.Json(Point)), '{"x":1,"y":2}', KeyFormat.TEXT)) == {"y": 2, "x": 1}


def test_row_of_another_type_is_an_error_with_the_cure():
    """It names the store and the field that needs a default."""
    with pytest.raises(QueryFailed) as raised:
        renderer(info(mp.String, mp.Json(Point)), Format.JSON)((b"k", 0, b'{"x":1}'))
    assert "store 'store': Json(Point) cannot decode 7 bytes" in str(raised.value)
    assert (
        "because it was written as another type: give the field `y` a default, with which old rows are read, or use "
        "format=base64 to get the bytes." in str(raised.value)
    )
