"""Whom and what the sentences about missing rights name."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from millpond.runtime.error_codes import _CODES, Kind
from millpond.runtime.missing_rights import Access, Operation, Resource, user_of

PASSWORD = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice"}


@pytest.mark.parametrize(
    ("settings", "user"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "ssl", "ssl.ca.location": "ca.pem"}, "User:ANONYMOUS"),
        (PASSWORD, "User:alice"),
        (
            {"security.protocol": "ssl", "ssl.certificate.location": "/tls/user.pem"},
            "The user of the certificate in '/tls/user.pem'",
        ),
        (
            {"security.protocol": "ssl", "ssl.certificate.pem": "-----BEGIN"},
            "The user of the certificate in 'ssl.certificate.pem'",
        ),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI", "sasl.kerberos.principal": "orders/host"},
            "The user of the Kerberos principal 'orders/host'",
        ),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.client.id": "orders"},
            "The user of the tokens for client 'orders'",
        ),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "This application's user"),
    ],
)
def test_user_is_named_as_the_settings_do(settings: dict[str, str], user: str) -> None:
    """A name is the principal of rules; else the settings say where it is from. No secret is shown."""
    assert user_of(settings) == user


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", "User:alice lacks Read on topics 'a', 'b'"),
        ("GROUP_AUTHORIZATION_FAILED", "User:alice lacks Read on group 'app'"),
        (
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            "User:alice lacks Write on transactional ids that begin with 'app-'",
        ),
        ("CLUSTER_AUTHORIZATION_FAILED", "User:alice lacks IdempotentWrite on the cluster"),
        ("_TRANSPORT", "Check that the brokers are up."),
        ("SASL_AUTHENTICATION_FAILED", "Check this application's credentials"),
    ],
)
def test_code_tells_the_resource(code: str, sentence: str) -> None:
    """Each code of a missing right has its own."""
    access = Access.of(PASSWORD, "app")
    assert access.cure(KafkaError(getattr(KafkaError, code)), {"b", "a"}).startswith(sentence)


def test_every_code_of_a_missing_right_names_what_is_missing() -> None:
    """But for delegation tokens, which no part of millpond uses."""
    names = _CODES[Kind.FORBIDDEN].split()
    told = {each: Access().cure(KafkaError(getattr(KafkaError, each))) for each in names}
    del told["DELEGATION_TOKEN_AUTHORIZATION_FAILED"]
    assert all("lacks" in each and "grant it" in each for each in told.values())


def test_one_topic_and_several_are_named_in_turn() -> None:
    """As nouns."""
    access = Access("User:alice")
    assert "Write on topic 'a':" in access.lacks(Operation.WRITE, Resource.TOPIC, "a")
    assert "Write on topics 'a', 'b':" in access.lacks(Operation.WRITE, Resource.TOPIC, "a", "b")
