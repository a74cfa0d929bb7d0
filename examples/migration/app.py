"""Payments by the country of the customer, as in Payments.java."""

from operator import add

import millpond as mp


def payments() -> mp.Topology:
    builder = mp.StreamsBuilder()
    countries = builder.table("customers", key=mp.String, value=mp.String, store="countries")
    (
        builder.stream("payments", key=mp.String, value=mp.Long)
        .join(countries, lambda amount, country: (country, amount))
        .map(lambda _customer, payment: payment, key=mp.String, value=mp.Long)
        .group_by_key()
        .reduce(add, store="totals")
        .to_stream()
        .to("totals", key=mp.String, value=mp.Long)
    )
    return builder.build()
