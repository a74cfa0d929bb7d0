"""millpond: stream applications in Python with the semantics of Kafka Streams, exactly once.

Everything that a topology needs is here. `millpond.testing` tests one without a broker, `Worker` runs one.

A name is imported from its module when it is first used. So the control plane, which needs only the protocol, needs
neither Kafka's client nor RocksDB.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msgspec import Struct as Struct
    from msgspec.structs import replace as replace

    from millpond import testing as testing
    from millpond.dsl import BranchedKStream as BranchedKStream
    from millpond.dsl import GlobalKTable as GlobalKTable
    from millpond.dsl import KGroupedStream as KGroupedStream
    from millpond.dsl import KGroupedTable as KGroupedTable
    from millpond.dsl import KStream as KStream
    from millpond.dsl import KTable as KTable
    from millpond.dsl import Materialized as Materialized
    from millpond.dsl import MaterializedWindows as MaterializedWindows
    from millpond.dsl import StreamsBuilder as StreamsBuilder
    from millpond.dsl import Suppressed as Suppressed
    from millpond.dsl import TimeWindowedKStream as TimeWindowedKStream
    from millpond.dsl import TimeWindows as TimeWindows
    from millpond.dsl import until_time_limit as until_time_limit
    from millpond.dsl import until_window_closes as until_window_closes
    from millpond.errors import MillpondError as MillpondError
    from millpond.runtime.config.model import Config as Config
    from millpond.runtime.listeners import WorkerListener as WorkerListener
    from millpond.runtime.worker.worker import Worker as Worker
    from millpond.serdes import UUID as UUID
    from millpond.serdes import Boolean as Boolean
    from millpond.serdes import Bytes as Bytes
    from millpond.serdes import Double as Double
    from millpond.serdes import Float as Float
    from millpond.serdes import Int as Int
    from millpond.serdes import Json as Json
    from millpond.serdes import Long as Long
    from millpond.serdes import MsgPack as MsgPack
    from millpond.serdes import Serde as Serde
    from millpond.serdes import SessionWindowedSerde as SessionWindowedSerde
    from millpond.serdes import Short as Short
    from millpond.serdes import String as String
    from millpond.serdes import TimeWindowedSerde as TimeWindowedSerde
    from millpond.serdes import Void as Void
    from millpond.serdes import Window as Window
    from millpond.serdes import Windowed as Windowed
    from millpond.state import KeyValueStoreBuilder as KeyValueStoreBuilder
    from millpond.state import ValueAndTimestamp as ValueAndTimestamp
    from millpond.state import WindowStoreBuilder as WindowStoreBuilder
    from millpond.topology import FailOnInvalidTimestamp as FailOnInvalidTimestamp
    from millpond.topology import FixedKeyProcessor as FixedKeyProcessor
    from millpond.topology import FixedKeyProcessorContext as FixedKeyProcessorContext
    from millpond.topology import FixedKeyRecord as FixedKeyRecord
    from millpond.topology import LogAndSkipOnInvalidTimestamp as LogAndSkipOnInvalidTimestamp
    from millpond.topology import Processor as Processor
    from millpond.topology import ProcessorContext as ProcessorContext
    from millpond.topology import ProcessorSupplier as ProcessorSupplier
    from millpond.topology import PunctuationType as PunctuationType
    from millpond.topology import Record as Record
    from millpond.topology import RecordContext as RecordContext
    from millpond.topology import StreamPartitioner as StreamPartitioner
    from millpond.topology import TaskId as TaskId
    from millpond.topology import TimestampExtractor as TimestampExtractor
    from millpond.topology import Topology as Topology
    from millpond.topology import TopologyDescription as TopologyDescription
    from millpond.topology import UsePartitionTimeOnInvalidTimestamp as UsePartitionTimeOnInvalidTimestamp
    from millpond.topology import WallclockTimestampExtractor as WallclockTimestampExtractor

__version__ = "0.1.0"

_MODULES = {
    "msgspec": ("Struct",),
    "msgspec.structs": ("replace",),
    "millpond.dsl": (
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
    ),
    "millpond.errors": ("MillpondError",),
    "millpond.runtime.config.model": ("Config",),
    "millpond.runtime.listeners": ("WorkerListener",),
    "millpond.runtime.worker.worker": ("Worker",),
    "millpond.serdes": (
        "UUID",
        "Boolean",
        "Bytes",
        "Double",
        "Float",
        "Int",
        "Json",
        "Long",
        "MsgPack",
        "Serde",
        "SessionWindowedSerde",
        "Short",
        "String",
        "TimeWindowedSerde",
        "Void",
        "Window",
        "Windowed",
    ),
    "millpond.state": ("KeyValueStoreBuilder", "ValueAndTimestamp", "WindowStoreBuilder"),
    "millpond.topology": (
        "FailOnInvalidTimestamp",
        "FixedKeyProcessor",
        "FixedKeyProcessorContext",
        "FixedKeyRecord",
        "LogAndSkipOnInvalidTimestamp",
        "Processor",
        "ProcessorContext",
        "ProcessorSupplier",
        "PunctuationType",
        "Record",
        "RecordContext",
        "StreamPartitioner",
        "TaskId",
        "TimestampExtractor",
        "Topology",
        "TopologyDescription",
        "UsePartitionTimeOnInvalidTimestamp",
        "WallclockTimestampExtractor",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_SUBMODULES = ("dsl", "errors", "protocol", "queries", "runtime", "serdes", "state", "testing", "topology")

if not TYPE_CHECKING:  # checkers know the names, and should miss all others
    __all__ = ("__version__", "testing", *sorted(_HOMES))  # noqa: PLE0604

    def __getattr__(name: str) -> object:
        if name in _SUBMODULES:
            return importlib.import_module(f"millpond.{name}")
        home = _HOMES.get(name)
        if home is None:
            from millpond.names import absent

            raise AttributeError(absent("millpond", name), name=name, obj=sys.modules[__name__])
        value = globals()[name] = getattr(importlib.import_module(home), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
