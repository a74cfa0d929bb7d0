"""The logical graph of a stream application, and the Processor API. The DSL builds it, the runtime compiles it."""

from __future__ import annotations

from .context import (
    Body,
    Cancellable,
    Forward,
    Headers,
    NodeContext,
    RecordContext,
    StreamForward,
    TableForward,
    TaskContext,
    TaskId,
)
from .describing.description import TopologyDescription
from .naming import changelog_topic, decorate, is_repartition_topic
from .nodes import (
    GlobalStore,
    Node,
    ProcessorNode,
    RepartitionTopic,
    SinkNode,
    SourceNode,
    StoreBuilder,
    StreamPartitioner,
    Subtopology,
    TopicNameExtractor,
)
from .processor import (
    Change,
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyProcessorSupplier,
    FixedKeyRecord,
    Processor,
    ProcessorContext,
    ProcessorSupplier,
    PunctuationType,
    Record,
)
from .timestamps import (
    ConsumerRecordView,
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    TimestampExtractor,
    TimestampOf,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from .topology import Topology
from .transformer import ValueTransformerContext, ValueTransformerWithKey, ValueTransformerWithKeySupplier
from .user_metrics import ProcessorMetrics
from .wrapping import ProcessorWrapper

__all__ = (
    "Body",
    "Cancellable",
    "Change",
    "ConsumerRecordView",
    "FailOnInvalidTimestamp",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyProcessorSupplier",
    "FixedKeyRecord",
    "Forward",
    "GlobalStore",
    "Headers",
    "LogAndSkipOnInvalidTimestamp",
    "Node",
    "NodeContext",
    "Processor",
    "ProcessorContext",
    "ProcessorMetrics",
    "ProcessorNode",
    "ProcessorSupplier",
    "ProcessorWrapper",
    "PunctuationType",
    "Record",
    "RecordContext",
    "RepartitionTopic",
    "SinkNode",
    "SourceNode",
    "StoreBuilder",
    "StreamForward",
    "StreamPartitioner",
    "Subtopology",
    "TableForward",
    "TaskContext",
    "TaskId",
    "TimestampExtractor",
    "TimestampOf",
    "TopicNameExtractor",
    "Topology",
    "TopologyDescription",
    "UsePartitionTimeOnInvalidTimestamp",
    "ValueTransformerContext",
    "ValueTransformerWithKey",
    "ValueTransformerWithKeySupplier",
    "WallclockTimestampExtractor",
    "changelog_topic",
    "decorate",
    "is_repartition_topic",
)
