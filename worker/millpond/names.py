"""Names of Kafka Streams that millpond does not have: names that are missing, and names that are different here.

A test compares these tables with `docs/differences.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .checks import nearest

__all__ = ("NOT_YET", "OF_STREAMS", "PAGE", "absent", "java_names", "moved")

PAGE = "docs/differences.md"

MODULE = "millpond"

#: Names of Kafka Streams 4.1 that millpond does not have yet, by their owner.
NOT_YET: dict[str, tuple[str, ...]] = {}

_OPTIONS = "options are keyword arguments of the operator, such as {}"
#: Operators that streams and tables have.
OF_STREAMS = (
    "filter", "filter_not", "flat_map", "flat_map_values", "foreach", "group_by", "group_by_key", "join", "left_join",
    "map", "map_values", "merge", "peek", "print", "process", "process_values", "repartition", "select_key", "split",
    "suppress", "to", "to_stream", "to_table", "windowed_by",
)  # fmt: skip
_NOT_OF_TABLES = (
    "flat_map", "flat_map_values", "foreach", "group_by_key", "map", "merge", "peek", "print", "process",
    "process_values", "repartition", "select_key", "split", "to", "to_table",
)  # fmt: skip
_AGGREGATE_FIRST = "it is only grouped; call count(), reduce() or aggregate() on it first"
_AGGREGATIONS = ("aggregate", "count", "reduce")
_COGROUP_FIRST = "it is only cogrouped; call aggregate() on it first"
_COGROUP_ABOVE = "call cogroup() before windowed_by()"
_NO_COUNT = "cogrouped streams have an aggregator each; call aggregate()"
_NO_STRATEGY = "results of cogrouped streams are sent at each update; suppress(until_window_closes()) sends final ones"

_FUNCTIONS = (
    "Aggregator", "ForeachAction", "Initializer", "KeyValueMapper", "Merger", "Predicate", "Reducer",
    "TopicNameExtractor", "ValueJoiner", "ValueJoinerWithKey", "ValueMapper", "ValueMapperWithKey",
)  # fmt: skip
_LISTENER = "give a WorkerListener to Worker(topology, config, listener), which has its methods"
_THREADS = "a worker has one processing thread; start more workers instead"
_OF_QUERIES = "millpond.queries.Client finds the worker of a key by itself"

#: What to use in place of names that are called otherwise, or are elsewhere, by their owner.
_ELSEWHERE: dict[str, dict[str, str]] = {
    MODULE: {
        **dict.fromkeys(_FUNCTIONS, "a function takes its place, with the same arguments"),
        **dict.fromkeys(
            ("Transformer", "TransformerSupplier"), "KStream.process() takes its place, with a mp.Processor"
        ),
        **dict.fromkeys(
            ("ValueTransformer", "ValueTransformerSupplier"),
            "KStream.process_values() takes its place, with a mp.FixedKeyProcessor",
        ),
        **dict.fromkeys(("TimeWindowedDeserializer", "TimeWindowedSerializer"), "mp.TimeWindowedSerde is both"),
        **dict.fromkeys(("SessionWindowedDeserializer", "SessionWindowedSerializer"), "it is mp.SessionWindowedSerde"),
        "AutoOffsetReset": _OPTIONS.format("stream(…, reset=…)"),
        "Avro": "it is in millpond.serdes.registry",
        "Branched": _OPTIONS.format("branch(…, name=…, chain=…)"),
        "Consumed": _OPTIONS.format("stream(…, key=…, value=…)"),
        "ContextualProcessor": "Processor keeps its context by itself",
        "Duration": "durations are datetime.timedelta",
        "EmbeddedBroker": "it is in millpond.broker",
        "Grouped": _OPTIONS.format("group_by(…, key=…, name=…)"),
        "Joined": _OPTIONS.format("join(…, key=…, name=…)"),
        "JsonSchema": "it is in millpond.serdes.registry",
        "KafkaStreams": "mp.Worker takes its place, with start() and close(); `millpond run` runs one, too",
        "KeyValue": "a pair is a tuple (key, value)",
        "MockProcessorContext": "it is in millpond.testing",
        "Named": _OPTIONS.format("name="),
        "Printed": _OPTIONS.format("print(label=…, file=…)"),
        "Produced": _OPTIONS.format("to(…, key=…, value=…, partitioner=…)"),
        "Protobuf": "it is in millpond.serdes.registry",
        "Repartitioned": _OPTIONS.format("repartition(name=…, partitions=…)"),
        "Serdes": "serdes are mp.String, mp.Long, mp.Json(Type) and so on; Serdes.Integer() is mp.Int, and "
        "Serdes.ByteArray() is mp.Bytes",
        "Integer": "Serdes.Integer() is mp.Int",
        "ByteArray": "Serdes.ByteArray() is mp.Bytes",
        "StandbyUpdateListener": "WorkerListener has its methods, such as update_started",
        "StateRestoreListener": "WorkerListener has its methods",
        "StoreQueryParameters": _OPTIONS.format("worker.store(…, partition=…, stale=…)"),
        "Stores": "stores are described by mp.KeyValueStoreBuilder and its like, such as mp.WindowStoreBuilder; "
        "persistent=False puts one into memory, as Stores.inMemoryKeyValueStore()",
        "StreamsConfig": "settings are in mp.Config.of(…)",
        "TestInputTopic": "it is in millpond.testing",
        "TestOutputTopic": "it is in millpond.testing",
        "TestRecord": "mp.Record takes its place",
        "TopologyTestDriver": "it is in millpond.testing",
        "WindowedSerdes": "they are mp.TimeWindowedSerde and mp.SessionWindowedSerde",
    },
    "KStream": {
        **dict.fromkeys(
            (*_AGGREGATIONS, "windowed_by", "cogroup"), "group the stream first, by group_by_key() or group_by()"
        ),
        **dict.fromkeys(("transform", "flat_transform"), "process() takes its place"),
        **dict.fromkeys(("transform_values", "flat_transform_values"), "process_values() takes its place"),
        "branch": "split().branch(…) takes its place",
        "suppress": "only tables hold changes back, such as the result of an aggregation",
        "through": "repartition(), or to() and stream(), take its place",
        "to_stream": "it is a stream",
    },
    "KTable": {
        **dict.fromkeys(_NOT_OF_TABLES, "streams have it, and to_stream() makes one of the table"),
        **dict.fromkeys(_AGGREGATIONS, "group the table first, by group_by()"),
        "queryable_store_name": "it is called store_name here",
        "windowed_by": "windows are of streams: stream.group_by_key().windowed_by(…)",
    },
    "GlobalKTable": {
        **dict.fromkeys(
            (*OF_STREAMS, *_AGGREGATIONS), "a global table is only joined: stream.join(table, …, on=…)"
        ),
        "queryable_store_name": "it is called store_name here",
    },
    "Topology": {"connect_processor_and_state_stores": "it is called connect() here"},
    "Worker": {
        **dict.fromkeys(
            ("set_state_listener", "set_global_state_restore_listener", "set_standby_update_listener"), _LISTENER
        ),
        **dict.fromkeys(("add_stream_thread", "remove_stream_thread"), _THREADS),
        **dict.fromkeys(
            ("query_metadata_for_key", "streams_metadata_for_store", "metadata_for_all_streams_clients"), _OF_QUERIES
        ),
        "query": "store() reads the stores of this worker, and millpond.queries.Client those of all",
        "clean_up": "delete the directory of state.dir while the worker does not run; `millpond reset` resets the rest",
        "client_instance_ids": "clients push no metrics to brokers; metrics are served for Prometheus",
    },
    "KGroupedStream": dict.fromkeys((name for name in OF_STREAMS if name != "windowed_by"), _AGGREGATE_FIRST),
    "CogroupedKStream": {
        **dict.fromkeys((name for name in OF_STREAMS if name != "windowed_by"), _COGROUP_FIRST),
        **dict.fromkeys(("count", "reduce"), _NO_COUNT),
    },
    "SessionWindowedCogroupedKStream": {
        **dict.fromkeys(OF_STREAMS, _COGROUP_FIRST),
        **dict.fromkeys(("count", "reduce"), _NO_COUNT),
        "cogroup": _COGROUP_ABOVE,
        "emit_strategy": _NO_STRATEGY,
    },
    "TimeWindowedCogroupedKStream": {
        **dict.fromkeys(OF_STREAMS, _COGROUP_FIRST),
        **dict.fromkeys(("count", "reduce"), _NO_COUNT),
        "cogroup": _COGROUP_ABOVE,
        "emit_strategy": _NO_STRATEGY,
    },
    "SessionWindowedKStream": dict.fromkeys(OF_STREAMS, _AGGREGATE_FIRST),
    "TimeWindowedKStream": dict.fromkeys(OF_STREAMS, _AGGREGATE_FIRST),
    "KGroupedTable": dict.fromkeys(OF_STREAMS, _AGGREGATE_FIRST),
    "SessionWindows": {"with_grace": "write SessionWindows(gap, grace=…)"},
    "TimeWindows": {
        "with_grace": "write TimeWindows(size, grace=…)",
    },
    "BranchedKStream": dict.fromkeys(
        (*OF_STREAMS, *_AGGREGATIONS), "the branches are what default_branch() or no_default_branch() return"
    ),
}  # fmt: skip


def moved(owner: str) -> Iterable[str]:
    """Return the names, in snake_case, that a class has in Kafka Streams and not here."""
    return _ELSEWHERE.get(owner, ())


def java_names(names: Iterable[str]) -> Iterable[str]:
    """Yield names in snake_case, and as Java spells them."""
    for name in names:
        first, *others = name.split("_")
        yield name
        if first and others:
            yield first + "".join(map(str.title, others))


def absent(owner: str, name: str, there: Iterable[str] = ()) -> str:
    """Return the message of the AttributeError for an unknown name.

    Args:
        owner: the class, or `millpond` for the package.
        name: the unknown name.
        there: the names that the owner has, to suggest a near one; none if Python itself suggests one.
    """
    shown = "mp" if owner == MODULE else owner
    plain = f"{'module' if owner == MODULE else 'class'} {owner!r} has no attribute {name!r}"
    if name.startswith("_"):
        return plain
    known = [each for each in there if not each.startswith("_")]
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower() if name[0].islower() else name
    for spelled in (name, snake):
        if spelled in NOT_YET.get(owner, ()):
            return f"{shown}.{spelled} is not there yet; {PAGE} says what is missing, and what to do meanwhile."
        if cure := _ELSEWHERE.get(owner, {}).get(spelled):
            return f"{shown} has no {spelled}: {cure}."
    if snake != name and snake in known:
        return f"{shown} has no {name}: it is called {snake} here."
    near = nearest(name, known)
    if near:
        return f"{plain}; did you mean {near!r}?"
    return f"{plain}; {PAGE} says what there is"
