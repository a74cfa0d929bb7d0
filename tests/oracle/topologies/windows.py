"""Aggregations by sliding and unlimited windows."""

from __future__ import annotations

from datetime import timedelta

from millpond.dsl import SlidingWindows, StreamsBuilder, UnlimitedWindows, until_window_closes
from millpond.serdes import Long, String
from tests.oracle.topologies.cases import dsl, first, just_key, keep, stream, value_of

SLIDING = SlidingWindows.of_time_difference_and_grace(timedelta(hours=1), timedelta(minutes=10))


@dsl
def sliding_count(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().windowed_by(SLIDING).count().to_stream().select_key(just_key).to("out")


@dsl
def sliding_count_store(b: StreamsBuilder) -> None:
    grouped = stream(b, "in").group_by(value_of, key=String)
    grouped.windowed_by(SLIDING).count(store="slides", retention=timedelta(days=1))


@dsl
def sliding_count_serdes_only(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().windowed_by(SLIDING).count(value=Long)


@dsl
def sliding_aggregate_named(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().windowed_by(SLIDING).aggregate(str, keep, name="slide")


@dsl
def sliding_reduce(b: StreamsBuilder) -> None:
    reduced = stream(b, "in").group_by_key().windowed_by(SLIDING).reduce(first)
    reduced.suppress(until_window_closes())


@dsl
def unlimited_count(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().windowed_by(UnlimitedWindows.of()).count().to_stream().select_key(just_key).to("out")
