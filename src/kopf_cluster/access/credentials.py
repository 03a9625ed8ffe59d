"""
Certificates of the server, and the kubeconfig by which clients find and trust it.

Everything is made anew for each server and lives as long as it: a certificate authority, a server certificate
for the loopback addresses, a bearer token. The keys are elliptic (P-256), as these are made in no time.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import functools
import ipaddress
import json
import os
import pathlib
import secrets
import ssl
import tempfile
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALIDITY: Final = datetime.timedelta(days=365)
_CLOCK_SKEW: Final = datetime.timedelta(hours=1)
# As a text, since the encoders of YAML need longer for it than everything else of the credentials together.
_KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: local
clusters:
- name: local
  cluster:
    server: {url}
    certificate-authority-data: {ca}
users:
- name: local
  user: {user}
contexts:
- name: local
  context:
    cluster: local
    user: local
    namespace: default
"""


@dataclasses.dataclass(frozen=True)
class Credentials:
    """The secrets of one server, all in memory."""

    ca: bytes
    """The certificate of the authority (PEM)."""
    certificate: bytes
    key: bytes
    token: str
    authority_key: bytes
    """The key that signs the certificates of clients (PEM)."""

    def make_ssl_context(self) -> ssl.SSLContext:
        """Make the server's side of TLS."""
        return _make_ssl_context(self.ca, self.certificate, self.key)

    def make_kubeconfig(self, url: str, client: ClientCertificate | None = None) -> str:
        """Make the kubeconfig of the administrator, or of the user with the certificate; everything is embedded."""
        user = (
            {"token": self.token}
            if client is None
            else {"client-certificate-data": _encode(client.certificate), "client-key-data": _encode(client.key)}
        )
        return _KUBECONFIG.format(url=url, ca=_encode(self.ca), user=json.dumps(user))


class ClientCertificate(NamedTuple):
    """A certificate by which the API knows its user (PEM), and the key for it."""

    certificate: bytes
    key: bytes


def make_client_certificate(credentials: Credentials, user: str, groups: Iterable[str] = ()) -> ClientCertificate:
    """Make a certificate of the user, signed by the authority: the groups are its organizations."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
    )
    certificate = sign_certificate(credentials, subject, key.public_key(), ExtendedKeyUsageOID.CLIENT_AUTH)
    return ClientCertificate(certificate, _encode_key(key))


def sign_certificate(
    credentials: Credentials,
    subject: x509.Name,
    key: CertificatePublicKeyTypes,
    purpose: x509.ObjectIdentifier,
    *,
    lifetime: datetime.timedelta = _VALIDITY,
    names: x509.SubjectAlternativeName | None = None,
) -> bytes:
    """Make a certificate that is signed by the authority, and good for one purpose (PEM); never for too long."""
    authority = x509.load_pem_x509_certificate(credentials.ca)
    authority_key = serialization.load_pem_private_key(credentials.authority_key, password=None)
    if not isinstance(authority_key, ec.EllipticCurvePrivateKey):
        raise TypeError("the key of the authority is not an elliptic one")
    builder = (
        _begin(subject, authority.subject, key, min(lifetime, _VALIDITY))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def make_credentials(host: str) -> Credentials:
    """Make new credentials for a server at the host (a name or an IP address), and at loopback anyway."""
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"kopf-local-ca-{secrets.token_hex(4)}")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kopf-local-cluster")])
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    ca = (
        _begin(authority, authority, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(authority_id, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _begin(subject, authority, server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternative_names(host)), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return Credentials(
        ca=ca.public_bytes(serialization.Encoding.PEM),
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=_encode_key(server_key),
        token=secrets.token_urlsafe(24),
        authority_key=_encode_key(authority_key),
    )


def load_credentials(directory: pathlib.Path) -> Credentials | None:
    """Read the credentials of the previous servers, so that their clients can go on; raise `ValueError` if broken."""
    try:
        return msgspec.json.decode((directory / "credentials.json").read_bytes(), type=Credentials)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ValueError(f"the credentials in {directory} cannot be used: {error}") from error


def save_credentials(directory: pathlib.Path, credentials: Credentials) -> None:
    write_privately(directory / "credentials.json", msgspec.json.encode(credentials).decode())


@functools.lru_cache(maxsize=1)
def _make_ssl_context(ca: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """Make the context; restarted servers go on with it. The key is in a file only while it is being loaded."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(certificate + key)
        file.flush()
        context.load_cert_chain(file.name)
    context.verify_mode = ssl.CERT_OPTIONAL  # a certificate may replace a token
    context.load_verify_locations(cadata=ca.decode())
    return context


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _encode_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _begin(
    subject: x509.Name,
    issuer: x509.Name,
    key: CertificatePublicKeyTypes,
    lifetime: datetime.timedelta = _VALIDITY,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(host: str) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for name in dict.fromkeys(["127.0.0.1", "::1", "localhost", "kubernetes.default.svc", host]):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            names.append(x509.DNSName(name))
    return names


def write_privately(path: pathlib.Path, text: str) -> None:
    """Write a file that only the user can read, and replace the previous one atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # of a killed process; links are not followed
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)


# The files of kubeconfigs, of the administrator and of other users.


class Kubeconfigs:
    """All kubeconfigs that one cluster has written.

    * ``wanted``: the path for the administrator; a temporary file by default.
    """

    def __init__(self, wanted: pathlib.Path | None) -> None:
        # The temporary file has no directory of its own, which would slow the start down.
        self._path = wanted or pathlib.Path(tempfile.gettempdir()) / f"kopf-local-cluster-{secrets.token_hex(8)}.yaml"
        self._written = 0
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def write(self, text: str) -> pathlib.Path:
        """Write the kubeconfig of the administrator, always at the same path."""
        write_privately(self._path, text)
        return self._path

    def write_another(self, text: str) -> pathlib.Path:
        """Write the kubeconfig of another user at its own path."""
        self._directory = self._directory or tempfile.TemporaryDirectory(prefix="kopf-local-cluster-")
        path = pathlib.Path(self._directory.name) / f"user-{self._written}.yaml"
        write_privately(path, text)
        self._written += 1
        return path

    def remove(self) -> None:
        """Remove all kubeconfigs."""
        self._path.unlink(missing_ok=True)
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.cleanup()
