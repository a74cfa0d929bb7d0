"""The DSL: streams and tables from which a Topology is built."""

from __future__ import annotations

from .branching import BranchedKStream
from .builder import StreamsBuilder
from .cogroups.streams import CogroupedKStream, SessionWindowedCogroupedKStream, TimeWindowedCogroupedKStream
from .emit_strategy import EmitStrategy
from .global_table import GlobalKTable
from .grouped_stream import KGroupedStream, TimeWindowedKStream
from .grouped_table import KGroupedTable
from .joining.options import StreamJoined
from .joining.windows import JoinWindows
from .kstream import KStream
from .ktable import KTable
from .materialized import Materialized, MaterializedWindows
from .sessions.windowed import SessionWindowedKStream
from .sessions.windows import SessionWindows
from .suppressed import Suppressed, until_time_limit, until_window_closes
from .table_joins import TableJoined
from .windows import SlidingWindows, TimeWindows, UnlimitedWindows

__all__ = (
    "BranchedKStream",
    "CogroupedKStream",
    "EmitStrategy",
    "GlobalKTable",
    "JoinWindows",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "Materialized",
    "MaterializedWindows",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindows",
    "SlidingWindows",
    "StreamJoined",
    "StreamsBuilder",
    "Suppressed",
    "TableJoined",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindows",
    "UnlimitedWindows",
    "until_time_limit",
    "until_window_closes",
)
