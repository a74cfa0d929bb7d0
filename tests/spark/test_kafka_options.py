"""The Java client of Spark's connector logs in as the configured client does, or says that it cannot."""

from __future__ import annotations

import pytest

from millpond.errors import ConfigError
from millpond_spark.kafka_options import kafka_options


def test_a_plain_connection_needs_nothing_but_the_brokers() -> None:
    """Settings that only librdkafka knows are left out."""
    assert kafka_options({"bootstrap.servers": "a:1,b:2", "fetch.wait.max.ms": 10}) == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": "PLAINTEXT",
    }


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_user_and_password_become_a_login_module(name: str) -> None:
    """Quotes in a password are part of it."""
    given = {name: "SCRAM-SHA-512", "security.protocol": "sasl_ssl", "sasl.username": "u", "sasl.password": 'p"\\;x'}
    found = kafka_options(given)
    assert found["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    assert found["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\\"\\\\;x";'
    )


def test_certificates_are_handed_over_as_pem() -> None:
    """A file of authorities, and the client's own certificate."""
    found = kafka_options(
        {
            "security.protocol": "ssl", "ssl.ca.location": "/ca.pem", "ssl.certificate.pem": "C", "ssl.key.pem": "K",
            "ssl.key.password": "P",
        }
    )  # fmt: skip
    assert found == {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "C",
        "kafka.ssl.keystore.key": "K",
        "kafka.ssl.key.password": "P",
    }


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"security.protocol": "ssl", "ssl.certificate.location": "/c.pem"}, r"ssl\.certificate\.pem"),
    ],
)
def test_what_has_no_counterpart_is_refused(settings: dict[str, str], told: str) -> None:
    """Rather than a connection that is not what was configured."""
    with pytest.raises(ConfigError, match=told):
        kafka_options(settings)
