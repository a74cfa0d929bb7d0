"""Where parcels are, and what each depot has handled: Avro with a schema registry, from two generations of scanners."""

from datetime import datetime
from typing import Any

import millpond as mp
from millpond.serdes.registry import Avro, SchemaRegistry


class Parcel(mp.Struct, frozen=True):
    """The key of all parcels' records."""

    carrier: str
    number: int


class Scan(mp.Struct):
    """A parcel has arrived at a depot."""

    depot: str
    at: datetime
    grams: int | None = None  # old scanners have no scales


class Journey(mp.Struct):
    """What is known of a parcel."""

    origin: str = ""
    depot: str = ""
    scans: int = 0
    grams: int | None = None


class Load(mp.Struct):
    """What a depot has handled."""

    scans: int = 0
    grams: int = 0
    not_weighed: int = 0


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "parcels", "fields": list(fields)}


TIME = {"type": "long", "logicalType": "timestamp-millis"}
GRAMS = {"name": "grams", "type": ["null", "int"], "default": None}

PARCEL = record("Parcel", {"name": "carrier", "type": "string"}, {"name": "number", "type": "long"})
# Version 2 of a scan. Version 1, which old scanners still send, has `site` instead of `depot`, and no weight.
SCAN = record(
    "Scan",
    {"name": "depot", "type": "string", "aliases": ["site"]},  # its old name
    {"name": "at", "type": TIME},
    GRAMS,  # new, so it has a default
)
JOURNEY = record(
    "Journey",
    {"name": "origin", "type": "string"},
    {"name": "depot", "type": "string"},
    {"name": "scans", "type": "int"},
    GRAMS,
)
LOAD = record(
    "Load",
    {"name": "scans", "type": "int"},
    {"name": "grams", "type": "long"},
    {"name": "not_weighed", "type": "int", "default": 0},
)


class Serdes:
    """The serdes of the topics, with one registry."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self.parcel = Avro(Parcel, registry=registry, schema=PARCEL)
        self.scan = Avro(Scan, registry=registry, schema=SCAN)
        self.journey = Avro(Journey, registry=registry, schema=JOURNEY)
        self.load = Avro(Load, registry=registry, schema=LOAD)


def follow(_parcel: Parcel, scan: Scan, journey: Journey) -> Journey:
    return Journey(
        origin=journey.origin or scan.depot,
        depot=scan.depot,
        scans=journey.scans + 1,
        grams=journey.grams if scan.grams is None else scan.grams,
    )


def add(_depot: str, scan: Scan, load: Load) -> Load:
    if scan.grams is None:
        return Load(load.scans + 1, load.grams, load.not_weighed + 1)
    return Load(load.scans + 1, load.grams + scan.grams, load.not_weighed)


def parcels(registry: SchemaRegistry | None = None) -> mp.Topology:
    """Return the topology. Without a registry, its address is `$SCHEMA_REGISTRY_URL`."""
    serdes = Serdes(registry or SchemaRegistry())
    builder = mp.StreamsBuilder()
    scans = builder.stream("scans", key=serdes.parcel, value=serdes.scan)
    (
        scans.group_by_key()
        .aggregate(Journey, follow, store="journeys", key=serdes.parcel, value=serdes.journey)
        .to_stream()
        .to("journeys", key=serdes.parcel, value=serdes.journey)
    )
    (
        scans.group_by(lambda _parcel, scan: scan.depot, key=mp.String, value=serdes.scan, name="by-depot")
        .aggregate(Load, add, store="loads", value=serdes.load)
        .to_stream()
        .to("loads-by-depot", key=mp.String, value=serdes.load)
    )
    return builder.build()
