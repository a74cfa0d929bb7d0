"""Metrics of an application's own, which processors record and the worker shows on `/metrics`.

They belong to one task: they begin at zero when the task starts, and end with it. Only the task's thread writes them.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypeVar, cast

from millpond.checks import kind_of
from millpond.errors import TopologyError

__all__ = (
    "LEVELS",
    "Counter",
    "Gauge",
    "Histogram",
    "MetricDefinition",
    "ProcessorMetrics",
    "RecordingLevel",
    "TaskMetrics",
    "UserMetrics",
)

RecordingLevel: TypeAlias = Literal["INFO", "DEBUG", "TRACE"]
"""From which `metrics.recording.level` on a metric is recorded: INFO always, TRACE only at the most detailed level."""

LEVELS: tuple[str, ...] = ("INFO", "DEBUG", "TRACE")
"""The values of `metrics.recording.level`, the least detailed first."""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_LONGEST = 100
_ENDINGS = ("_total", "_count", "_sum", "_bucket", "_created", "_info")
_MAX_NAMES = 100
_MAX_SERIES = 1_000
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TAKEN = frozenset({"application_id", "worker", "task", "node", "le"})


class Counter:
    """A number that only grows.

    Attributes:
        value: the sum of all increments.
    """

    __slots__ = ("_recorded", "value")

    def __init__(self, *, recorded: bool = True) -> None:
        self.value: float = 0
        self._recorded = recorded

    def inc(self, amount: float = 1) -> None:
        """Add an amount.

        Raises:
            ValueError: the amount is negative.
        """
        if amount < 0:
            raise ValueError(f"a counter only grows, so it cannot be changed by {amount}; use a gauge")
        if self._recorded:
            self.value += amount


class Gauge:
    """A number that goes up and down.

    Attributes:
        value: the last value.
    """

    __slots__ = ("_recorded", "value")

    def __init__(self, *, recorded: bool = True) -> None:
        self.value: float = 0
        self._recorded = recorded

    def set(self, value: float) -> None:
        """Set the value."""
        if self._recorded:
            self.value = value

    def inc(self, amount: float = 1) -> None:
        """Add an amount."""
        if self._recorded:
            self.value += amount

    def dec(self, amount: float = 1) -> None:
        """Subtract an amount."""
        self.inc(-amount)


class Histogram:
    """A distribution of numbers, such as sizes or durations.

    Attributes:
        bounds: the upper bounds of the buckets, inclusive and ascending; one more bucket has no bound.
        counts: the number of values in each bucket.
        sum: the sum of all values.
    """

    __slots__ = ("_recorded", "bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = _SECONDS, *, recorded: bool = True) -> None:
        self.bounds: tuple[float, ...] = tuple(bounds)
        self.counts: list[int] = [0] * (len(self.bounds) + 1)
        self.sum: float = 0.0
        self._recorded = recorded

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def observe(self, value: float) -> None:
        """Add a value."""
        if self._recorded:
            self.counts[bisect_left(self.bounds, value)] += 1
            self.sum += value

    @contextmanager
    def time(self) -> Iterator[None]:
        """Add the duration of a `with` block, in seconds, whether or not it raises."""
        if not self._recorded:
            yield
            return
        began = time.perf_counter()
        try:
            yield
        finally:
            self.observe(time.perf_counter() - began)


Instrument = Counter | Gauge | Histogram
_I = TypeVar("_I", Counter, Gauge, Histogram)


@dataclass(frozen=True)
class MetricDefinition:
    """The parts of a metric that are equal in all tasks of a worker."""

    name: str
    """The name, without `millpond_user_`."""
    kind: type[Instrument]
    text: str
    """The help text."""
    tags: tuple[str, ...]
    """The names of its tags, sorted."""
    bounds: tuple[float, ...] = ()
    """The bounds of a histogram's buckets."""


@dataclass(eq=False)
class UserMetrics:
    """The definitions that all tasks of a worker share: a name has one kind, one set of tags and one text."""

    level: str = "INFO"
    """`metrics.recording.level`."""
    definitions: dict[str, MetricDefinition] = field(default_factory=dict)
    """The definitions by name."""

    def records(self, level: str) -> bool:
        """Return whether metrics of a level are recorded."""
        return LEVELS.index(level) <= LEVELS.index(self.level)

    def define(self, where: str, new: MetricDefinition) -> MetricDefinition:
        """Return the definition of a name, which is `new` at its first use.

        Raises:
            TopologyError: the name is defined otherwise, or there are too many names.
        """
        known = self.definitions.get(new.name)
        if known is None:
            if len(self.definitions) >= _MAX_NAMES:
                raise TopologyError(
                    f"{where} adds metric '{new.name}' to the {_MAX_NAMES} names that a worker can have; use tags for "
                    "what differs."
                )
            self.definitions[new.name] = new
            return new
        if (known.kind, known.tags, known.bounds) != (new.kind, new.tags, new.bounds):
            raise TopologyError(
                f"{where} adds metric '{new.name}', which exists with another kind, other tags or other buckets; give "
                "one of the two another name."
            )
        return known


class TaskMetrics:
    """The metrics that the processors of one task record.

    Args:
        shared: the definitions of the worker.

    Attributes:
        shared: the same.
        instruments: the instruments by (name, node, values of the tags).
    """

    def __init__(self, shared: UserMetrics) -> None:
        self.shared: UserMetrics = shared
        self.instruments: dict[tuple[str, str, tuple[str, ...]], Instrument] = {}

    def of_node(self, node: str) -> ProcessorMetrics:
        """Return the metrics of one node."""
        return ProcessorMetrics(self, node)


class ProcessorMetrics:
    """The metrics of one processor (Kafka Streams' `StreamsMetrics`).

    Each method returns the same instrument for the same name and tags. Call it in `init()` and keep the result: what
    the instrument does for each record is one addition. On `/metrics`, names begin with `millpond_user_`, and each
    sample has the labels `application_id`, `worker`, `task` and `node`, and the tags.

    Every method raises TopologyError for a name or tag that cannot be used, for a name that is used in another way in
    the same worker, for more than 100 names in a worker, and for more than 1,000 instruments in a task.
    """

    __slots__ = ("_node", "_task")

    def __init__(self, task: TaskMetrics, node: str) -> None:
        self._task = task
        self._node = node

    def counter(
        self,
        name: str,
        text: str = "",
        *,
        tags: Mapping[str, str] | None = None,
        level: RecordingLevel = "INFO",
    ) -> Counter:
        """Return a counter, shown as `millpond_user_<name>_total`.

        Args:
            name: lower case with underscores, such as `orders_rejected`; in base units (seconds, bytes).
            text: the help text.
            tags: further labels; use few values, such as kinds of orders, never keys or ids.
            level: from which `metrics.recording.level` on it is recorded.
        """
        return self._instrument(Counter, name, text, tags, level)

    def gauge(
        self,
        name: str,
        text: str = "",
        *,
        tags: Mapping[str, str] | None = None,
        level: RecordingLevel = "INFO",
    ) -> Gauge:
        """Return a gauge, shown as `millpond_user_<name>`. See `counter`."""
        return self._instrument(Gauge, name, text, tags, level)

    def histogram(
        self,
        name: str,
        text: str = "",
        *,
        buckets: Iterable[float] = _SECONDS,
        tags: Mapping[str, str] | None = None,
        level: RecordingLevel = "INFO",
    ) -> Histogram:
        """Return a histogram, shown as `millpond_user_<name>`, with `_bucket`, `_sum` and `_count`. See `counter`.

        Args:
            name: as of a counter.
            text: the help text.
            buckets: upper bounds, ascending and at most 50; the default is for durations in seconds.
            tags: as of a counter.
            level: as of a counter.
        """
        bounds = tuple(map(float, buckets))
        if not 1 <= len(bounds) <= 50 or any(low >= high for low, high in pairwise(bounds)):
            raise TopologyError(
                f"{self._where} adds histogram '{name}', whose buckets={list(bounds)} are not 1 to 50 ascending bounds."
            )
        return self._instrument(Histogram, name, text, tags, level, bounds)

    def timer(
        self,
        name: str,
        text: str = "",
        *,
        tags: Mapping[str, str] | None = None,
        level: RecordingLevel = "INFO",
    ) -> Histogram:
        """Return a histogram of durations, shown as `millpond_user_<name>_seconds`: `with timer.time(): …`."""
        return self.histogram(f"{name}_seconds", text, tags=tags, level=level)

    @property
    def _where(self) -> str:
        return f"Processor '{self._node}'"

    def _instrument(  # noqa: PLR0913 - all that a metric has
        self,
        kind: type[_I],
        name: str,
        text: str,
        tags: Mapping[str, str] | None,
        level: str,
        bounds: tuple[float, ...] = (),
    ) -> _I:
        self._check(name, tags or {}, level)
        given = dict(sorted((tags or {}).items()))
        shared = self._task.shared
        definition = MetricDefinition(name, kind, text or f"{name} of processors.", tuple(given), bounds)
        shared.define(self._where, definition)
        key = (name, self._node, tuple(given.values()))
        instruments = self._task.instruments
        known = instruments.get(key)
        if isinstance(known, kind):
            return known
        if len(instruments) >= _MAX_SERIES:
            raise TopologyError(
                f"{self._where} adds metric '{name}' with {given} to the {_MAX_SERIES:,} instruments that a task can "
                "have; use fewer values of tags."
            )
        recorded = shared.records(level)
        made: Any = Histogram(bounds, recorded=recorded) if bounds else kind(recorded=recorded)
        if recorded:
            instruments[key] = made
        return cast("_I", made)

    def _check(self, name: object, tags: object, level: object) -> None:
        where = self._where
        if not isinstance(name, str) or len(name) > _LONGEST or not _NAME.fullmatch(name):
            raise TopologyError(
                f"{where} adds a metric with the name {name!r}; a name is lower-case words with underscores between "
                f"them, of at most {_LONGEST} characters, such as 'orders_rejected'."
            )
        if name.endswith(_ENDINGS):
            raise TopologyError(
                f"{where} adds metric '{name}', whose ending Prometheus adds or reserves; leave out "
                f"'_{name.rpartition('_')[2]}'."
            )
        if level not in LEVELS:
            raise TopologyError(f"{where} adds metric '{name}' with level={level!r}; use one of {', '.join(LEVELS)}.")
        if not isinstance(tags, Mapping):
            raise TopologyError(f"{where} adds metric '{name}' with {kind_of(tags)} as its tags; give a dict of texts.")
        for tag, value in tags.items():
            if not isinstance(tag, str) or not _NAME.fullmatch(tag) or tag in _TAKEN or not isinstance(value, str):
                raise TopologyError(
                    f"{where} adds metric '{name}' with the tag {tag!r}: {value!r}; a tag is a lower-case word with a "
                    f"text, and not one of {', '.join(sorted(_TAKEN))}."
                )
