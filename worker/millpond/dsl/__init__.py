"""The DSL: streams and tables that build a Topology."""

from __future__ import annotations

from millpond.dsl.branching import BranchedKStream
from millpond.dsl.builder import StreamsBuilder
from millpond.dsl.global_table import GlobalKTable
from millpond.dsl.grouped_stream import KGroupedStream, TimeWindowedKStream
from millpond.dsl.grouped_table import KGroupedTable
from millpond.dsl.kstream import KStream
from millpond.dsl.ktable import KTable
from millpond.dsl.materialized import Materialized, MaterializedWindows
from millpond.dsl.suppressed import Suppressed, until_time_limit, until_window_closes
from millpond.dsl.windows import TimeWindows

__all__ = (
    "BranchedKStream",
    "GlobalKTable",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "Materialized",
    "MaterializedWindows",
    "StreamsBuilder",
    "Suppressed",
    "TimeWindowedKStream",
    "TimeWindows",
    "until_time_limit",
    "until_window_closes",
)
