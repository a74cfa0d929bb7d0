"""The four topologies of the bench in millpond's DSL. `java/KafkaStreamsBench.java` has them in Java."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import millpond as mp
from bench.workloads import GRACE_MS, WINDOW_MS

WINDOW = timedelta(milliseconds=WINDOW_MS)
GRACE = timedelta(milliseconds=GRACE_MS)


def topology(options: Mapping[str, str]) -> mp.Topology:
    """Return the topology of `options["workload"]`, between the topics `input`, `table` and `output`.

    Raises:
        KeyError: an option is missing, or the workload does not exist.
    """
    builder = mp.StreamsBuilder()
    records = builder.stream(options["input"], key=mp.String, value=mp.String)
    _WORKLOADS[options["workload"]](builder, records, options)
    return builder.build()


def _stateless(_builder: mp.StreamsBuilder, records: mp.KStream[str, str], options: Mapping[str, str]) -> None:
    (
        records.map_values(lambda value: value.upper())
        .filter(lambda _, value: value[0] != "0")
        .to(options["output"], key=mp.String, value=mp.String)
    )


def _count(_builder: mp.StreamsBuilder, records: mp.KStream[str, str], options: Mapping[str, str]) -> None:
    records.group_by_key().count().to_stream().to(options["output"], key=mp.String, value=mp.Long)


def _window(_builder: mp.StreamsBuilder, records: mp.KStream[str, str], options: Mapping[str, str]) -> None:
    windows = mp.TimeWindows(WINDOW, grace=GRACE)
    counts = records.group_by_key().windowed_by(windows).count()
    counts.to_stream().to(options["output"], key=mp.TimeWindowedSerde(mp.String, WINDOW), value=mp.Long)


def _join(builder: mp.StreamsBuilder, records: mp.KStream[str, str], options: Mapping[str, str]) -> None:
    rows = builder.table(options["table"], key=mp.String, value=mp.String)
    records.join(rows, with_=lambda value, row: value + row).to(options["output"], key=mp.String, value=mp.String)


_WORKLOADS = {"stateless": _stateless, "count": _count, "window": _window, "join": _join}
