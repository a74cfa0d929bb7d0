"""Applications of a few lines, by decorators: functions for topics, and one object that is built, tested and run."""

from __future__ import annotations

import inspect
import os
import re
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from millpond.calls import checked
from millpond.checks import kind_of
from millpond.dsl import KStream, KTable, StreamsBuilder
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.topology import ProcessorWrapper, TimestampOf, Topology
from millpond.topology.naming import validate_name

if TYPE_CHECKING:
    from millpond.runtime.config.model import Config
    from millpond.runtime.listeners import WorkerListener
    from millpond.runtime.worker.worker import Worker
    from millpond.testing import TopologyTestDriver

__all__ = ("App",)

K = TypeVar("K")
V = TypeVar("V")
VR = TypeVar("VR")


@checked
class App:
    """A small application: decorated functions say what happens to the records of topics.

    It is a `StreamsBuilder` with a name: `app.builder` has all of the DSL. `millpond run module:app` runs it, too.

    Args:
        name: the application's id, unless a setting says otherwise.
        processor_wrapper: wraps every processor and operator (KIP-1112); None for none.

    Attributes:
        name: the same.
        builder: the builder of its topology.

    Example:
        >>> import millpond as mp
        >>> app = mp.App("shouting")
        >>> @app.map_values("words", to="shouts", key=mp.String, value=mp.String)
        ... def shout(word: str) -> str:
        ...     return word.upper()
        >>> with app.test() as driver:
        ...     driver.create_input_topic("words", key=mp.String, value=mp.String).pipe_input("a", "hello")
        ...     driver.create_output_topic("shouts", key=mp.String, value=mp.String).read_value()
        'HELLO'
    """

    def __init__(self, name: str, *, processor_wrapper: ProcessorWrapper | None = None) -> None:
        if not isinstance(name, str):
            raise TopologyError(f"App() needs the application's name as a text, not {kind_of(name)}.")
        self.name: str = validate_name(name, "application")
        self.builder: StreamsBuilder = StreamsBuilder(processor_wrapper=processor_wrapper)

    # Decorators

    def stream(
        self,
        *topics: str | re.Pattern[str],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        timestamp: TimestampOf[V] | None = None,
        reset: str | timedelta | None = None,
        name: str | None = None,
    ) -> Callable[[Callable[[KStream[K, V]], object]], Callable[[KStream[K, V]], object]]:
        """Give topics, read as a stream, to the decorated function, which writes what follows with the DSL.

        The function is called at once, with a `KStream`. The arguments are those of `StreamsBuilder.stream`.
        """
        given = self.builder.stream(*topics, key=key, value=value, timestamp=timestamp, reset=reset, name=name)

        def decorate(function: Callable[[KStream[K, V]], object]) -> Callable[[KStream[K, V]], object]:
            function(given)
            return function

        return decorate

    def table(
        self,
        topic: str,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        store: str | None = None,
    ) -> Callable[[Callable[[KTable[K, V]], object]], Callable[[KTable[K, V]], object]]:
        """Give a topic, read as a table, to the decorated function.

        The function is called at once, with a `KTable`. See `StreamsBuilder.table`; `app.builder.table()` has its
        further options, and returns a table for joins.
        """
        given: KTable[K, V] = self.builder.table(topic, **_given(key=key, value=value, store=store))

        def decorate(function: Callable[[KTable[K, V]], object]) -> Callable[[KTable[K, V]], object]:
            function(given)
            return function

        return decorate

    def map_values(
        self,
        topic: str,
        *,
        to: str,
        key: Serde[Any] | None = None,
        value: Serde[V] | None = None,
        result: Serde[VR] | None = None,
    ) -> Callable[[Callable[[V], VR | Awaitable[VR]]], Callable[[V], VR | Awaitable[VR]]]:
        """Write the decorated function's result for each value of a topic to another topic, with the record's key.

        Args:
            topic: the topic to read.
            to: the topic to write to.
            key: serde of the keys.
            value: serde of the values.
            result: serde of the results; default: that of the values.
        """
        stream: KStream[Any, Any] = self.builder.stream(topic, key=key, value=value)
        written: Serde[Any] | None = result if result is not None else value

        def decorate(function: Callable[[V], VR | Awaitable[VR]]) -> Callable[[V], VR | Awaitable[VR]]:
            mapper: Any = function
            step = stream.map_values_async if inspect.iscoroutinefunction(function) else stream.map_values
            mapped: KStream[Any, Any] = step(mapper, value=written)
            mapped.to(to, key=key, value=written)
            return function

        return decorate

    def foreach(
        self, topic: str, *, key: Serde[K] | None = None, value: Serde[V] | None = None
    ) -> Callable[[Callable[[K, V], object]], Callable[[K, V], object]]:
        """Call the decorated function with the key and the value of each record of a topic, for its effects.

        Args:
            topic: the topic to read.
            key: serde of the keys.
            value: serde of the values.
        """
        stream: KStream[Any, Any] = self.builder.stream(topic, key=key, value=value)

        def decorate(function: Callable[[K, V], object]) -> Callable[[K, V], object]:
            stream.foreach(function)
            return function

        return decorate

    # Running

    def build(self) -> Topology:
        """Return the topology of all that was decorated and built so far."""
        return self.builder.build()

    def __call__(self) -> Topology:
        """Return the topology, for `millpond run module:app`."""
        return self.build()

    def worker(
        self, config: Config | None = None, *, listener: WorkerListener | None = None, **settings: Any
    ) -> Worker:
        """Return a worker of the application, to be used as a `with` block or by `start()` and `close()`.

        Args:
            config: the configuration; None takes it from the environment (`MILLPOND_…`) and the settings.
            listener: notified of states, restores and commits.
            settings: settings by name, such as `bootstrap_servers="localhost:9092"`.

        Raises:
            ConfigError: a setting is unknown, missing or invalid, or settings are given beside a configuration.
        """
        from millpond.runtime.worker.worker import Worker

        return Worker(self.build(), _config(self.name, settings) if config is None else config, listener)

    def run(self, config: Config | None = None, **settings: Any) -> None:
        """Run a worker of the application until SIGINT (Ctrl-C) or SIGTERM; see `worker`.

        Raises:
            MillpondError: the worker cannot continue.
        """
        from millpond.runtime.loading import check_not_loading

        check_not_loading()  # before a setting is missing, which is not the mistake then
        worker = self.worker(config, **settings)
        with _stopped_by_signals(worker.stop):
            worker.run()

    def test(self, config: Mapping[str, object] | Config | None = None) -> TopologyTestDriver:
        """Return a test driver of the application, which needs no broker; see `TopologyTestDriver`."""
        from millpond.testing import TopologyTestDriver

        return TopologyTestDriver(self.build(), config)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _config(name: str, settings: Mapping[str, object]) -> Config:
    from millpond.runtime.config.model import Config
    from millpond.runtime.config.settings import PARSERS
    from millpond.runtime.config.sources import key_of, variable_for

    flags = {key_of(each, PARSERS): value for each, value in settings.items()}
    if variable_for("application.id") not in os.environ:
        flags.setdefault("application.id", name)
    return Config.load(flags=flags)


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first SIGINT or SIGTERM in the main thread; a second one ends the program as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _frame: object) -> None:
        signal.signal(number, before[signal.Signals(number)])
        stop()

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
