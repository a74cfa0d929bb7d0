"""A record that waited fails when a later one releases it: the dead letter is the one that failed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import millpond as mp

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CONTINUE = {"processing.exception.handler": "continue", "errors.dead.letter.queue.topic.name": "dead"}
WINDOWS = mp.JoinWindows.of_time_difference_and_grace(timedelta(seconds=10), timedelta(seconds=5))


def refuse(value: str) -> str:
    if value.startswith("bad"):
        raise ValueError(value)
    return value


def _streams(builder: mp.StreamsBuilder) -> tuple[mp.KStream[str, str], mp.KStream[str, str]]:
    return tuple(builder.stream(topic, key=mp.String, value=mp.String) for topic in ("in", "other"))  # type: ignore[return-value]


def _joiner(kind: str) -> Callable[[mp.StreamsBuilder], mp.KStream[Any, Any]]:
    def joined(builder: mp.StreamsBuilder) -> mp.KStream[Any, Any]:
        left, right = _streams(builder)
        result: mp.KStream[Any, Any] = getattr(left, kind)(right, lambda one, _: refuse(one), WINDOWS)
        return result

    return joined


def _step_below_a_join(builder: mp.StreamsBuilder) -> mp.KStream[Any, Any]:
    left, right = _streams(builder)
    return left.left_join(right, lambda one, _: one, WINDOWS).map_values(refuse)


def _batch_below_a_join(builder: mp.StreamsBuilder) -> mp.KStream[Any, Any]:
    left, right = _streams(builder)

    async def later(value: str) -> str:
        return refuse(value)

    return left.left_join(right, lambda one, _: one, WINDOWS).map_values_async(later)


def _join_with_grace(builder: mp.StreamsBuilder) -> mp.KStream[Any, Any]:
    table = builder.table("other", key=mp.String, value=mp.String, store="other", history_retention=timedelta(hours=1))
    stream = builder.stream("in", key=mp.String, value=mp.String)
    joined = stream.left_join(table, lambda one, _: one, grace=timedelta(seconds=10), value=mp.String)
    return joined.map_values(refuse)


CASES = {
    "left join": _joiner("left_join"),
    "outer join": _joiner("outer_join"),
    "a step below a join": _step_below_a_join,
    "an async step below a join": _batch_below_a_join,
    "a step below a join with grace": _join_with_grace,
}


@pytest.mark.parametrize("case", CASES)
def test_the_record_that_fails_is_the_dead_letter_and_all_others_have_one_result(case: str) -> None:
    """In Kafka Streams a joiner that raises for a waiting record holds up all later ones, and doubles earlier ones."""
    builder = mp.StreamsBuilder()
    CASES[case](builder).to("out", key=mp.String, value=mp.String)
    with mp.testing.TopologyTestDriver(builder.build(), CONTINUE) as driver:
        source = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for number in range(12):
            value = f"bad {number}" if number in (3, 7) else f"v{number}"
            source.pipe_input(f"k{number}", value, NOON + timedelta(seconds=20 * number))
        results = driver.create_output_topic("out", key=mp.String, value=mp.String).read_values_to_list()
        letters = driver.create_output_topic("dead", key=mp.String, value=mp.String).read_records_to_list()
    assert results == [f"v{number}" for number in range(11) if number not in (3, 7)]
    assert [(each.key, each.value) for each in letters] == [("k3", "bad 3"), ("k7", "bad 7")]
    assert all(dict(each.headers)["__streams.errors.record"] == b"failed" for each in letters)


def test_the_position_of_a_record_that_waited_is_in_its_dead_letter() -> None:
    """A join with grace knows it: the source record can be read again from there."""
    builder = mp.StreamsBuilder()
    _join_with_grace(builder).to("out", key=mp.String, value=mp.String)
    with mp.testing.TopologyTestDriver(builder.build(), CONTINUE) as driver:
        source = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for number, value in enumerate(("v0", "bad", "v2")):
            source.pipe_input("k", value, NOON + timedelta(minutes=number), headers=[("id", value.encode())])
        (letter,) = driver.create_output_topic("dead", key=mp.String, value=mp.String).read_records_to_list()
    headers = dict(letter.headers)
    assert (headers["id"], headers["__streams.errors.topic"], headers["__streams.errors.offset"]) == (
        b"bad",
        b"in",
        b"1",
    )


def test_final_results_and_results_from_a_cache_have_dead_letters_with_what_failed() -> None:
    """Their source records are not known any more: key and value are those of the step, as text or JSON."""
    builder = mp.StreamsBuilder()
    grouped = builder.stream("in", key=mp.String, value=mp.String).group_by_key()
    windowed = grouped.windowed_by(mp.TimeWindows(timedelta(minutes=1)))
    final = windowed.emit_strategy(mp.EmitStrategy.on_window_close()).count(store="final")
    final.to_stream().map(lambda window, count: (refuse(window.key), count)).to("finals", key=mp.String, value=mp.Long)
    cached = grouped.count(store="cached").to_stream()
    cached.map(lambda key, count: (refuse(key), count)).to("counts", key=mp.String, value=mp.Long)
    with mp.testing.TopologyTestDriver(builder.build(), CONTINUE) as driver:
        source = driver.create_input_topic("in", key=mp.String, value=mp.String)
        source.pipe_input("bad", "x", NOON)
        source.pipe_input("good", "x", NOON + timedelta(minutes=2))
        letters = driver.create_output_topic("dead", key=mp.String, value=mp.String).read_records_to_list()
        assert driver.create_output_topic("finals", key=mp.String, value=mp.Long).is_empty()
    start_ms = int(NOON.timestamp()) * 1_000
    assert sorted((each.key, each.value) for each in letters) == [
        ("bad", "1"),
        (f'{{"key":"bad","start_ms":{start_ms},"end_ms":{start_ms + 60_000}}}', "1"),
    ]


def test_a_source_record_without_key_and_value_is_its_own_dead_letter() -> None:
    """It is at hand, although it has neither: the letter has not those of the step."""
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String)
    stream.map(lambda _key, _value: ("k", "bad")).map_values(refuse).to("out", key=mp.String, value=mp.String)
    with mp.testing.TopologyTestDriver(builder.build(), CONTINUE) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input(None, None, NOON)
        (letter,) = driver.create_output_topic("dead", key=mp.String, value=mp.String).read_records_to_list()
    headers = dict(letter.headers)
    assert (letter.key, letter.value, headers["__streams.errors.offset"]) == (None, None, b"0")
    assert "__streams.errors.record" not in headers
