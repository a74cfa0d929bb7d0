"""Counts orders per customer: an application with a large state. The last output of a key is its final count."""

from __future__ import annotations

import millpond as mp

ORDERS, COUNTS, STORE = "counted-orders", "counts-by-customer", "counts"


def topology() -> mp.Topology:
    """The topology."""
    builder = mp.StreamsBuilder()
    orders = builder.stream(ORDERS, key=mp.String, value=mp.String)
    counts = orders.group_by_key().count(store=STORE)
    counts.to_stream().to(COUNTS, key=mp.String, value=mp.Long)
    return builder.build()
