"""Translate the settings of the configured Kafka client for the Java client of Spark's connector.

Certificates and keys are read here, in the driver, and handed over as text: executors need none of these files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

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
            f"snapshots cannot log in to Kafka with 'sasl.mechanism' {mechanism}: Spark's connector is given "
            f"{', '.join(_LOGINS)}. Use one of these for the snapshot."
        )
    user, password = (_quoted(given.get(name, "")) for name in ("sasl.username", "sasl.password"))
    return f"{_LOGINS[mechanism]} required username={user} password={password};"


def _certificates(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for TLS."""
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise ConfigError(
            "snapshots cannot leave the brokers' certificates unchecked, as 'enable.ssl.certificate.verification' says: give "
            "the authority that signed them as 'ssl.ca.location'."
        )
    found: dict[str, str] = {}
    if given.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""  # so Java spells it
    if authorities := _pem(given, "ssl.ca"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    chain, key = _pem(given, "ssl.certificate"), _pem(given, "ssl.key")
    if chain and key:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": _pkcs8(key)}
        if password := given.get("ssl.key.password"):
            found["ssl.key.password"] = password
    elif chain or key or given.get("ssl.keystore.location"):
        raise ConfigError(
            "snapshots take a client certificate as PEM, with its key: give 'ssl.certificate.location' and 'ssl.key.location', "
            "or 'ssl.certificate.pem' and 'ssl.key.pem'. They read no 'ssl.keystore.location'."
        )
    return found


def _pem(given: Mapping[str, str], prefix: str) -> str | None:
    """Return what `<prefix>.pem` says, or what is in the file of `<prefix>.location`; None without both."""
    if text := given.get(f"{prefix}.pem"):
        return text
    path = given.get(f"{prefix}.location")
    if not path or path == "probe":
        return None
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"'{prefix}.location' names '{path}', which cannot be read ({error.strerror}): give a PEM file there."
        ) from error


def _pkcs8(key: str) -> str:
    """Return a private key if it is in the one format that Java reads."""
    if re.search(r"BEGIN (?:ENCRYPTED )?PRIVATE KEY", key):
        return key
    raise ConfigError(
        "snapshots cannot use the client's private key: Java reads PEM in PKCS #8 only ('BEGIN PRIVATE KEY'). Convert it with "
        "'openssl pkcs8 -topk8', or have it issued so."
    )


def _quoted(text: str) -> str:
    """Return a JAAS string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
