"""The application, tested with a registry in the test's own process, and without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import millpond as mp
from examples.registry.app import JOURNEY, PARCEL, Journey, Load, Parcel, Scan, Serdes, parcels
from examples.registry.feed import OLD_SCAN
from millpond.serdes.registry import Avro, SchemaRegistry
from millpond.testing import TestInputTopic, TestOutputTopic, TopologyTestDriver

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
ONE, TWO = Parcel("north", 1), Parcel("north", 2)


class Depots:
    """The application's topics, and old and new scanners."""

    def __init__(self, driver: TopologyTestDriver, registry: SchemaRegistry) -> None:
        self.driver, self.registry = driver, registry
        serdes = Serdes(registry)
        self.new: TestInputTopic[Parcel, Scan] = driver.create_input_topic(
            "scans", key=serdes.parcel, value=serdes.scan
        )
        self.old: TestInputTopic[Parcel, Any] = driver.create_input_topic(
            "scans", key=serdes.parcel, value=Avro(registry=registry, schema=OLD_SCAN)
        )
        self.journeys: TestOutputTopic[Parcel, Journey] = driver.create_output_topic(
            "journeys", key=serdes.parcel, value=serdes.journey
        )
        self.loads: TestOutputTopic[str, Load] = driver.create_output_topic(
            "loads-by-depot", key=mp.String, value=serdes.load
        )


@pytest.fixture
def depots(request: pytest.FixtureRequest) -> Iterator[Depots]:
    registry = SchemaRegistry(f"mock://{request.node.name}")
    with TopologyTestDriver(parcels(registry)) as driver:
        yield Depots(driver, registry)


def test_old_and_new_scanners_are_read_alike(depots: Depots) -> None:
    depots.old.pipe_input(ONE, {"site": "Basel", "at": NOON})
    depots.new.pipe_input(ONE, Scan("Lyon", NOON, 700))
    assert depots.journeys.read_key_values_to_list() == [
        (ONE, Journey("Basel", "Basel", 1)),
        (ONE, Journey("Basel", "Lyon", 2, 700)),
    ]
    assert depots.loads.read_key_values_to_map() == {"Basel": Load(1, 0, 1), "Lyon": Load(1, 700)}


def test_both_versions_are_under_one_subject(depots: Depots) -> None:
    depots.old.pipe_input(ONE, {"site": "Basel", "at": NOON})
    depots.new.pipe_input(TWO, Scan("Basel", NOON, 700))
    first = depots.registry.version("scans-value", 1)
    latest = depots.registry.latest("scans-value")
    assert '"site"' in first.text
    assert '"aliases"' in latest.text
    assert latest.version == 2


def test_the_weight_of_a_parcel_is_kept_by_old_scanners(depots: Depots) -> None:
    depots.new.pipe_input(ONE, Scan("Basel", NOON, 700))
    depots.old.pipe_input(ONE, {"site": "Turin", "at": NOON})
    assert depots.journeys.read_key_values_to_map() == {ONE: Journey("Basel", "Turin", 2, 700)}


def test_an_older_reader_skips_what_it_does_not_know(depots: Depots) -> None:
    """Other programs may read the results with a schema of their own."""
    fields = [each for each in JOURNEY["fields"] if each["name"] in {"origin", "depot"}]
    short: Any = Avro(registry=depots.registry, schema={**JOURNEY, "fields": fields})
    depots.new.pipe_input(ONE, Scan("Basel", NOON, 700))
    written = depots.driver.create_output_topic("journeys", key=mp.Bytes, value=mp.Bytes)
    data = written.read_value()
    assert short.deserialize(data) == {"origin": "Basel", "depot": "Basel"}


def test_another_schema_of_the_key_makes_another_key(depots: Depots) -> None:
    """The id of the schema is in the bytes, and Kafka and stores compare bytes: so the key's schema never changes."""
    longer = {**PARCEL, "fields": [*PARCEL["fields"], {"name": "country", "type": "string", "default": "?"}]}
    key = Avro(Parcel, registry=depots.registry, schema=PARCEL).for_topic("scans", is_key=True)
    other: Any = Avro(registry=depots.registry, schema=longer).for_topic("scans", is_key=True)
    assert key.serialize(ONE) != other.serialize({"carrier": "north", "number": 1, "country": "?"})
