"""millpond: stream applications in Python with the semantics of Kafka Streams, exactly once.

Everything that a topology needs is here. `millpond.testing` tests one without a broker, `Worker` runs one.

A name is imported from its module when it is first used. So the control plane, which needs only the protocol, needs
neither Kafka's client nor RocksDB.
"""

from __future__ import annotations

import importlib
import sys
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msgspec import Struct as Struct
    from msgspec.structs import replace as replace

    from millpond.runtime.config.model import Config as Config
    from millpond.runtime.listeners import SuspendReason as SuspendReason
    from millpond.runtime.listeners import WorkerListener as WorkerListener
    from millpond.runtime.processing.handlers import DeadLetter as DeadLetter
    from millpond.runtime.processing.handlers import ErrorContext as ErrorContext
    from millpond.runtime.processing.handlers import Response as Response
    from millpond.runtime.processing.handlers import Result as Result
    from millpond.runtime.processing.handlers import dead_letter as dead_letter
    from millpond.runtime.states import WorkerState as WorkerState
    from millpond.runtime.worker.embedding.controls import CloseOptions as CloseOptions
    from millpond.runtime.worker.embedding.failures import (
        StreamThreadExceptionResponse as StreamThreadExceptionResponse,
    )
    from millpond.runtime.worker.embedding.local_stores import ReadOnlyKeyValueStore as ReadOnlyKeyValueStore
    from millpond.runtime.worker.embedding.local_stores import ReadOnlySessionStore as ReadOnlySessionStore
    from millpond.runtime.worker.embedding.local_stores import ReadOnlyVersionedStore as ReadOnlyVersionedStore
    from millpond.runtime.worker.embedding.local_stores import ReadOnlyWindowStore as ReadOnlyWindowStore
    from millpond.runtime.worker.embedding.metadata import LagInfo as LagInfo
    from millpond.runtime.worker.embedding.metadata import TaskMetadata as TaskMetadata
    from millpond.runtime.worker.embedding.metadata import ThreadMetadata as ThreadMetadata
    from millpond.runtime.worker.worker import Worker as Worker

    from . import testing as testing
    from .app import App as App
    from .dsl import BranchedKStream as BranchedKStream
    from .dsl import CogroupedKStream as CogroupedKStream
    from .dsl import EmitStrategy as EmitStrategy
    from .dsl import GlobalKTable as GlobalKTable
    from .dsl import JoinWindows as JoinWindows
    from .dsl import KGroupedStream as KGroupedStream
    from .dsl import KGroupedTable as KGroupedTable
    from .dsl import KStream as KStream
    from .dsl import KTable as KTable
    from .dsl import Materialized as Materialized
    from .dsl import MaterializedWindows as MaterializedWindows
    from .dsl import SessionWindowedCogroupedKStream as SessionWindowedCogroupedKStream
    from .dsl import SessionWindowedKStream as SessionWindowedKStream
    from .dsl import SessionWindows as SessionWindows
    from .dsl import SlidingWindows as SlidingWindows
    from .dsl import StreamJoined as StreamJoined
    from .dsl import StreamsBuilder as StreamsBuilder
    from .dsl import Suppressed as Suppressed
    from .dsl import TableJoined as TableJoined
    from .dsl import TimeWindowedCogroupedKStream as TimeWindowedCogroupedKStream
    from .dsl import TimeWindowedKStream as TimeWindowedKStream
    from .dsl import TimeWindows as TimeWindows
    from .dsl import UnlimitedWindows as UnlimitedWindows
    from .dsl import until_time_limit as until_time_limit
    from .dsl import until_window_closes as until_window_closes
    from .errors import MillpondError as MillpondError
    from .serdes import UUID as UUID
    from .serdes import Boolean as Boolean
    from .serdes import ByteBuffer as ByteBuffer
    from .serdes import Bytes as Bytes
    from .serdes import Double as Double
    from .serdes import Float as Float
    from .serdes import Int as Int
    from .serdes import Json as Json
    from .serdes import ListSerde as ListSerde
    from .serdes import Long as Long
    from .serdes import MsgPack as MsgPack
    from .serdes import Serde as Serde
    from .serdes import SessionWindowedSerde as SessionWindowedSerde
    from .serdes import Short as Short
    from .serdes import String as String
    from .serdes import TimeWindowedSerde as TimeWindowedSerde
    from .serdes import Void as Void
    from .serdes import Window as Window
    from .serdes import Windowed as Windowed
    from .state import KeyValueStore as KeyValueStore
    from .state import KeyValueStoreBuilder as KeyValueStoreBuilder
    from .state import SessionStore as SessionStore
    from .state import SessionStoreBuilder as SessionStoreBuilder
    from .state import StateStore as StateStore
    from .state import StateStoreBuilder as StateStoreBuilder
    from .state import TimestampedKeyValueStore as TimestampedKeyValueStore
    from .state import TimestampedWindowStore as TimestampedWindowStore
    from .state import ValueAndTimestamp as ValueAndTimestamp
    from .state import VersionedKeyValueStore as VersionedKeyValueStore
    from .state import VersionedKeyValueStoreBuilder as VersionedKeyValueStoreBuilder
    from .state import VersionedRecord as VersionedRecord
    from .state import WindowStore as WindowStore
    from .state import WindowStoreBuilder as WindowStoreBuilder
    from .topology import Change as Change
    from .topology import ConsumerRecordView as ConsumerRecordView
    from .topology import FailOnInvalidTimestamp as FailOnInvalidTimestamp
    from .topology import FixedKeyProcessor as FixedKeyProcessor
    from .topology import FixedKeyProcessorContext as FixedKeyProcessorContext
    from .topology import FixedKeyRecord as FixedKeyRecord
    from .topology import LogAndSkipOnInvalidTimestamp as LogAndSkipOnInvalidTimestamp
    from .topology import Processor as Processor
    from .topology import ProcessorContext as ProcessorContext
    from .topology import ProcessorMetrics as ProcessorMetrics
    from .topology import ProcessorSupplier as ProcessorSupplier
    from .topology import ProcessorWrapper as ProcessorWrapper
    from .topology import PunctuationType as PunctuationType
    from .topology import Record as Record
    from .topology import RecordContext as RecordContext
    from .topology import StreamPartitioner as StreamPartitioner
    from .topology import TaskId as TaskId
    from .topology import TimestampExtractor as TimestampExtractor
    from .topology import Topology as Topology
    from .topology import TopologyDescription as TopologyDescription
    from .topology import UsePartitionTimeOnInvalidTimestamp as UsePartitionTimeOnInvalidTimestamp
    from .topology import ValueTransformerContext as ValueTransformerContext
    from .topology import ValueTransformerWithKey as ValueTransformerWithKey
    from .topology import ValueTransformerWithKeySupplier as ValueTransformerWithKeySupplier
    from .topology import WallclockTimestampExtractor as WallclockTimestampExtractor

__version__ = "0.1.0"

_MODULES = {
    "millpond.app": ("App",),
    "msgspec": ("Struct",),
    "msgspec.structs": ("replace",),
    "millpond.dsl": (
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
        "TableJoined",
        "StreamsBuilder",
        "Suppressed",
        "TimeWindowedCogroupedKStream",
        "TimeWindowedKStream",
        "TimeWindows",
        "UnlimitedWindows",
        "until_time_limit",
        "until_window_closes",
    ),
    "millpond.errors": ("MillpondError",),
    "millpond.runtime.config.model": ("Config",),
    "millpond.runtime.listeners": ("SuspendReason", "WorkerListener"),
    "millpond.runtime.processing.handlers": ("DeadLetter", "ErrorContext", "Response", "Result", "dead_letter"),
    "millpond.runtime.states": ("WorkerState",),
    "millpond.runtime.worker.embedding.controls": ("CloseOptions",),
    "millpond.runtime.worker.embedding.failures": ("StreamThreadExceptionResponse",),
    "millpond.runtime.worker.embedding.local_stores": (
        "ReadOnlyKeyValueStore",
        "ReadOnlySessionStore",
        "ReadOnlyVersionedStore",
        "ReadOnlyWindowStore",
    ),
    "millpond.runtime.worker.embedding.metadata": ("LagInfo", "TaskMetadata", "ThreadMetadata"),
    "millpond.runtime.worker.worker": ("Worker",),
    "millpond.serdes": (
        "UUID",
        "Boolean",
        "ByteBuffer",
        "Bytes",
        "Double",
        "Float",
        "Int",
        "Json",
        "ListSerde",
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
    "millpond.state": (
        "KeyValueStore",
        "KeyValueStoreBuilder",
        "SessionStore",
        "SessionStoreBuilder",
        "StateStore",
        "StateStoreBuilder",
        "TimestampedKeyValueStore",
        "TimestampedWindowStore",
        "ValueAndTimestamp",
        "VersionedKeyValueStore",
        "VersionedKeyValueStoreBuilder",
        "VersionedRecord",
        "WindowStore",
        "WindowStoreBuilder",
    ),
    "millpond.topology": (
        "Change",
        "ConsumerRecordView",
        "FailOnInvalidTimestamp",
        "FixedKeyProcessor",
        "FixedKeyProcessorContext",
        "FixedKeyRecord",
        "LogAndSkipOnInvalidTimestamp",
        "Processor",
        "ProcessorContext",
        "ProcessorMetrics",
        "ProcessorSupplier",
        "ProcessorWrapper",
        "PunctuationType",
        "Record",
        "RecordContext",
        "StreamPartitioner",
        "TaskId",
        "TimestampExtractor",
        "Topology",
        "TopologyDescription",
        "UsePartitionTimeOnInvalidTimestamp",
        "ValueTransformerContext",
        "ValueTransformerWithKey",
        "ValueTransformerWithKeySupplier",
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
            from .names import absent

            text = absent("millpond", name, _HOMES)
            if _in_from_import(sys._getframe(1)):  # noqa: SLF001 - its way to the caller's frame
                raise ImportError(text, name="millpond", path=__file__)
            raise AttributeError(text, name=name)  # without obj=, for which Python would suggest a name once more
        value = globals()[name] = getattr(importlib.import_module(home), name)
        return value

    def _in_from_import(frame: FrameType) -> bool:
        """Return whether a frame runs `from millpond import …`, which would replace the text of an AttributeError."""
        from opcode import opmap

        return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
