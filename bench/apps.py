"""The topologies of the bench in millpond's DSL. `java/KafkaStreamsBench.java` has them in Java."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import millpond as mp
from bench.workloads import DIFFERENCE_MS, GRACE_MS, WINDOW_MS

WINDOW = timedelta(milliseconds=WINDOW_MS)
GRACE = timedelta(milliseconds=GRACE_MS)
DIFFERENCE = timedelta(milliseconds=DIFFERENCE_MS)


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


def _halves(records: mp.KStream[str, str]) -> tuple[mp.KStream[str, str], mp.KStream[str, str]]:
    """Return the records whose value begins with one of the digits 0 to 7, and the others."""
    return records.filter(lambda _, value: value[0] < "8"), records.filter(lambda _, value: value[0] >= "8")


def _stream_join(_builder: mp.StreamsBuilder, records: mp.KStream[str, str], options: Mapping[str, str]) -> None:
    left, right = _halves(records)
    windows = mp.JoinWindows.of_time_difference_and_grace(DIFFERENCE, GRACE)
    joined = left.join(
        right, lambda one, other: one[:50] + other[:50], windows, key=mp.String, this_value=mp.String,
        other_value=mp.String,
    )  # fmt: skip
    joined.to(options["output"], key=mp.String, value=mp.String)


def _session(_builder: mp.StreamsBuilder, records: mp.KStream[str, str], options: Mapping[str, str]) -> None:
    windows = mp.SessionWindows.of_inactivity_gap_and_grace(DIFFERENCE, GRACE)
    counts = records.group_by_key().windowed_by(windows).count()
    counts.to_stream().to(options["output"], key=mp.SessionWindowedSerde(mp.String), value=mp.Long)


def _sliding(_builder: mp.StreamsBuilder, records: mp.KStream[str, str], options: Mapping[str, str]) -> None:
    windows = mp.SlidingWindows.of_time_difference_and_grace(DIFFERENCE, GRACE)
    counts = records.group_by_key().windowed_by(windows).count()
    counts.to_stream().to(options["output"], key=mp.TimeWindowedSerde(mp.String, DIFFERENCE), value=mp.Long)


def _table_join(builder: mp.StreamsBuilder, records: mp.KStream[str, str], options: Mapping[str, str]) -> None:
    rows = builder.table(options["table"], key=mp.String, value=mp.String)
    joined = records.to_table().join(rows, lambda value, row: value + row)
    joined.to_stream().to(options["output"], key=mp.String, value=mp.String)


def _foreign_key(value: str) -> str:
    return f"k{int(value[:4], 16):07d}"


def _fk_join(builder: mp.StreamsBuilder, records: mp.KStream[str, str], options: Mapping[str, str]) -> None:
    rows = builder.table(options["table"], key=mp.String, value=mp.String)
    joined = records.to_table().join(rows, lambda value, row: value + row, on=_foreign_key, value=mp.String)
    joined.to_stream().to(options["output"], key=mp.String, value=mp.String)


def _cogroup(_builder: mp.StreamsBuilder, records: mp.KStream[str, str], options: Mapping[str, str]) -> None:
    left, right = _halves(records)
    totals = (
        left.group_by_key()
        .cogroup(lambda _key, _value, total: total + 1)
        .cogroup(right.group_by_key(), lambda _key, _value, total: total + 1000)
        .aggregate(lambda: 0, value=mp.Long)
    )
    totals.to_stream().to(options["output"], key=mp.String, value=mp.Long)


_WORKLOADS = {
    "stateless": _stateless,
    "count": _count,
    "window": _window,
    "join": _join,
    "stream_join": _stream_join,
    "session": _session,
    "sliding": _sliding,
    "table_join": _table_join,
    "fk_join": _fk_join,
    "cogroup": _cogroup,
}
