"""The configured Kafka client as the Java client of Spark's connector wants it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from millpond.errors import ConfigError

__all__ = ("kafka_options",)

#: The same name and meaning in both clients.
_SHARED = (
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "security.protocol",
    "sasl.mechanism",
    "sasl.kerberos.service.name",
    "ssl.endpoint.identification.algorithm",
)
_SYNONYMS = {"sasl.mechanisms": "sasl.mechanism"}
_LOGINS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def kafka_options(settings: Mapping[str, str | int | float]) -> dict[str, str]:
    """Return options for Spark's Kafka source, each with the prefix `kafka.`.

    Args:
        settings: librdkafka's, secrets in clear.

    Raises:
        ConfigError: the way to log in has no counterpart.
    """
    given = {_SYNONYMS.get(name, name): str(value) for name, value in settings.items()}
    found = {name: given[name] for name in _SHARED if name in given}
    protocol = given.get("security.protocol", "plaintext").upper()
    found["security.protocol"] = protocol
    if protocol.startswith("SASL"):
        found["sasl.jaas.config"] = _login(given)
    if protocol.endswith("SSL"):
        found |= _certificates(given)
    return {f"kafka.{name}": value for name, value in found.items()}


def _login(given: Mapping[str, str]) -> str:
    mechanism = given.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _LOGINS:
        raise ConfigError(
            f"snapshots cannot log in to Kafka with 'sasl.mechanism' {mechanism}: Spark's connector is given "
            f"{', '.join(_LOGINS)}. Use one of these for the snapshot."
        )
    user, password = (_quoted(given.get(name, "")) for name in ("sasl.username", "sasl.password"))
    return f"{_LOGINS[mechanism]} required username={user} password={password};"


def _certificates(given: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if authority := given.get("ssl.ca.location"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    elif authority := given.get("ssl.ca.pem"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    if given.get("ssl.certificate.pem") and given.get("ssl.key.pem"):
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": given["ssl.certificate.pem"],
            "ssl.keystore.key": given["ssl.key.pem"],
        }
    elif given.get("ssl.certificate.location") or given.get("ssl.keystore.location"):
        raise ConfigError(
            "snapshots cannot read a client certificate from 'ssl.certificate.location' or 'ssl.keystore.location': give it "
            "as 'ssl.certificate.pem' and 'ssl.key.pem'."
        )
    if password := given.get("ssl.key.password"):
        found["ssl.key.password"] = password
    return found


def _quoted(text: str) -> str:
    """Return a JAAS string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
