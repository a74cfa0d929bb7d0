"""The steps of a stream that run processors of the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from millpond.calls import checked
from millpond.dsl.functions import check_stores
from millpond.serdes import Serde
from millpond.topology import FixedKeyProcessorSupplier, Processor, ProcessorSupplier
from millpond.topology.suppliers import check_supplier, check_supply

if TYPE_CHECKING:
    from millpond.dsl.kstream import KStream

__all__ = ("ProcessorSteps",)

K = TypeVar("K")
V = TypeVar("V")
KR = TypeVar("KR")
VR = TypeVar("VR")


@checked
class ProcessorSteps(Generic[K, V]):
    """The steps of a stream that run processors of the user's own. `KStream` has them."""

    _key: Serde[Any] | None

    if TYPE_CHECKING:

        def _process(  # noqa: PLR0913 - names, serdes and supplier of one processor
            self,
            supplier: Any,
            prefix: str,
            stores: Iterable[str],
            name: str | None,
            key: Serde[Any] | None,
            value: Serde[Any] | None,
            *,
            rekeyed: bool = False,
        ) -> KStream[Any, Any]: ...

    @overload
    def process(
        self,
        supplier: ProcessorSupplier[K, V, KR, VR],
        *,
        stores: Iterable[str] = (),
        key: Serde[KR] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]: ...
    @overload
    def process(
        self,
        supplier: ProcessorSupplier[K, V, KR, VR | None],
        *,
        stores: Iterable[str] = (),
        key: Serde[KR] | None = None,
        value: Serde[VR],
        name: str | None = None,
    ) -> KStream[KR, VR | None]: ...
    def process(
        self,
        supplier: ProcessorSupplier[K, V, KR, Any],
        *,
        stores: Iterable[str] = (),
        key: Serde[KR] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KStream[KR, Any]:
        """Run a Processor, which may forward records with any key (KIP-820).

        Args:
            supplier: f() -> a new Processor, called once per task; often the class itself. The stores in its attribute
                `stores` are added and connected (KIP-401).
            stores: names of further stores that it uses.
            key: serde of the keys that it forwards.
            value: serde of the values that it forwards.
            name: name of the node.

        Example:
            >>> class Split(mp.Processor[str, str, str, str]):
            ...     def process(self, record):
            ...         for word in record.value.split():
            ...             self.context.forward(record.with_key(word))
            >>> lines.process(Split, key=mp.String, value=mp.String).to("lines-by-word")
        """
        check_supplier("process()", supplier)
        check_stores("process()", stores)
        return self._process(supplier, "KSTREAM-PROCESSOR-", stores, name, key, value, rekeyed=True)

    @overload
    def process_values(
        self,
        supplier: FixedKeyProcessorSupplier[K, V, VR],
        *,
        stores: Iterable[str] = (),
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def process_values(
        self,
        supplier: FixedKeyProcessorSupplier[K, V, VR | None],
        *,
        stores: Iterable[str] = (),
        value: Serde[VR],
        name: str | None = None,
    ) -> KStream[K, VR | None]: ...
    def process_values(
        self,
        supplier: FixedKeyProcessorSupplier[K, V, Any],
        *,
        stores: Iterable[str] = (),
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Run a FixedKeyProcessor. It cannot change keys, so nothing is repartitioned after it (KIP-820).

        Args:
            supplier: f() -> a new FixedKeyProcessor, called once per task; often the class itself. The stores in its
                attribute `stores` are added and connected (KIP-401).
            stores: names of further stores that it uses.
            value: serde of the values that it forwards.
            name: name of the node.

        Example:
            >>> class Stamped(mp.FixedKeyProcessor[str, str, str]):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(f"{record.timestamp} {record.value}"))
            >>> lines.process_values(Stamped, value=mp.String).to("stamped")
        """
        if not isinstance(supplier, type) or not issubclass(supplier, Processor):
            check_supplier("process_values()", supplier)
        check_supply(name or "process_values()", supplier, fixed_key=True)
        check_stores("process_values()", stores)
        return self._process(supplier, "KSTREAM-PROCESSVALUES-", stores, name, self._key, value)
