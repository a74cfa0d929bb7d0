"""Several names of one Kafka cluster are one address."""

from __future__ import annotations

import pytest

from millpond_operator.controllers.reconcile.broker_addresses import address_of

_SERVICE = (
    "kafka.shop.svc:9092",
    "kafka.shop.svc.cluster.local:9092",
    "KAFKA.shop.svc.cluster.local.:9092",
    "kafka.shop.svc",
)


@pytest.mark.parametrize("spelled", _SERVICE)
def test_all_names_of_a_service_are_one_address(spelled):
    """From whichever namespace it is resolved, and with or without the default port."""
    assert address_of(spelled, "elsewhere") == address_of("kafka:9092", "shop")


def test_name_with_a_namespace_is_that_service_but_not_for_sure():
    """A pod of a headless Service may have this name as well."""
    short, full = address_of("kafka.shop:9092", "elsewhere"), address_of("kafka.shop.svc:9092", "elsewhere")
    assert short.brokers == full.brokers
    assert (short.sure, full.sure) == (False, True)


def test_one_short_name_in_two_namespaces_is_two_addresses():
    """Names are compared as DNS does."""
    assert address_of("kafka:9092", "a").brokers != address_of("kafka:9092", "b").brokers


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x:1, y:2", "y:2,x:1"),
        ("broker.example.com", "Broker.Example.com.:9092"),
        ("PLAINTEXT://broker.example.com:9092", "broker.example.com:9092"),
        ("[::1]:9092", "[::1]"),
        ("10.0.0.1:9092,", "10.0.0.1"),
    ],
)
def test_spelling_does_not_matter(one, other):
    """Order, case, the default port and a protocol prefix do not matter."""
    assert address_of(one, "shop") == address_of(other, "shop")


@pytest.mark.parametrize(
    ("one", "other"),
    [("kafka:9092", "kafka:9093"), ("a:1", "a:1,b:1"), ("kafka.example.com", "kafka.shop.svc"), ("[::1]", "[::2]")],
)
def test_other_brokers_are_another_address(one, other):
    """Different ports are different addresses, even on the same host."""
    assert address_of(one, "shop").brokers != address_of(other, "shop").brokers
