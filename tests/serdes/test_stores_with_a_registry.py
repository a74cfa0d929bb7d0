"""Serdes with a schema registry in stores: the subject is that of the topic behind the store."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp

pytest.importorskip("authlib", reason="needs the extra avro")

from millpond.serdes.registry import Avro, SchemaRegistry, avro_schema

HOUR = timedelta(hours=1)


class Product(mp.Struct):
    cents: int


Serde = mp.Serde[Product]
Build = Callable[[mp.StreamsBuilder, Serde], Any]


def _global(b: mp.StreamsBuilder, value: Serde) -> Any:
    table = b.global_table("products", key=mp.String, value=value, store="kept")
    return b.stream("in", key=mp.String, value=value).join(table, lambda _own, kept: kept, on=lambda key, _: key)


def _table(b: mp.StreamsBuilder, value: Serde) -> Any:
    return b.table("in", key=mp.String, value=value, store="kept", logging=False).to_stream()


def _reduced(b: mp.StreamsBuilder, value: Serde) -> Any:
    grouped = b.stream("in", key=mp.String, value=value).group_by_key()
    return grouped.reduce(lambda _, new: new, store="kept", logging=False).to_stream()


def _sessions(b: mp.StreamsBuilder, value: Serde) -> Any:
    grouped = b.stream("in", key=mp.String, value=value).group_by_key()
    table = grouped.windowed_by(mp.SessionWindows(HOUR)).reduce(lambda _, new: new, store="kept", logging=False)
    return table.to_stream().select_key(lambda windowed, _: windowed.key)


def _joined(b: mp.StreamsBuilder, value: Serde) -> Any:
    left, right = b.stream("in", key=mp.String, value=value), b.stream("products", key=mp.String, value=value)
    within = mp.JoinWindows.of_time_difference_with_no_grace(HOUR)
    return left.outer_join(right, lambda own, other: own or other, within, store="kept", logging=False)


@pytest.mark.parametrize("build", [_global, _table, _reduced, _sessions, _joined])
def test_a_store_without_a_changelog_keeps_values_with_a_schema(build: Build) -> None:
    """A global store uses its topic's subject, a store that is not logged that of the changelog it would have."""
    value = Avro(Product, registry=SchemaRegistry(f"mock://{uuid.uuid4()}"), schema=avro_schema(Product))
    builder = mp.StreamsBuilder()
    build(builder, value).to("out", key=mp.String, value=value)
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        if build in (_global, _joined):
            driver.create_input_topic("products", key=mp.String, value=value).pipe_input("tea", Product(1))
        driver.create_input_topic("in", key=mp.String, value=value).pipe_input("tea", Product(2))
        results = driver.create_output_topic("out", key=mp.String, value=value).read_values_to_list()
    assert results == [Product(1 if build is _global else 2)]
