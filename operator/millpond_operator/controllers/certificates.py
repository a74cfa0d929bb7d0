"""The coordinator's certificate: signed by an authority of its own, kept in a Secret, renewed long before it ends."""

from __future__ import annotations

import base64
import logging
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from millpond_operator.kubernetes import AlreadyExists, Client, NotFound, Object, kinds

__all__ = ("Certificates", "ensured", "issued", "load")

log = logging.getLogger(__name__)

_AUTHORITY_LASTS, _LEAF_LASTS = timedelta(days=3650), timedelta(days=90)
_RENEW_BEFORE = timedelta(days=30)
_SKEW = timedelta(hours=1)


@dataclass(frozen=True)
class Certificates:
    """An authority and what it signed, all PEM."""

    ca: str
    ca_key: str
    certificate: str
    key: str

    def renewal_due(self, hosts: Sequence[str], now: datetime) -> bool:
        """Whether the certificate ends soon, or is for other hosts."""
        found = x509.load_pem_x509_certificate(self.certificate.encode())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return found.not_valid_after_utc - now < _RENEW_BEFORE or set(hosts) != set(
            names.get_values_for_type(x509.DNSName)
        )

    def as_data(self) -> dict[str, str]:
        """The data of a Secret."""
        named = {"ca.crt": self.ca, "ca.key": self.ca_key, "tls.crt": self.certificate, "tls.key": self.key}
        return {name: base64.b64encode(text.encode()).decode() for name, text in named.items()}

    @classmethod
    def of(cls, secret: Object) -> Certificates | None:
        """What is in a Secret; None when something is missing there or cannot be read."""
        data = secret.get("data") or {}
        try:
            ca, ca_key, certificate, key = (
                base64.b64decode(data[name]).decode() for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")
            )
            x509.load_pem_x509_certificate(certificate.encode())
            x509.load_pem_x509_certificate(ca.encode())
        except (KeyError, ValueError):
            return None
        return cls(ca, ca_key, certificate, key)


def issued(hosts: Sequence[str], now: datetime, authority: Certificates | None = None) -> Certificates:
    """A certificate for these hosts, by this authority or a new one."""
    if authority is None:
        ca_key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "millpond coordinator CA")])
        ca = (
            _builder(name, name, ca_key.public_key(), now, _AUTHORITY_LASTS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
    else:
        loaded = serialization.load_pem_private_key(authority.ca_key.encode(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        ca_key, ca = loaded, x509.load_pem_x509_certificate(authority.ca.encode())
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    certificate = (
        _builder(subject, ca.subject, key.public_key(), now, _LEAF_LASTS)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return Certificates(_pem(ca), _pem_key(ca_key), _pem(certificate), _pem_key(key))


async def ensured(client: Client, namespace: str, name: str, hosts: Sequence[str]) -> Certificates:
    """The certificates in a Secret, which is made or renewed when that is due.

    Raises:
        ApiError: the Secret can be neither read nor written.
    """
    now = datetime.now(UTC)
    try:
        secret: Object | None = await client.get(kinds.SECRET, namespace, name)
    except NotFound:
        secret = None
    found = None if secret is None else Certificates.of(secret)
    if found is not None and not found.renewal_due(hosts, now):
        return found
    made = issued(hosts, now, found)
    wanted: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "millpond"}},
        "type": "Opaque",
        "data": made.as_data(),
    }
    if secret is None:
        try:
            await client.create(kinds.SECRET, wanted)
        except AlreadyExists:  # another operator was a moment faster: there is one authority only
            return await ensured(client, namespace, name, hosts)
    else:
        wanted["metadata"]["resourceVersion"] = secret["metadata"]["resourceVersion"]
        await client.replace(kinds.SECRET, wanted)
    log.info("The coordinator has a new certificate for %s.", ", ".join(hosts))
    return made


def load(context: ssl.SSLContext, certificates: Certificates) -> None:
    """Serve with these from the next connection on."""
    # OpenSSL reads them from files only. Memory-backed where there is such a file system, and gone at once.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:  # noqa: S108
        chain, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        chain.write_text(certificates.certificate, encoding="ascii")
        key.touch(mode=0o600)
        key.write_text(certificates.key, encoding="ascii")
        context.load_cert_chain(chain, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lasts: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lasts)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _pem_key(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
