"""Joins of two streams by key and time."""

# ruff: noqa: SLF001 - this is a part of KStream, in a module of its own

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from millpond.checks import kind_of
from millpond.dsl.functions import check_join_keys, check_same_builder, check_value_function
from millpond.dsl.operators.window_join.inner import JoinWindow
from millpond.dsl.operators.window_join.outer import OuterJoinWindow
from millpond.dsl.operators.window_join.self_join import JoinSelfWindow
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.topology import Body

from .node import JoinSide, StreamJoinNode, windowed_node
from .options import JoinStorage
from .windows import JoinWindows

if TYPE_CHECKING:
    from millpond.dsl.kstream import KStream

__all__ = ("join_streams",)


def join_streams(  # noqa: PLR0913 - the arguments of join()
    what: str,
    left: object,
    right: object,
    combine: Callable[..., Any],
    windows: JoinWindows | None,
    on: object,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    name: str | None,
    options: Mapping[str, Any],
    *,
    with_key: bool,
    left_outer: bool = False,
    right_outer: bool = False,
) -> KStream[Any, Any]:
    """Add a join of two streams, with the processors, names and stores of Kafka Streams.

    With `left_outer`, records of the left side are sent without a partner, too; with `right_outer` those of the right.

    Raises:
        TopologyError: the windows are missing, or the streams come from different StreamsBuilders.
    """
    from millpond.dsl.kstream import KStream

    if not isinstance(windows, JoinWindows):
        given = "they are not given" if windows is None else f"not {kind_of(windows)}"
        raise TopologyError(
            f"{what} of two streams needs windows, such as "
            f"mp.JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5)); {given}."
        )
    if on is not None:
        raise TopologyError(f"{what} of two streams takes no on=: it is by the streams' keys; use select_key().")
    stream, other = cast("KStream[Any, Any]", left), cast("KStream[Any, Any]", right)
    check_value_function(what, combine, "value", "other value", with_key=with_key)
    graph = stream._graph
    check_same_builder("The two streams", stream, other)
    check_join_keys(what, stream._key, other._key)
    this_value, other_value = options.get("this_value") or stream._value, options.get("other_value") or other._value
    storage = JoinStorage.of(what, options, windows, key or stream._key)
    stream = stream._repartition_for_join(name and f"{name}-left", key, this_value)
    other = other._repartition_for_join(name and f"{name}-right", key, other_value)
    sources = stream._sources | other._sources
    graph.copartition(sources)

    # The order of generated names is that of Kafka Streams, including those that are not used.
    this_windowed = graph.name_or(name, "KSTREAM-WINDOWED-", "-this-windowed")
    other_windowed = graph.name_or(name, "KSTREAM-WINDOWED-", "-other-windowed")
    this_join = graph.generate("KSTREAM-OUTERTHIS-" if right_outer else "KSTREAM-JOINTHIS-")
    other_join = graph.generate("KSTREAM-OUTEROTHER-" if left_outer else "KSTREAM-JOINOTHER-")
    merged = graph.name_or(name, "KSTREAM-MERGE-", "-merge")
    this_suffix = "-outer-this-join" if right_outer else "-this-join"
    other_suffix = "-outer-other-join" if left_outer else "-other-join"
    base = storage.store
    this_store = storage.window_store(f"{base}{this_suffix}" if base else this_join, this_value, storage.this_store)
    other_store = storage.window_store(
        f"{base}{other_suffix}" if base else other_join, other_value, storage.other_store
    )
    join = name or base or merged
    graph.add(windowed_node(this_windowed, this_store.name, join), stream._node)
    graph.add(windowed_node(other_windowed, other_store.name, join), other._node)
    waiting = None
    if left_outer:
        shared_suffix = "-outer-shared-join" if right_outer else "-left-shared-join"
        number = this_join.rpartition("-")[2]
        named = base if storage.this_store is None else storage.this_store.name
        waiting_name = f"{named}{shared_suffix}" if named else f"KSTREAM-OUTERSHARED-{number}"
        waiting = storage.waiting_store(waiting_name, this_value, other_value)
    if base is None:
        for store in (this_store, other_store) if waiting is None else (this_store, other_store, waiting):
            graph.unnamed.add_store(store.name, logging=store.logging)
    before, after, grace = windows.before_ms, windows.after_ms, windows.grace_ms

    def body(other: str, *, right: bool, unmatched: bool) -> Body:
        if waiting is not None:
            return OuterJoinWindow(
                join, other, waiting.name, before, after, grace, combine, with_key, right=right, unmatched=unmatched
            )
        reach = (after, before) if right else (before, after)
        return JoinWindow(join, other, *reach, combine, with_key, right=right)

    node = StreamJoinNode(
        merged,
        JoinSide(
            this_windowed,
            f"{name}{this_suffix}" if name else this_join,
            this_store,
            lambda: body(other_store.name, right=False, unmatched=left_outer),
        ),
        JoinSide(
            other_windowed,
            f"{name}{other_suffix}" if name else other_join,
            other_store,
            lambda: body(this_store.name, right=True, unmatched=right_outer),
        ),
        own=lambda: JoinSelfWindow(this_store.name, before, after, this_store.retention_ms, combine, with_key),
        shared=waiting,
        relaxed_null_key=left_outer,
    )
    graph.add(node, stream._node, other._node)
    return KStream(graph, merged, node, key or stream._key, value, sources, repartition=False)
