"""The applications that a chaos run can run, and what a run has to know of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.chaos import application as orders
from tests.chaos.checks.stores import Copies, Layout, find_in_stores
from tests.chaos.checks.truth import STORES, Finding, Truth, find_in_changelogs, find_in_topics
from tests.chaos.generating import Generator
from tests.chaos.operators import application as operators
from tests.chaos.operators.checking import find_in_changelogs_of_tables, find_in_outputs
from tests.chaos.operators.generating import CLOSING_ROUNDS
from tests.chaos.operators.generating import Generator as OperatorGenerator
from tests.chaos.operators.watching import OperatorWatch
from tests.chaos.order_watching import OrderWatch
from tests.chaos.sending import Sender
from tests.chaos.watching import Watch
from tests.support.kafka import read, read_all

if TYPE_CHECKING:
    from tests.chaos.stage import Stage

__all__ = ("APPLICATION", "APPLICATIONS", "Application")

APPLICATION = "chaos"
"""The application id."""


@dataclass(frozen=True)
class Application:
    """An application, its input, and the checks of its results."""

    topics: Mapping[str, int]
    """The number of partitions of each topic that has to exist."""
    partitions: int
    """The number of partitions of the tasks."""
    inputs: Mapping[int, str]
    """A topic of each sub-topology, whose committed offsets name the owners of its tasks."""
    stores: Sequence[str]
    """The stores whose changelogs can be lost."""
    large_stores: Sequence[str]
    """Those with records that are larger than transaction markers: their changelogs can reject them."""
    rate: float
    """Input records per second, unless a run has another rate."""
    closing_rounds: int
    """How often the input has to close windows at the end."""
    generator: Callable[[str, int, float], Sender]
    watch: Callable[[str, Any], Watch]
    verify: Callable[[Stage, Any], tuple[list[Finding], Copies]]
    """Returns the violations, and what is on the disks of stopped workers."""


_WORDS = f"{APPLICATION}-{orders.WORDS}-repartition"
_ORDER_LAYOUTS = {
    orders.JOURNAL: Layout(0),
    orders.CUSTOMERS: Layout(0, timestamped=True),
    orders.WINDOWS: Layout(1, timestamped=True, segmented=True),
    orders.TOTALS: Layout(1, timestamped=True),
    orders.BUFFER: Layout(1),
}
_INTERNAL = [
    f"{APPLICATION}-{name}"
    for name in (
        "regrouped-repartition", "rekeyed-repartition",
        *(
            f"foreign-{kind}-subscription-{what}-topic"
            for kind in ("inner", "left")
            for what in ("registration", "response")
        ),
    )
]  # fmt: skip
_OPERATOR_LAYOUTS = {
    **{
        name: Layout(0, timestamped=True)
        for name in (
            "other", "count", "reduce", "aggregate", "table-inner", "table-left", "table-outer", "filter", "map-values",
            "to-table", "cogroup", "foreign-inner", "foreign-left", "cached", "held-back", "transformed",
        )
    },
    **{name: Layout(0) for name in ("kv", "changes", "waiting-for-clock", "waiting-for-stream")},
    # 1 is that of the global table.
    "regrouped": Layout(2, timestamped=True),
    "rekeyed": Layout(3, timestamped=True),
}  # fmt: skip


def _verify_orders(stage: Stage, generator: Generator) -> tuple[list[Finding], Copies]:
    truth = Truth(generator.orders, generator.versions)
    names = {
        orders.WORDS: _WORDS, orders.RESULTS: orders.RESULTS, orders.FINALS: orders.FINALS,
        orders.TOTALS: orders.TOTALS,
    }  # fmt: skip
    topics = {name: read(stage.address, topic) for name, topic in names.items()}
    changelogs = {store: read(stage.address, stage.changelog(store)) for store in STORES}
    findings = find_in_topics(topics, truth) + find_in_changelogs(changelogs, topics[orders.RESULTS], truth)
    return findings, find_in_stores(stage.directories, changelogs, stage.owners(), _ORDER_LAYOUTS, orders.PARTITIONS)


def _verify_operators(stage: Stage, _generator: Sender) -> tuple[list[Finding], Copies]:
    inputs = read_all(stage.address, operators.INPUTS)
    outputs = read_all(stage.address, operators.OUTPUTS, prefix=operators.OUT)
    layouts = _OPERATOR_LAYOUTS.copy()
    if stage.options.optimized:
        del layouts["other"]  # the topic of the table is its changelog
    changelogs = read_all(stage.address, layouts, prefix=f"{APPLICATION}-", suffix="-changelog")
    findings = find_in_outputs(inputs, outputs, optimized=stage.options.optimized)
    findings += find_in_changelogs_of_tables(changelogs, outputs)
    return findings, find_in_stores(stage.directories, changelogs, stage.owners(), layouts, operators.PARTITIONS)


APPLICATIONS: Mapping[str, Application] = {
    "orders": Application(
        topics=dict.fromkeys(
            (orders.ORDERS, orders.CUSTOMERS, orders.RESULTS, orders.FINALS, orders.TOTALS), orders.PARTITIONS
        ),
        partitions=orders.PARTITIONS,
        inputs={0: orders.ORDERS, 1: _WORDS},
        stores=(orders.JOURNAL, orders.CUSTOMERS, orders.WINDOWS, orders.TOTALS, orders.BUFFER),
        large_stores=(orders.JOURNAL, orders.WINDOWS, orders.TOTALS, orders.BUFFER),
        rate=200.0,
        closing_rounds=1,
        generator=Generator,
        watch=lambda address, generator: OrderWatch(address, generator, _WORDS),
        verify=_verify_orders,
    ),
    "operators": Application(
        topics=operators.TOPICS,
        partitions=operators.PARTITIONS,
        inputs={0: "left", 2: _INTERNAL[0], 3: _INTERNAL[1]},
        stores=(
            "count", "reduce", "in-memory", "tumbling", "suppress-final-store", "suppress-table-store", "hopping",
            "sliding", "session", "stream-inner-this-join-store", "stream-left-left-shared-join-store",
            "stream-outer-outer-shared-join-store", "table-inner", "kv", "windows", "duplicates", "sessions",
            "versioned-kv", "cogroup", "final-tumbling", "final-session",
            "foreign-inner-subscription-store",
            "lru", "versioned-count", "transformed", "joined-in-time-Buffer", "seen", "waiting-for-stream", "rekeyed",
        ),
        large_stores=(
            "tumbling", "suppress-final-store", "sliding", "session", "windows", "final-tumbling", "sessions",
        ),
        rate=25.0,
        closing_rounds=CLOSING_ROUNDS,
        generator=OperatorGenerator,
        watch=lambda address, generator: OperatorWatch(address, generator, _INTERNAL),
        verify=_verify_operators,
    ),
}  # fmt: skip
"""The applications by name."""
