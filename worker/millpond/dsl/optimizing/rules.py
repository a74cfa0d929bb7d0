"""Which rewrites are applied: those that `build()` is given, or those of the setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from millpond.checks import kind_of
from millpond.dsl.graph import Graph
from millpond.dsl.joining.node import StreamJoinNode
from millpond.dsl.tables import TableSourceGraphNode
from millpond.errors import TopologyError
from millpond.topology.optimization import parse_optimization

from .repartition_topics import merge_repartition_topics

__all__ = ("default_optimization", "optimize", "rules_of")

_SETTING: ContextVar[frozenset[str]] = ContextVar("topology.optimization", default=frozenset())


@contextmanager
def default_optimization(rules: frozenset[str]) -> Iterator[None]:
    """Use these rewrites in each `StreamsBuilder.build()` in the block that has no `optimization=`."""
    token = _SETTING.set(rules)
    try:
        yield
    finally:
        _SETTING.reset(token)


def rules_of(optimization: str | Iterable[str] | None) -> frozenset[str]:
    """Return the rewrites that `optimization=` names; None stands for those of the setting.

    Raises:
        TopologyError: a name is unknown, or `none` or `all` is combined with others.
    """
    if optimization is None:
        return _SETTING.get()
    if not isinstance(optimization, str):
        if not isinstance(optimization, Iterable) or not all(isinstance(rule, str) for rule in optimization):
            raise TopologyError(
                f"build() takes for optimization= 'none', 'all' or names of rewrites, not {kind_of(optimization)}."
            )
        optimization = ",".join(optimization)
    try:
        return parse_optimization(optimization)
    except ValueError as error:
        raise TopologyError(f"build() has optimization={optimization!r}; {error}.") from None


def optimize(graph: Graph, rules: frozenset[str]) -> None:
    """Apply rewrites to a graph whose equal sources are merged."""
    nodes = graph.nodes
    if "reuse.ktable.source.topics" in rules:
        for node in nodes:
            if isinstance(node, TableSourceGraphNode):
                node.reuse_topic = True
    if "merge.repartition.topics" in rules:
        merge_repartition_topics(graph)
    if "single.store.self.join" in rules:
        for node in nodes:
            if isinstance(node, StreamJoinNode) and node.is_self_join:
                node.use_single_store()
