"""
A certificate authority of a test: it issues certificates for servers & clients, good ones and not so good ones.
"""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """
    A new authority with a new key; ``pem`` is its certificate.

    If ``sloppy``, its certificates have everything that is needed, but not everything that RFC 5280 demands, as
    those of many clusters that were created years ago.
    """

    def __init__(self, folder: pathlib.Path, *, sloppy: bool = False) -> None:
        self._folder = folder
        self._sloppy = sloppy
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority-{x509.random_serial_number()}")])
        builder = _begin(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=not sloppy)
        if not sloppy:
            builder = builder.add_extension(_sign_only(), critical=True)
            subject_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
            builder = builder.add_extension(subject_id, critical=False)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, *names: str) -> tuple[bytes, bytes]:
        """Issue a certificate for hosts & addresses, or for a person; give it and its key, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        hosts: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names
        ]
        builder = _begin(subject, self._name, key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        if not self._sloppy:
            issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(issuer_id, critical=False)
        return (
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )

    def make_server_context(self, *names: str, clients: Authority | None = None) -> ssl.SSLContext:
        """Make the server's side of TLS; it demands certificates of clients if their authority is specified."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        path = self._folder / f"{names[0]}-{x509.random_serial_number()}.pem"
        path.write_bytes(b"".join(self.issue(*names)))
        context.load_cert_chain(path)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients.pem.decode())
        return context


def _begin(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )


def _sign_only() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )
