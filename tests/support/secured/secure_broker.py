"""A real broker with TLS and passwords, and client certificates for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trustme
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.support import kafka, set_up
from tests.support.broker import OwnBroker, free_port, renew

__all__ = ("PASSWORD", "USER", "SecureBroker", "secure_broker")

USER, PASSWORD = "millpond", 's3cr3t-of-the-test"\\;'
_LISTENERS = {"TLS": "SSL", "MTLS": "SSL", "BOTH": "SASL_SSL"}
"""Listeners besides the plain one: TLS, with a client certificate, with a client certificate and a password."""


@dataclass(frozen=True)
class SecureBroker:
    """A broker and files of its certificates."""

    plain: str
    """The bootstrap servers of the plain listener."""
    addresses: dict[str, str]
    """The bootstrap servers by listener: `TLS`, `MTLS`, `BOTH`."""
    authority: Path
    other_authority: Path
    """A CA certificate that did not sign the broker's certificate."""
    certificate: Path
    key: Path
    """A client's key, PKCS #8."""

    def settings(self, listener: str) -> dict[str, str]:
        """Return a client's settings for a listener."""
        found = {
            "bootstrap.servers": self.addresses[listener],
            "security.protocol": _LISTENERS[listener].lower(),
            "ssl.ca.location": str(self.authority),
        }
        if listener != "TLS":
            found |= {"ssl.certificate.location": str(self.certificate), "ssl.key.location": str(self.key)}
        if listener == "BOTH":
            found |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD}
        return found


@contextmanager
def secure_broker(make: type[OwnBroker], directory: Path) -> Iterator[SecureBroker]:
    """Run a broker with data and certificates in a directory."""
    authority, issued = trustme.CA(), trustme.CA()
    own, client = authority.issue_cert("127.0.0.1"), issued.issue_cert("client")
    files = {
        name: directory / f"{name}.pem"
        for name in ("authority", "other_authority", "certificate", "key", "broker", "clients")
    }
    authority.cert_pem.write_to_path(str(files["authority"]))
    issued.cert_pem.write_to_path(str(files["clients"]))
    trustme.CA().cert_pem.write_to_path(str(files["other_authority"]))
    files["certificate"].write_bytes(_chain(client))
    files["key"].write_bytes(_pkcs8(client))
    files["broker"].write_bytes(_pkcs8(own) + _chain(own))
    plain, controller, *others = (free_port() for _ in range(2 + len(_LISTENERS)))
    ports = {"PLAINTEXT": plain, **dict(zip(_LISTENERS, others, strict=True))}
    at = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    listening = ",".join(f"{name}://{address}" for name, address in at.items())
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **_LISTENERS}
    properties = {
        "listeners": f"{listening},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listening,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files["broker"]),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files["clients"]),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.both.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.both.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    with make(directory / "broker", port=plain, properties=properties) as broker:
        set_up.twice(partial(_add_user, at["PLAINTEXT"]), again=partial(renew, at["PLAINTEXT"]), log=broker.end_of_log)
        yield SecureBroker(
            at.pop("PLAINTEXT"), at, files["authority"], files["other_authority"], files["certificate"], files["key"]
        )


def _add_user(bootstrap_servers: str) -> None:
    client = kafka.admin(bootstrap_servers)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    (future,) = client.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(USER, info, PASSWORD.encode())]
    ).values()
    kafka.answer(future, f"adding user {USER}")


def _chain(certificate: trustme.LeafCert) -> bytes:
    return b"".join(each.bytes() for each in certificate.cert_chain_pems)


def _pkcs8(certificate: trustme.LeafCert) -> bytes:
    """Return the key in the format that Java reads."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
