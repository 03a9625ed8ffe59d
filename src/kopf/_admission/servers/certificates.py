"""
Self-signed certificates: each one is an authority of its own, which clients must be told to trust.

This module is imported only on demand, as it needs the ``cryptography`` library.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Collection, Iterable

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kopf._admission.servers.rotation import CLOCK_SKEW, Certificate

_MAX_COMMON_NAME = 64  # RFC 5280, Appendix A: ub-common-name


def issue(names: Iterable[str], *, lifetime: datetime.timedelta, password: str | None = None) -> Certificate:
    """
    Make a certificate for host names and IP addresses, valid from now on for the lifetime.

    The password, if any, encrypts the private key. Raises :class:`ValueError` if there are no names.
    """
    alternatives = _parse_names(names)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _choose_common_name(alternatives))])
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    # The key ids distinguish the old certificate from the new one: both have the same name in the bundle.
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_KEY_USAGE, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(key_id, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id), critical=False)
        .sign(key, hashes.SHA256())
    )
    encryption = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return Certificate(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption),
        names=_list_names(certificate),
        issued_at=now,
        expires_at=now + lifetime,
    )


def read(certificate: bytes, key: bytes) -> Certificate:
    """Read a certificate of :func:`issue`. Raises :class:`ValueError` if it is not a certificate."""
    parsed = x509.load_pem_x509_certificate(certificate)
    return Certificate(
        certificate=certificate,
        key=key,
        names=_list_names(parsed),
        issued_at=parsed.not_valid_before_utc + CLOCK_SKEW,
        expires_at=parsed.not_valid_after_utc,
    )


def normalize(names: Iterable[str]) -> tuple[str, ...]:
    """Get the names as they would be in the certificate."""
    return tuple(str(name.value) for name in _parse_names(names))


_KEY_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _parse_names(names: Iterable[str]) -> Collection[x509.DNSName | x509.IPAddress]:
    """Parse names and addresses into their normal forms. Leave out addresses like 0.0.0.0, which mean any address."""
    parsed: dict[x509.DNSName | x509.IPAddress, None] = {}
    for name in names:
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            parsed[x509.DNSName(name if name.isascii() else name.encode("idna").decode("ascii"))] = None
        else:
            if not address.is_unspecified:
                parsed[x509.IPAddress(address)] = None
    if not parsed:
        raise ValueError("A certificate needs at least one host name or IP address, besides those like 0.0.0.0.")
    return parsed.keys()


def _choose_common_name(alternatives: Iterable[x509.DNSName | x509.IPAddress]) -> str:
    """Get the first name, or the first address if there are no names. Clients check only the alternative names."""
    ordered = sorted(alternatives, key=lambda name: isinstance(name, x509.IPAddress))
    return next((str(name.value) for name in ordered if len(str(name.value)) <= _MAX_COMMON_NAME), "kopf")


def _list_names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in extension.value)
