"""A type of two versions of an application: the second one has a further field."""

from __future__ import annotations

import millpond as mp

__all__ = ("Order", "WithCoupon")


class Order(mp.Struct):
    """The type as the first version of the application has it."""

    customer: str
    cents: int


class WithCoupon(mp.Struct):
    """The type as the second version has it."""

    customer: str
    cents: int
    coupon: int = 0
