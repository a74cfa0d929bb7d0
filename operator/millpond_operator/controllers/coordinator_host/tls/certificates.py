"""Certificates of the coordinator: a server certificate, signed by an authority of its own."""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ("Certificates", "issued", "load")

_AUTHORITY_VALIDITY, _LEAF_VALIDITY = timedelta(days=3650), timedelta(days=90)
_RENEW_BEFORE = timedelta(days=30)
#: An authority is replaced in the last twentieth of its validity (half a year of ten), so that all workers know the
#: next one.
_REPLACE_FRACTION = 20
_NAMES = ("ca.crt", "ca.key", "tls.crt", "tls.key")
_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_SKEW = timedelta(hours=1)


@dataclass(frozen=True)
class Certificates:
    """An authority and the certificate that it signed, all as PEM."""

    ca: str
    ca_key: str
    certificate: str
    key: str

    def signs(self, now: datetime) -> bool:
        """Return whether the authority can sign valid certificates."""
        authority = _certificate(self.ca)
        return authority is not None and _fits(authority, _private_key(self.ca_key)) and _is_valid(authority, now)

    def authority_due(self, now: datetime) -> bool:
        """Return whether the authority has to be replaced, because it expires soon or its key is lost."""
        authority = _certificate(self.ca)
        if authority is None or not self.signs(now):
            return True
        ends = authority.not_valid_after_utc
        return ends - now < (ends - authority.not_valid_before_utc) / _REPLACE_FRACTION

    def serves(self, now: datetime) -> bool:
        """Return whether clients that trust the authority now accept a server with the certificate."""
        authority, leaf = _certificate(self.ca), _certificate(self.certificate)
        if authority is None or leaf is None or not _fits(leaf, _private_key(self.key)):
            return False
        try:
            leaf.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            return False
        return _is_valid(authority, now) and _is_valid(leaf, now)

    def renewal_due(self, hosts: Sequence[str], now: datetime) -> bool:
        """Return whether the certificate expires soon, is for other hosts, or is invalid."""
        authority, leaf = _certificate(self.ca), _certificate(self.certificate)
        if authority is None or leaf is None or not self.serves(now):
            return True
        ends = leaf.not_valid_after_utc
        return (ends - now < _RENEW_BEFORE and ends < authority.not_valid_after_utc) or set(hosts) != _hosts_of(leaf)

    @property
    def expires(self) -> datetime | None:
        """When the certificate expires; None when it is unreadable."""
        leaf = _certificate(self.certificate)
        return None if leaf is None else leaf.not_valid_after_utc

    def expiry(self) -> dict[str, datetime]:
        """Return when each of the two certificates expires: `authority` and `server`; without unreadable ones."""
        found = {"authority": _certificate(self.ca), "server": _certificate(self.certificate)}
        return {name: each.not_valid_after_utc for name, each in found.items() if each is not None}

    def same_authority(self, other: Certificates) -> bool:
        """Return whether both have the same authority."""
        ours, theirs = _certificate(self.ca), _certificate(other.ca)
        return ours is not None and ours == theirs

    def as_data(self, prefix: str = "") -> dict[str, str]:
        """Return the data of a Secret."""
        texts = (self.ca, self.ca_key, self.certificate, self.key)
        named = zip(_NAMES, texts, strict=True)
        return {f"{prefix}{name}": base64.b64encode(text.encode()).decode() for name, text in named}

    @classmethod
    def of(cls, data: Mapping[str, str], prefix: str = "") -> Certificates | None:
        """Return the certificates in the data of a Secret, usable or not; None when there are none."""
        texts = [_text(data.get(prefix + name) or "") for name in _NAMES]
        return cls(*texts) if any(texts) else None


def issued(hosts: Sequence[str], now: datetime, authority: Certificates | None = None) -> Certificates:
    """Return a new certificate for hosts, signed by an authority that `signs`, or by a new one."""
    if authority is None:
        ca_key: _Key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "millpond coordinator CA")])
        ca = (
            _builder(name, name, ca_key.public_key(), now, _AUTHORITY_VALIDITY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
    else:
        loaded = _private_key(authority.ca_key)
        assert loaded is not None
        ca_key, ca = loaded, x509.load_pem_x509_certificate(authority.ca.encode())
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    certificate = (
        _builder(subject, ca.subject, key.public_key(), now, min(_LEAF_VALIDITY, ca.not_valid_after_utc - now))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return Certificates(_pem(ca), _pem_key(ca_key), _pem(certificate), _pem_key(key))


def load(context: ssl.SSLContext, certificates: Certificates) -> None:
    """Use certificates from the next connection on."""
    # OpenSSL reads them from files only: from a file system in memory where there is one, deleted at once.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:  # noqa: S108
        chain, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        chain.write_text(certificates.certificate, encoding="utf-8")
        key.touch(mode=0o600)
        key.write_text(certificates.key, encoding="utf-8")
        context.load_cert_chain(chain, key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    now: datetime,
    lasts: timedelta,
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


def _pem_key(key: _Key) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _text(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _certificate(pem: str) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        return None


def _private_key(pem: str) -> _Key | None:
    try:
        found = serialization.load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return found if isinstance(found, _Key) else None


def _fits(certificate: x509.Certificate, key: _Key | None) -> bool:
    return key is not None and key.public_key() == certificate.public_key()


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def _hosts_of(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    return set(names.get_values_for_type(x509.DNSName))
