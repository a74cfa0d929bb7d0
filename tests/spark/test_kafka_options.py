"""The Java client of Spark's connector logs in like the configured client, or a clear error is raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.errors import ConfigError
from millpond_spark.kafka_options import kafka_options


def test_a_plain_connection_needs_nothing_but_the_brokers() -> None:
    """Settings of librdkafka alone are left out."""
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


KEY = "-----BEGIN PRIVATE KEY-----K"


def test_certificates_are_handed_over_as_text(tmp_path: Path) -> None:
    """Authorities and the client's certificate, from files or as text: executors need no files."""
    written = {"ssl.ca": "A", "ssl.certificate": "C", "ssl.key": KEY}
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    as_files = {f"{name}.location": str(tmp_path / name) for name in written}
    as_text = {f"{name}.pem": text for name, text in written.items()}
    for given in (as_files, as_text):
        assert kafka_options({"security.protocol": "ssl", "ssl.key.password": "P", **given}) == {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": "A",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": "C",
            "kafka.ssl.keystore.key": KEY,
            "kafka.ssl.key.password": "P",
        }


def test_host_names_are_unchecked_where_that_is_configured() -> None:
    """Java's setting is an empty text."""
    found = kafka_options({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"})
    assert found["kafka.ssl.endpoint.identification.algorithm"] == ""


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"ssl.keystore.location": "/c.p12"}, r"ssl\.certificate\.pem"),
        ({"ssl.certificate.pem": "C"}, r"ssl\.key\.location"),
        (
            {"ssl.certificate.pem": "C", "ssl.key.location": "/no/such.key"},
            r"'ssl\.key\.location' names '/no/such\.key'",
        ),
        ({"ssl.ca.location": "/"}, "Is a directory"),
        ({"ssl.certificate.pem": "C", "ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----sEcret"}, "openssl pkcs8"),
        ({"enable.ssl.certificate.verification": "false"}, r"ssl\.ca\.location"),
    ],
)
def test_what_has_no_counterpart_is_rejected(settings: dict[str, str], told: str) -> None:
    """A connection must not differ from the configured one; errors contain no secrets."""
    with pytest.raises(ConfigError, match=told) as refused:
        kafka_options({"security.protocol": "ssl", **settings})
    assert "sEcret" not in str(refused.value)
