"""Quantities as the API server writes them: `1024Mi` as `1Gi`, `0.5` as `500m`."""

from __future__ import annotations

import functools
import re
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

__all__ = ("canonical", "value_of")

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXACT = Context(prec=100)
_MOST = Decimal(2**63 - 1)


def value_of(text: str | float) -> Decimal:
    """Return the value of a quantity.

    Raises:
        ValueError: it is not a quantity.
    """
    return _parsed(str(text))[0]


def canonical(given: Any) -> str:
    """Return the quantity as the API server writes it.

    Raises:
        ValueError: it is not a quantity.
    """
    if isinstance(given, bool) or not isinstance(given, (str, int, float)):
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return _canonical(str(given))


@functools.lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    number, form = _parsed(text)
    number = min(number, _MOST)
    if form == "binary" and (abs(number) < 1024 or number != number.to_integral_value()):
        form = "decimal"  # what is less than one Ki, or no whole number, has no binary form
    if form == "binary":
        whole, power = int(number), 0
        while whole and whole % 1024 == 0 and power < len(_BINARY) - 1:
            whole, power = whole // 1024, power + 1
        return f"{whole}{_BINARY[power]}"
    number = number.quantize(Decimal("1e-9"), ROUND_CEILING, _EXACT)
    if not number:
        return "0"
    for suffix, power in sorted(_DECIMAL.items(), key=lambda item: -item[1]):
        scaled = _EXACT.scaleb(number, -power)
        if scaled == scaled.to_integral_value():
            if form == "exponent":
                return f"{int(scaled)}e{power}" if power else str(int(scaled))
            return f"{int(scaled)}{suffix}"
    raise AssertionError(text)


def _parsed(text: str) -> tuple[Decimal, str]:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix.endswith("i"):
        return _EXACT.multiply(number, Decimal(1024) ** _BINARY.index(suffix)), "binary"
    if suffix in _DECIMAL:
        return _EXACT.scaleb(number, _DECIMAL[suffix]), "decimal"
    return _EXACT.scaleb(number, int(suffix[1:])), "exponent"
