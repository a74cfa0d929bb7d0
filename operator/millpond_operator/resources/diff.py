"""The comparison of manifests with objects: whether applying would change the object's last known state.

There are two kinds of differences: another client changed the object, or the operator has a new manifest. The first is
found by comparing field by field. The second is found by a digest of the manifest, which is applied with it as an
annotation: a field that was removed from the manifest is still in the object, so comparing fields does not show it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation, Overflow
from typing import Any

from .names import APPLIED, LEADER_EPOCH, Object

__all__ = ("amount", "content", "digest", "finish", "same", "was_applied", "within")

_KEYS: Mapping[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""Lists that may have further items, with the fields that identify an item."""

_SETS = frozenset({"finalizers"})
_EXACT = frozenset({"labelSelector", "matchLabels", "namespaceSelector", "nodeSelector", "podSelector", "selector"})
"""Objects in which an additional key changes the meaning, such as a selector."""
_AMOUNTS = frozenset({"requests", "limits", "capacity", "sizeLimit"})
"""Fields whose quantities the API server normalizes: ``1024Mi`` becomes ``1Gi``."""

_SUFFIXES = {
    suffix: factor
    for power, names in enumerate(
        (("", ""), ("Ki", "k"), ("Mi", "M"), ("Gi", "G"), ("Ti", "T"), ("Pi", "P"), ("Ei", "E"))
    )
    for suffix, factor in zip(names, (Decimal(1024) ** power, Decimal(1000) ** power), strict=True)
} | {"m": Decimal("1e-3"), "u": Decimal("1e-6"), "n": Decimal("1e-9")}

_PRECISE = Context(prec=100)
_PRECISE.traps[Overflow] = False
_MAX_QUANTITY = Decimal(2**63 - 1)
"""The largest quantity of the API server."""


def digest(value: Any) -> str:
    """Return a digest of JSON that does not depend on the order of keys or on the process."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def finish(object: Object, leader_epoch: int) -> Object:
    """Add the digest and the leader epoch to a manifest. This is the last step before it is applied."""
    bare = _bare(object)
    metadata = bare["metadata"]
    own = {APPLIED: digest(bare), LEADER_EPOCH: str(leader_epoch)}
    return bare | {"metadata": metadata | {"annotations": metadata.get("annotations", {}) | own}}


def same(desired: Object, observed: Mapping[str, Any]) -> bool:
    """Return whether applying a manifest, finished or not, would leave the object unchanged.

    The epoch of the leader that applied it does not count.
    """
    annotations = observed.get("metadata", {}).get("annotations") or {}
    return was_applied(desired, observed) and LEADER_EPOCH in annotations and within(_bare(desired), observed)


def was_applied(desired: Object, observed: Mapping[str, Any]) -> bool:
    """Return whether this manifest was applied last, whatever was changed since."""
    annotations = observed.get("metadata", {}).get("annotations") or {}
    return bool(annotations.get(APPLIED) == digest(_bare(desired)))


def content(observed: Mapping[str, Any]) -> str:
    """Return a digest of the wanted parts of an object: without its status, and without the leader epoch."""
    wanted = {key: value for key, value in observed.items() if key not in {"metadata", "status"}}
    metadata = observed.get("metadata", {})
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != LEADER_EPOCH}
    return digest([wanted, metadata.get("labels"), annotations, metadata.get("ownerReferences")])


def amount(text: str | float) -> Decimal:
    """Parse a quantity of Kubernetes: ``500m``, ``1Gi``, ``1e3``.

    Raises:
        ValueError: the text is not a quantity.
    """
    written = str(text).strip()
    number = written.rstrip("KMGTPEiknum")
    # The letter of an exponent is not a suffix: 1E is 10^18, 1E3 is 1000.
    try:
        if number.strip("+-")[:1].isalpha():  # NaN and the like
            raise ValueError
        return _PRECISE.multiply(Decimal(number), _SUFFIXES[written[len(number) :]])
    except (InvalidOperation, KeyError, ValueError):
        raise ValueError(f"'{text}' is not a quantity: write a number with a unit, such as 500m, 2, or 20Gi") from None


def _bare(object: Object) -> Object:
    """Return the manifest without the annotations that `finish` adds."""
    metadata = dict(object["metadata"])
    annotations = {key: value for key, value in metadata.pop("annotations", {}).items() if key not in _OWN}
    if annotations:
        metadata["annotations"] = annotations
    return object | {"metadata": metadata}


_OWN = frozenset({APPLIED, LEADER_EPOCH})


def within(desired: Any, observed: Any, field: str = "", *, amounts: bool = False) -> bool:
    """Return whether all of `desired` is in `observed`; `field` is the name of the field with these values."""
    if type(desired) is str and not amounts:  # most values are, and the checks below are slow
        return type(observed) is str and desired == observed
    if isinstance(desired, Mapping):
        return (
            isinstance(observed, Mapping)
            and (field not in _EXACT or observed.keys() <= desired.keys())
            and all(
                key in observed and within(value, observed[key], key, amounts=amounts or key in _AMOUNTS)
                for key, value in desired.items()
            )
        )
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        return (
            isinstance(observed, Sequence) and not isinstance(observed, str) and _list_within(desired, observed, field)
        )
    if amounts and _is_amount(desired) and _is_amount(observed):
        return _equal_amounts(desired, observed)
    return type(desired) is type(observed) and bool(desired == observed)


def _list_within(desired: Sequence[Any], observed: Sequence[Any], field: str) -> bool:
    if field in _SETS:
        return set(desired) <= set(observed)
    keys = _KEYS.get(field)
    if keys is None:
        return len(desired) == len(observed) and all(map(within, desired, observed))
    found = {tuple(item.get(key) for key in keys): item for item in observed}
    return all((key := tuple(item.get(key) for key in keys)) in found and within(item, found[key]) for item in desired)


def _is_amount(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _equal_amounts(one: str | int, other: str | int) -> bool:
    try:
        return _rounded(amount(one)) == _rounded(amount(other))
    except ValueError:
        return one == other


def _rounded(amount: Decimal) -> Decimal:
    """Round as the API server does: up to thousandths, and to the largest quantity at most."""
    return min(amount, _MAX_QUANTITY).quantize(Decimal("1e-3"), ROUND_CEILING, _PRECISE)
