"""Joins of two streams."""

from __future__ import annotations

from datetime import timedelta

from millpond.dsl import JoinWindows, StreamsBuilder
from millpond.serdes import String
from tests.oracle.topologies.cases import dsl, first, same, stream, value_of

APART = JoinWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(minutes=1))


@dsl
def stream_join(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.join(stream(b, "others"), first, APART).to("out")


@dsl
def stream_join_named(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.join(stream(b, "others"), first, APART, name="pair").to("out")


@dsl
def stream_join_store(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.join(stream(b, "others"), first, APART, store="kept").to("out")


@dsl
def stream_join_rekeyed(b: StreamsBuilder) -> None:
    s = stream(b, "in").select_key(value_of)
    s.join(stream(b, "others").select_key(value_of), first, APART, key=String, value=String).group_by_key().count()


@dsl
def stream_join_rekeyed_named(b: StreamsBuilder) -> None:
    s = stream(b, "in").select_key(value_of)
    others = stream(b, "others").select_key(value_of)
    s.join(others, first, APART, key=String, name="pair", store="kept").to("out")


@dsl
def stream_join_self(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.join(s, first, APART).to("out")


@dsl
def stream_left_join(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.left_join(stream(b, "others"), first, APART).to("out")


@dsl
def stream_left_join_named(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.left_join(stream(b, "others"), first, APART, name="pair", store="kept").to("out")


@dsl
def stream_outer_join(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.outer_join(stream(b, "others"), first, APART).to("out")


@dsl
def stream_outer_join_named(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.outer_join(stream(b, "others"), first, APART, name="pair", store="kept").to("out")


@dsl
def stream_outer_join_rekeyed(b: StreamsBuilder) -> None:
    s = stream(b, "in").select_key(value_of)
    others = stream(b, "others").select_key(value_of)
    s.outer_join(others, first, APART, key=String, value=String).group_by_key().count()


@dsl
def stream_join_chain(b: StreamsBuilder) -> None:
    s = stream(b, "in").select_key(value_of, key=String)
    once = s.join(stream(b, "others"), first, APART, value=String)
    once.join(s.map_values(same, value=String), first, APART).to("out")
