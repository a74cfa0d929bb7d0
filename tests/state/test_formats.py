"""The bytes of state are those that Kafka Streams 4.1.0 writes, and decoding returns what was encoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond import serdes
from millpond.state import MemoryBackend, TimestampedKeyValueStore, ValueAndTimestamp, formats
from millpond.state.formats import BufferValue, RecordContext, decode_buffer_value, encode_buffer_value

TWO_HEADERS = [("trace", b"\x01\x02"), ("näme", None)]

# Printed by Kafka Streams 4.1.0: BufferValue(prior, old, new, context).serialize(8) followed by the buffer time.
BUFFER_VALUES = {
    "first update of a new key": (
        BufferValue(None, None, b"n", RecordContext(1700000000123, 42, 7, "flights", None)),
        5,
        "0000018bcfe5687b000000000000002a00000007666c69676874730000000700000000ffffffffffffffff"
        "000000016e0000000000000005",
    ),
    "old equals prior": (
        BufferValue(b"p", b"p", b"n", RecordContext(1700000000123, 42, 7, "flights", TWO_HEADERS)),
        1700000060000,
        "0000018bcfe5687b000000000000002a00000007666c6967687473000000070000000200000005747261636500000002010200000005"
        "6ec3a46d65ffffffff0000000170fffffffe000000016e0000018bcfe65260",
    ),
    "all values": (
        BufferValue(b"p", b"old", b"new", RecordContext(1700000000123, 42, 7, "t", None)),
        -1,
        "0000018bcfe5687b000000000000002a000000017400000007000000000000000170000000036f6c64000000036e6577"
        "ffffffffffffffff",
    ),
    "deletion": (
        BufferValue(b"p", b"old", None, RecordContext(1700000000123, 42, 7, "t", TWO_HEADERS)),
        0,
        "0000018bcfe5687b000000000000002a000000017400000007000000020000000574726163650000000201020000000"
        "56ec3a46d65ffffffff0000000170000000036f6c64ffffffff0000000000000000",
    ),
    "no old value": (
        BufferValue(b"p", None, b"new", RecordContext(1700000000123, 42, 7, "t", None)),
        0,
        "0000018bcfe5687b000000000000002a000000017400000007000000000000000170ffffffff000000036e65770000000000000000",
    ),
}

values = st.none() | st.binary(max_size=20)
longs = st.integers(-(2**63), 2**63 - 1)
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), values), min_size=1, max_size=3)
contexts = st.builds(
    RecordContext, longs, longs, st.integers(0, 2**31 - 1), st.none() | st.text(min_size=1, max_size=9), headers
)


@pytest.mark.parametrize("case", BUFFER_VALUES)
def test_a_buffered_update_has_the_bytes_of_the_original(case):
    """A suppress buffer of Kafka Streams can be read: changelog format version 3, byte by byte."""
    value, time, golden = BUFFER_VALUES[case]
    assert encode_buffer_value(value, time).hex() == golden
    assert decode_buffer_value(bytes.fromhex(golden)) == (value, time)


@given(st.builds(BufferValue, values, values, values, contexts), longs)
def test_a_buffered_update_survives_the_way_to_bytes_and_back(value, time):
    """Decoding returns the update with its context and headers."""
    assert decode_buffer_value(encode_buffer_value(value, time)) == (value, time)


@given(st.binary(max_size=80))
def test_invalid_buffered_update_is_rejected(data):
    """Invalid bytes raise ValueError; they become no wrong update, and crash nothing."""
    try:
        value, time = decode_buffer_value(data)
    except ValueError:
        return
    # Whatever was understood is written back with the same meaning.
    assert decode_buffer_value(encode_buffer_value(value, time)) == (value, time)


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_truncated_buffered_update_is_rejected(cut):
    """Truncated bytes raise ValueError, wherever they are cut off."""
    _, _, golden = BUFFER_VALUES["old equals prior"]
    with pytest.raises(ValueError, match="format version 3"):
        decode_buffer_value(bytes.fromhex(golden)[:-cut])


def test_a_window_key_has_the_bytes_of_the_original():
    """Key, start and sequence are as in Kafka Streams' WindowKeySchema."""
    assert formats.window_key(b"key", 1700000000000).hex() == "6b65790000018bcfe5680000000000"
    assert formats.window_key(b"", 0, formats.MAX_SEQUENCE).hex() == "00000000000000007fffffff"


@given(st.binary(max_size=12), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), st.binary(max_size=12))
def test_a_window_key_can_be_taken_apart(key, start, sequence, prefix):
    """Splitting returns key, start and sequence, whatever precedes the key."""
    data = prefix + formats.window_key(key, start, sequence)
    assert formats.split_window_key(data, len(prefix)) == (key, start, sequence)


def test_timestamped_row_and_changelog_record_have_kafkas_bytes():
    """Local rows have the bytes of Kafka's ValueAndTimestampSerializer; changelog records have the timestamp."""
    backend = MemoryBackend()
    store = TimestampedKeyValueStore("s", 7, backend, serdes.String, serdes.Long, changelog_topic="app-s-changelog")
    store.put("k", ValueAndTimestamp(9, 1700000000123))
    out: list = []
    store.flush(out)
    assert out == [("app-s-changelog", (9).to_bytes(8, "big"), b"k", 7, None, None, 1700000000123)]
    assert store.seal() == [(b"\0\0\0\x07k", bytes.fromhex("0000018bcfe5687b0000000000000009"))]


@given(st.binary(max_size=6), st.binary(max_size=6))
def test_prefix_bound_is_the_smallest_key_beyond_it(prefix, key):
    """A scan of a prefix ends where it should, also when the prefix ends in 0xFF."""
    bound = formats.next_prefix(prefix)
    assert key.startswith(prefix) == (key >= prefix and (bound is None or key < bound))
