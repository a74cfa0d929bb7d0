"""Public reports about rows that expire too early, or in the wrong window, from the trackers of peers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.errors import MillpondError

_MS = timedelta(milliseconds=1)
#: Keys that begin with another one, and go on with bytes around separators; with unrelated ones in their place.
_KEYS = {"key": "a", "key2": "b", "key|": "c", "key\x00": "d", "key\uffff": "e"}


def _sessions(stream: mp.KStream[str, str]) -> mp.KStream[str, Any]:
    windows = mp.SessionWindows(10 * _MS, grace=5 * _MS)
    return stream.group_by_key().windowed_by(windows).count(store="s").to_stream(lambda key, _: key.key)


def _sliding(stream: mp.KStream[str, str]) -> mp.KStream[str, Any]:
    windows = mp.SlidingWindows(10 * _MS, grace=5 * _MS)
    return stream.group_by_key().windowed_by(windows).count(store="s").to_stream(lambda key, _: key.key)


def _final(stream: mp.KStream[str, str]) -> mp.KStream[str, Any]:
    counts = stream.group_by_key().windowed_by(mp.TimeWindows(10 * _MS, grace=5 * _MS)).count(store="s")
    return counts.suppress(mp.until_window_closes()).to_stream(lambda key, _: key.key)


def _left_join(stream: mp.KStream[str, str]) -> mp.KStream[str, Any]:
    other = stream.filter(lambda _, value: value.endswith("7"))
    joined = stream.left_join(
        other, lambda left, right: len(left) + 100 * len(right or ""), mp.JoinWindows(3 * _MS, 3 * _MS, 5 * _MS)
    )
    return joined.map_values(lambda value: value)


@pytest.mark.parametrize("operator", [_sessions, _sliding, _final, _left_join])
@pytest.mark.parametrize("store", ["in_memory", "rocksDB"])
def test_expiry_of_one_key_leaves_keys_that_begin_with_it(
    operator: Callable[[mp.KStream[str, str]], mp.KStream[str, Any]], store: str
) -> None:
    """Quix Streams deleted the rows of `key2` when those of `key` expired: the range to delete began at the bare key.

    https://github.com/quixio/quix-streams/issues/1122
    """

    def results(names: dict[str, str]) -> list[tuple[str, Any]]:
        builder = mp.StreamsBuilder()
        operator(builder.stream("in", key=mp.String, value=mp.String)).to("out", key=mp.String, value=mp.Long)
        config = {"default.dsl.store": store}
        with mp.testing.TopologyTestDriver(builder.build(), config) as driver:
            topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
            for number in range(200):
                for place, name in enumerate(names.values()):
                    if (number + place) % (place + 2):
                        topic.pipe_input(name, str(number), number * 4)
            return driver.create_output_topic("out", key=mp.String, value=mp.Long).read_key_values_to_list()

    back = {unrelated: key for key, unrelated in _KEYS.items()}
    expected = [(back[key], value) for key, value in results(_KEYS)]
    assert len(expected) > 300
    assert sorted(results({key: key for key in _KEYS}), key=repr) == sorted(expected, key=repr)


def test_a_record_without_a_timestamp_is_in_no_window_of_1970() -> None:
    """Quix Streams added a time-to-live to the timestamp -1, and the row had expired in 1970.

    https://github.com/quixio/quix-streams/issues/1141
    """

    def counts(config: dict[str, object]) -> list[tuple[Any, int]]:
        builder = mp.StreamsBuilder()
        grouped = builder.stream("in", key=mp.String, value=mp.String).group_by_key()
        grouped.windowed_by(mp.TimeWindows(5_000 * _MS, grace=0 * _MS)).count(store="s")
        with mp.testing.TopologyTestDriver(builder.build(), config) as driver:
            topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
            for time in (1_700_000_000_000, -1, 1_700_000_000_001):
                topic.pipe_input("k", "v", time)
            store = driver.get_window_store("s")
            assert store is not None
            return [(place.start_ms, count) for place, count in store.all()]

    with pytest.raises(MillpondError, match="timestamp"):
        counts({})
    skipping = {"default.timestamp.extractor": "LogAndSkipOnInvalidTimestamp"}
    assert counts(skipping) == [(1_700_000_000_000, 2)]
