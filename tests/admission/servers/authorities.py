"""Certificate authorities for tests: what a production would have instead of self-signed certificates."""
from __future__ import annotations

import datetime
import ipaddress
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates of servers and clients."""

    def __init__(self, name: str = "ca") -> None:
        super().__init__()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _begin(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(self._id, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)
        self.der = certificate.public_bytes(serialization.Encoding.DER)

    @property
    def _id(self) -> x509.SubjectKeyIdentifier:
        return x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())

    def sign(self, *names: str, common_name: str = "", password: str | None = None) -> tuple[bytes, bytes]:
        """Give the certificate for these host names and addresses, and its key (PEM)."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([
            x509.NameAttribute(NameOID.COMMON_NAME, common_name or names[0]),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "example@kopf.dev"),
        ])
        certificate = (
            _begin(subject, self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.SubjectAlternativeName([_parse(name) for name in names or ["client"]]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._id), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        return certificate.public_bytes(serialization.Encoding.PEM), pem

    def write(self, directory: pathlib.Path, *names: str, password: str | None = None) -> Files:
        """Write a new pair into the directory, with the certificate of the authority."""
        files = Files(directory)
        certificate, key = self.sign(*names, password=password)
        files.ca.write_bytes(self.pem)
        files.key.write_bytes(key)
        files.certificate.write_bytes(certificate)
        return files


class Files:
    """Where the files are."""

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__()
        directory.mkdir(exist_ok=True)
        self.ca = directory / "ca.pem"
        self.certificate = directory / "cert.pem"
        self.key = directory / "key.pem"


def _begin(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=1))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs, crl_sign=signs, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False)


def _parse(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
