"""The steps of a stream that take one record at a time, without state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TextIO, TypeGuard, TypeVar, overload

from millpond.calls import checked
from millpond.checks import check_function
from millpond.dsl.functions import check_value_function
from millpond.dsl.operators.effects import Peek, Print
from millpond.dsl.operators.filtering import FilterStream
from millpond.dsl.operators.flattening import FlatMapRecords, FlatMapValues
from millpond.dsl.operators.mapping import MapRecords, MapValues, SelectKey
from millpond.serdes import Serde

if TYPE_CHECKING:
    from millpond.dsl.kstream import KStream
    from millpond.topology import Body

__all__ = ("RecordSteps",)

K = TypeVar("K")
V = TypeVar("V")
KR = TypeVar("KR")
VR = TypeVar("VR")


@checked
class RecordSteps(Generic[K, V]):
    """The steps of a stream that take one record at a time, without state. `KStream` has them."""

    _name: str
    _key: Serde[Any] | None
    _value: Serde[Any] | None

    if TYPE_CHECKING:

        def _next(  # noqa: PLR0913 - names, serdes and body of one operator
            self,
            body: Body,
            prefix: str,
            name: str | None,
            key: Serde[Any] | None,
            value: Serde[Any] | None,
            *,
            rekeyed: bool = False,
        ) -> KStream[Any, Any]: ...

        def _same(self, body: Body, prefix: str, name: str | None) -> KStream[K, V]: ...

    # At most one record out for each record in

    @overload
    def filter(self, predicate: Callable[[K, V], TypeGuard[VR]], *, name: str | None = None) -> KStream[K, VR]: ...
    @overload
    def filter(self, predicate: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]: ...
    def filter(self, predicate: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, Any]:
        """Keep the records for which `predicate(key, value)` is true.

        A predicate that is declared to return `TypeGuard[X]` says that such values are of type X, as those of the
        result are then.

        Example:
            >>> lines.filter(lambda key, line: "error" in line).to("errors")
        """
        check_function("filter()", predicate, "key", "value")
        return self._same(FilterStream(predicate), "KSTREAM-FILTER-", name)

    def filter_not(self, predicate: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Drop the records for which `predicate(key, value)` is true.

        Example:
            >>> lines.filter_not(lambda key, line: line.isspace()).to("texts")
        """
        check_function("filter_not()", predicate, "key", "value")
        return self._same(FilterStream(predicate, negate=True), "KSTREAM-FILTER-", name)

    def select_key(
        self, selector: Callable[[K, V], KR], *, key: Serde[KR] | None = None, name: str | None = None
    ) -> KStream[KR, V]:
        """Replace each key by `selector(key, value)`.

        Example:
            >>> lines.select_key(lambda key, line: len(line), key=mp.Long).to("lines-by-length")
        """
        check_function("select_key()", selector, "key", "value")
        return self._next(SelectKey(selector), "KSTREAM-KEY-SELECT-", name, key, self._value, rekeyed=True)

    def map(
        self,
        mapper: Callable[[K, V], tuple[KR, VR]],
        *,
        key: Serde[KR] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Replace each record by `mapper(key, value)`, a (key, value) pair.

        Example:
            >>> lines.map(lambda key, line: (line[:2], len(line)), key=mp.String, value=mp.Long).to("lengths")
        """
        check_function("map()", mapper, "key", "value")
        return self._next(MapRecords(mapper), "KSTREAM-MAP-", name, key, value, rekeyed=True)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], VR],
        *,
        with_key: Literal[False] = False,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], VR],
        *,
        with_key: Literal[True],
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def map_values(
        self,
        mapper: Callable[..., VR],
        *,
        with_key: bool = False,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Replace each value by `mapper(value)`, or by `mapper(key, value)` with `with_key=True`.

        Example:
            >>> lines.map_values(len, value=mp.Long).to("lengths")
            >>> lines.map_values(lambda key, line: f"{key}: {line}", with_key=True, value=mp.String).to("named")
        """
        check_value_function("map_values()", mapper, "value", with_key=with_key)
        return self._next(MapValues(mapper, with_key), "KSTREAM-MAPVALUES-", name, self._key, value)

    # Any number of records out for each record in

    def flat_map(
        self,
        mapper: Callable[[K, V], Iterable[tuple[KR, VR]]],
        *,
        key: Serde[KR] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Replace each record by those of `mapper(key, value)`, an iterable of (key, value) pairs.

        Example:
            >>> words = lines.flat_map(lambda key, line: [(word, 1) for word in line.split()], key=mp.String)
            >>> words.to("words", value=mp.Long)
        """
        check_function("flat_map()", mapper, "key", "value", iterated=True)
        return self._next(FlatMapRecords(mapper), "KSTREAM-FLATMAP-", name, key, value, rekeyed=True)

    @overload
    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[VR]],
        *,
        with_key: Literal[False] = False,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self,
        mapper: Callable[[K, V], Iterable[VR]],
        *,
        with_key: Literal[True],
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def flat_map_values(
        self,
        mapper: Callable[..., Iterable[VR]],
        *,
        with_key: bool = False,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Replace each value by those of `mapper(value)`, an iterable; `mapper(key, value)` with `with_key=True`.

        Example:
            >>> lines.flat_map_values(str.split, value=mp.String).to("words")
        """
        check_value_function("flat_map_values()", mapper, "value", with_key=with_key, iterated=True)
        return self._next(FlatMapValues(mapper, with_key), "KSTREAM-FLATMAPVALUES-", name, self._key, value)

    # Side effects

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Call `action(key, value)` for each record, and pass the record on.

        After a failure some records are processed again, and the action is called again for them.

        Example:
            >>> lines.peek(lambda key, line: print(key, line)).to("seen")
        """
        check_function("peek()", action, "key", "value")
        return self._same(Peek(action), "KSTREAM-PEEK-", name)

    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Call `action(key, value)` for each record. See `peek`; nothing is passed on.

        Example:
            >>> lines.foreach(lambda key, line: print(key, line))
        """
        check_function("foreach()", action, "key", "value")
        self._same(Peek(action), "KSTREAM-FOREACH-", name)

    def print(
        self,
        describe: Callable[[K, V], str] | None = None,
        *,
        label: str | None = None,
        file: TextIO | None = None,
        name: str | None = None,
    ) -> None:
        """Write a line `[label]: key, value` for each record. Nothing is passed on.

        Args:
            describe: f(key, value) -> the text to write in place of `key, value`.
            label: default: the name of the node above.
            file: default: standard output.
            name: name of the node.

        Example:
            >>> lines.print(label="lines")
        """
        if describe is not None:
            check_function("print()", describe, "key", "value")
        self._same(Print(label or self._name, describe, file), "KSTREAM-PRINTER-", name)
