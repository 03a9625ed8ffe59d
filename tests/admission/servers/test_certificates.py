"""Certificates that the servers make for themselves."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
import shutil
import ssl
import subprocess
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

import kopf
from kopf._admission.servers import certificates
from kopf._admission.servers.certificate_sources import MissingDependencyError
from kopf._admission.servers.identities import Identity
from kopf._admission.servers.tls_contexts import load_identity, make_context
from tests.patience import PATIENCE

DAY = datetime.timedelta(days=1)


def build(*names: str, password: str | None = None) -> x509.Certificate:
    certificate, _ = kopf.WebhookServer.build_certificate(list(names), password)
    return x509.load_pem_x509_certificate(certificate)


def get_names(certificate: x509.Certificate) -> list[object]:
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [name.value for name in extension.value]


def get_common_name(certificate: x509.Certificate) -> str | bytes:
    return certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value


def test_names_and_addresses_are_told_apart() -> None:
    names = get_names(build("example.com", "10.0.0.1", "localhost", "fd00::1"))
    assert names == ["example.com", ipaddress.ip_address("10.0.0.1"), "localhost", ipaddress.ip_address("fd00::1")]


def test_addresses_are_normalised_and_listed_once() -> None:
    names = get_names(build("[fd00::1]", "FD00:0:0::1", "10.0.0.1", "10.0.0.1"))
    assert names == [ipaddress.ip_address("fd00::1"), ipaddress.ip_address("10.0.0.1")]


def test_addresses_that_mean_all_addresses_are_left_out() -> None:
    assert get_names(build("0.0.0.0", "example.com", "::")) == ["example.com"]


@pytest.mark.parametrize("names", [[], ["0.0.0.0", "::"]])
def test_there_must_be_names(names: list[str]) -> None:
    with pytest.raises(ValueError, match="at least one host name or IP address"):
        kopf.WebhookServer.build_certificate(names)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["10.0.0.1", "first.example.com", "second.example.com"], "first.example.com"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.1"),
        (["x" * 60 + ".example.com", "short.example.com"], "short.example.com"),  # RFC 5280: up to 64 characters
        (["x" * 60 + ".example.com"], "kopf"),
    ],
)
def test_the_common_name(names: list[str], expected: str) -> None:
    assert get_common_name(build(*names)) == expected


def test_long_names_are_among_the_alternative_names() -> None:
    long = "x" * 60 + ".example.com"
    assert get_names(build(long)) == [long]


def test_international_names() -> None:
    assert get_names(build("bücher.example")) == ["xn--bcher-kva.example"]


def test_the_key_belongs_to_the_certificate() -> None:
    certificate, key = kopf.WebhookServer.build_certificate(["localhost"])
    private_key = serialization.load_pem_private_key(key, password=None)
    assert private_key.public_key() == x509.load_pem_x509_certificate(certificate).public_key()


def test_the_key_is_encrypted_with_the_password() -> None:
    _, key = kopf.WebhookServer.build_certificate(["localhost"], "secret")
    serialization.load_pem_private_key(key, password=b"secret")
    with pytest.raises(TypeError):
        serialization.load_pem_private_key(key, password=None)
    with pytest.raises(ValueError, match="password|deserialize"):  # one of 256 wrong ones decrypts it, to garbage
        serialization.load_pem_private_key(key, password=b"wrong")


def test_the_validity() -> None:
    issued = certificates.issue(["localhost"], lifetime=30 * DAY)
    parsed = x509.load_pem_x509_certificate(issued.certificate)
    now = datetime.datetime.now(datetime.UTC)
    # The clocks of the clients can be behind.
    assert parsed.not_valid_before_utc < now - datetime.timedelta(minutes=59)
    assert abs(parsed.not_valid_after_utc - now - 30 * DAY) < datetime.timedelta(minutes=1)


def test_reading_gives_what_was_issued() -> None:
    issued = certificates.issue(["localhost", "10.0.0.1"], lifetime=DAY)
    assert certificates.read(issued.certificate, issued.key) == issued
    assert issued.names == certificates.normalize(["localhost", "10.0.0.1"])


def test_keys_are_not_shown() -> None:
    assert "PRIVATE" not in repr(certificates.issue(["localhost"], lifetime=DAY))


@pytest.mark.parametrize("order", [1, -1])
def test_old_and_new_certificates_can_be_in_one_bundle(order: int) -> None:
    """Both have the same names, so the clients could take one for the issuer of the other."""
    old, new = (certificates.issue(["localhost"], lifetime=DAY) for _ in range(2))
    bundle = b"".join([old.certificate, new.certificate][::order]).decode()
    for certificate in (old, new):
        shake_hands(certificate.certificate, certificate.key, bundle)


def shake_hands(certificate: bytes, key: bytes, bundle: str) -> None:
    """Let a strict client and a server talk, with no network."""
    server_context = make_context()
    load_identity(server_context, Identity(certificate, key))
    client_context = ssl.create_default_context(cadata=bundle)
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    sides = [client, server]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)


def test_openssl_accepts_them_strictly(tmp_path: pathlib.Path) -> None:
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("openssl is not installed, but this test drives the real one")
    certificate, _ = kopf.WebhookServer.build_certificate(["localhost", "127.0.0.1"])
    path = tmp_path / "cert.pem"
    path.write_bytes(certificate)
    for option, value in [("-verify_hostname", "localhost"), ("-verify_ip", "127.0.0.1")]:
        command = [openssl, "verify", "-x509_strict", "-purpose", "sslserver", option, value, "-CAfile"]
        subprocess.run([*command, str(path), str(path)], check=True, capture_output=True, timeout=PATIENCE)


def test_the_missing_library_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, certificates.__name__)
    monkeypatch.delattr("kopf._admission.servers.certificates")
    with pytest.raises(MissingDependencyError, match=r"pip install 'kopf\[dev\]'"):
        kopf.WebhookServer.build_certificate(["localhost"])
