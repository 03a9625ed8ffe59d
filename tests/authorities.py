"""Certificate authorities for tests: they issue certificates for servers & clients, good ones and not so good ones."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
import ssl
import tempfile

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """
    A new authority with a new key; ``pem`` & ``der`` are its certificate.

    If ``sloppy``, its certificates have everything that is needed, but not everything that RFC 5280 demands, as
    those of many clusters that were created years ago.
    """

    def __init__(self, name: str | None = None, *, sloppy: bool = False) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._sloppy = sloppy
        self._name = _make_name(f"authority-{x509.random_serial_number()}" if name is None else name)
        builder = _begin(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=not sloppy)
        if not sloppy:
            builder = builder.add_extension(_usage(signs=True), critical=True)
            builder = builder.add_extension(self._id, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)
        self.der = certificate.public_bytes(serialization.Encoding.DER)

    @property
    def _id(self) -> x509.SubjectKeyIdentifier:
        return x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())

    def sign(self, *names: str, password: str | None = None) -> tuple[bytes, bytes]:
        """Give a certificate for these host names & addresses, or for a person, and its key (PEM)."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _begin(_make_name(names[0], email="example@kopf.dev"), self._name, key.public_key())
        hosts = [_parse(name) for name in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        if not self._sloppy:
            issuer_id = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._id)
            builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=False)
            builder = builder.add_extension(_usage(signs=False), critical=True)
            builder = builder.add_extension(issuer_id, critical=False)
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), pem

    def make_server_context(self, *names: str, clients: Authority | None = None) -> ssl.SSLContext:
        """Make the server's side of TLS; it demands certificates of clients if their authority is specified."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            files = self.write(pathlib.Path(folder), *names)
            context.load_cert_chain(files.certificate, files.key)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients.pem.decode())
        return context

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
        directory.mkdir(exist_ok=True)
        self.ca = directory / "ca.pem"
        self.certificate = directory / "cert.pem"
        self.key = directory / "key.pem"


def _make_name(name: str, *, email: str | None = None) -> x509.Name:
    emails = [] if email is None else [x509.NameAttribute(NameOID.EMAIL_ADDRESS, email)]
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name), *emails])


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


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _parse(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
