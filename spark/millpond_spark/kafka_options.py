"""Translate the settings of librdkafka for the Java client of Spark's Kafka connector.

Certificates and keys are read here, in the driver, and passed on as text: executors need none of these files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from millpond.errors import ConfigError

__all__ = ("kafka_options",)

#: Settings with the same name and meaning in both clients.
_SHARED = (
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "security.protocol",
    "sasl.mechanism",
    "sasl.kerberos.service.name",
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
        settings: the settings of librdkafka, with secrets in clear.

    Raises:
        ConfigError: a setting has no counterpart, or a certificate or key cannot be read. The message has no secrets.
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
            f"snapshots cannot log in to Kafka with 'sasl.mechanism' {mechanism}: only {', '.join(_LOGINS)} are "
            "supported. Use one of these for the snapshot."
        )
    user, password = (_quoted(given.get(name, "")) for name in ("sasl.username", "sasl.password"))
    return f"{_LOGINS[mechanism]} required username={user} password={password};"


def _certificates(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for TLS."""
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise ConfigError(
            "snapshots always verify the brokers' certificates, but 'enable.ssl.certificate.verification' is false: "
            "set 'ssl.ca.location' to the authority that signed them."
        )
    found: dict[str, str] = {}
    if given.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""  # Java's spelling of "none"
    if authorities := _pem(given, "ssl.ca"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    chain, key = _pem(given, "ssl.certificate"), _pem(given, "ssl.key")
    if chain and key:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": _pkcs8(key)}
        if password := given.get("ssl.key.password"):
            found["ssl.key.password"] = password
    elif chain or key or given.get("ssl.keystore.location"):
        raise ConfigError(
            "snapshots need a client certificate as PEM, with its key, and cannot read 'ssl.keystore.location': set "
            "'ssl.certificate.location' and 'ssl.key.location', or 'ssl.certificate.pem' and 'ssl.key.pem'."
        )
    return found


def _pem(given: Mapping[str, str], prefix: str) -> str | None:
    """Return the text of `<prefix>.pem`, or of the file in `<prefix>.location`; None if neither is set."""
    if text := given.get(f"{prefix}.pem"):
        return text
    path = given.get(f"{prefix}.location")
    if not path or path == "probe":
        return None
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"'{prefix}.location' names '{path}', which cannot be read ({error.strerror}): set it to a PEM file."
        ) from error


def _pkcs8(key: str) -> str:
    """Return a private key, checked to be in the only format that Java reads."""
    if re.search(r"BEGIN (?:ENCRYPTED )?PRIVATE KEY", key):
        return key
    raise ConfigError(
        "snapshots cannot use the client's private key: Java reads only PEM in PKCS #8 ('BEGIN PRIVATE KEY'). Convert "
        "it with 'openssl pkcs8 -topk8', or have it issued in this format."
    )


def _quoted(text: str) -> str:
    """Return a text as a JAAS string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
