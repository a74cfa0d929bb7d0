"""The graph of a join of two tables by a foreign key (KIP-213): its nodes, topics, stores, and their names."""

# ruff: noqa: SLF001 - this is a part of KTable, in a module of its own

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from millpond.checks import check_function
from millpond.dsl.functions import check_partitioner, check_same_builder, check_value_function
from millpond.dsl.graph import GraphNode, OperatorNode
from millpond.dsl.materialized import Storage
from millpond.dsl.operators.lookup import StoreLookup
from millpond.dsl.operators.table_joins.foreign_key.receiving import (
    AnswerSubscribers,
    AnswerSubscription,
    KeepSubscription,
)
from millpond.dsl.operators.table_joins.foreign_key.resolving import ResolveResponse
from millpond.dsl.operators.table_joins.foreign_key.sending import Subscribe
from millpond.dsl.operators.table_joins.foreign_key.wire import (
    RESPONSES,
    SUBSCRIPTIONS,
    partitioner_of_keys,
    responses_to,
    written_keys,
)
from millpond.dsl.operators.table_joins.foreign_key.wiring import Wiring
from millpond.dsl.tables import FilteredTable, SourceTable, TableSourceGraphNode
from millpond.serdes import Bytes, Serde
from millpond.state import SubscriptionStoreBuilder
from millpond.topology import FailOnInvalidTimestamp, StreamPartitioner, Topology

if TYPE_CHECKING:
    from millpond.dsl.ktable import KTable

__all__ = ("join_by_foreign_key",)

_FK_JOIN = "KTABLE-FK-JOIN-"
_REGISTRATION = f"{_FK_JOIN}SUBSCRIPTION-REGISTRATION-"
_PROCESSOR = f"{_FK_JOIN}SUBSCRIPTION-PROCESSOR-"
_RESPONSE = f"{_FK_JOIN}SUBSCRIPTION-RESPONSE-"
_RESOLVER = f"{_RESPONSE}RESOLVER-PROCESSOR-"
_OUTPUT = f"{_FK_JOIN}OUTPUT-"


def join_by_foreign_key(  # noqa: PLR0913 - the arguments of join()
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    combine: Callable[..., Any],
    on: Callable[..., Any],
    name: str | None,
    options: Mapping[str, Any],
    *,
    is_left: bool,
) -> KTable[Any, Any]:
    """Add a join by a foreign key. The two tables may have different numbers of partitions.

    Raises:
        TopologyError: a function cannot be called as it has to be, or the tables come from different StreamsBuilders.
    """
    from millpond.dsl.ktable import KTable

    what = "left_join()" if is_left else "join()"
    check_same_builder(f"The two tables of {what}", left, right)
    check_value_function(what, combine, "value", "other table's value", with_key=False)
    extract = _extractor(what, on)
    partitioner, other_partitioner = options.get("partitioner"), options.get("other_partitioner")
    check_partitioner(what, partitioner)
    check_partitioner(what, other_partitioner)
    graph = left._graph
    right.send_old_values(materialize=True)
    left.send_old_values(materialize=True)

    # The order of generated names is that of Kafka Streams: each takes an index, also if the user names the join.
    registrations = graph.name_or(name, _REGISTRATION, "-subscription-registration") + "-topic"
    send = graph.name_or(name, _REGISTRATION, "-subscription-registration-processor")
    registration_sink = graph.name_or(name, "KTABLE-SINK-", "-subscription-registration-sink")
    registration_source = graph.name_or(name, "KTABLE-SOURCE-", "-subscription-registration-source")
    store = graph.name_or(name, f"{_FK_JOIN}SUBSCRIPTION-STATE-STORE-", "-subscription-store")
    receive = graph.name_or(name, _PROCESSOR, "-subscription-receive")
    answer = graph.name_or(name, _PROCESSOR, "-subscription-join-foreign")
    answer_all = graph.name_or(name, _PROCESSOR, "-foreign-join-subscription")
    responses = graph.name_or(name, _RESPONSE, "-subscription-response") + "-topic"
    response_sink = graph.name_or(name, "KTABLE-SINK-", "-subscription-response-sink")
    response_source = graph.name_or(name, "KTABLE-SOURCE-", "-subscription-response-source")
    resolve = graph.name_or(name, _RESOLVER, "-subscription-response-resolver")
    result = graph.name_or(name, _OUTPUT, "-result")
    storage = Storage.of(options, graph, _OUTPUT, left._key)

    wiring = Wiring(
        registrations,
        responses,
        store,
        left._key,
        left._value,
        right._key,
        right._value,
        partitioner,
        other_partitioner,
        f"{what} by a foreign key ('{send}')",
    )
    subscriptions = SubscriptionStoreBuilder(name=store, value=SUBSCRIPTIONS)
    right_view, left_view = right.view(), left.view()

    sender = OperatorNode(
        send,
        lambda: Subscribe(
            wiring, extract, is_left, left._node.is_versioned, remembers=not _stores_what_it_hashes(left)
        ),
    )
    graph.add(sender, left._node)
    registration = _InternalTopic(
        registration_source,
        registration_sink,
        registrations,
        written_keys(right._key),
        Bytes,
        SUBSCRIPTIONS,
        None if other_partitioner is None else partitioner_of_keys(wiring.shown, other_partitioner),
    )
    graph.add(registration, sender)
    graph.copartition(right._sources | {registration_source})
    receiver = OperatorNode(receive, lambda: KeepSubscription(wiring), store=lambda: subscriptions)
    graph.add(receiver, registration)
    answering = OperatorNode(answer, lambda: AnswerSubscription(wiring, right_view.lookup), uses=right_view.stores)
    graph.add(answering, receiver)
    answering_all = OperatorNode(
        answer_all, lambda: AnswerSubscribers(wiring, right._node.is_versioned), store=lambda: subscriptions
    )
    graph.add(answering_all, right._node)
    response = _InternalTopic(
        response_source,
        response_sink,
        responses,
        written_keys(left._key),
        left._key,
        RESPONSES,
        responses_to if partitioner is None else partitioner_of_keys(wiring.shown, partitioner),
    )
    graph.add(response, answering, answering_all)
    sources = left._sources | {response_source}
    graph.copartition(sources)
    resolver = OperatorNode(
        resolve,
        lambda: ResolveResponse(wiring, left_view.lookup, combine, is_left, remembers=not _stores_what_it_hashes(left)),
        uses=left_view.stores,
    )
    graph.add(resolver, response)
    logic = SourceTable(storage)
    node = OperatorNode(result, logic.body, store=logic.store, table=True)
    node.output_versioned = storage.history_ms is not None
    graph.add(node, resolver)
    return KTable(graph, result, node, left._key, storage.value, sources, logic, storage)


def _stores_what_it_hashes(table: KTable[Any, Any]) -> bool:
    """Return whether a store has the bytes from which subscriptions of the table's rows are hashed.

    A store that is restored from the source topic has the bytes of the topic's producer.
    """
    logic = table._logic
    if isinstance(logic, FilteredTable) and logic.store() is None:
        above = cast("KTable[Any, Any]", logic.parent)
        return table._value is above._value and _stores_what_it_hashes(above)
    node = table._node
    if isinstance(node, TableSourceGraphNode) and node.reuse_topic:
        return False
    return isinstance(logic.view().lookup, StoreLookup)


def _extractor(what: str, on: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return the user's function of value, or of key and value (KIP-1104), as one of key and value."""
    if callable(on):
        try:
            signature = inspect.signature(on, follow_wrapped=False)
        except (TypeError, ValueError):
            return lambda _key, value: on(value)
        try:
            signature.bind("key", "value")
        except TypeError:
            pass
        else:
            try:
                signature.bind("value")
            except TypeError:
                check_function(f"{what} on=", on, "key", "value")
                return on
    check_function(f"{what} on=", on, "value", cure="give it one parameter, the value, or two: the key and the value")
    return lambda _key, value: on(value)


class _InternalTopic(GraphNode):
    """An internal topic of the join. It has the name of the source that reads the topic."""

    def __init__(  # noqa: PLR0913 - a sink and a source
        self,
        source: str,
        sink: str,
        topic: str,
        written_key: Serde[Any],
        read_key: Serde[Any] | None,
        value: Serde[Any],
        partitioner: StreamPartitioner | None,
    ) -> None:
        super().__init__(source)
        self.sink = sink
        self.topic = topic
        self.written_key = written_key
        self.read_key = read_key
        self.value = value
        self.partitioner = partitioner

    def write(self, topology: Topology) -> None:
        """Add the internal topic, the sink and the source."""
        topology.add_repartition_topic(self.topic)
        topology.add_sink(
            self.sink,
            self.topic,
            *self.parent_names,
            key=self.written_key,
            value=self.value,
            partitioner=self.partitioner,
        )
        topology.add_source(
            self.name, self.topic, key=self.read_key, value=self.value, timestamp=FailOnInvalidTimestamp()
        )
