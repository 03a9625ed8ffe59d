from __future__ import annotations

import base64
import datetime
import os
import pathlib
import ssl
import tempfile
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kopf._client.auth.credentials import AiohttpSession, ConnectionInfo, decode_pem


@pytest.fixture(scope="module")
def pair() -> tuple[bytes, bytes]:
    return make_pair()


def make_pair() -> tuple[bytes, bytes]:
    """A self-signed certificate, usable as a CA and as a client certificate, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


@pytest.mark.parametrize(
    ("kwargs", "name"),
    [
        ({"ca_path": "x", "ca_data": b"y"}, "CA"),
        ({"certificate_path": "x", "certificate_data": b"y"}, "certificate"),
        ({"private_key_path": "x", "private_key_data": b"y"}, "private key"),
        ({"token_path": "x", "token": "y"}, "token"),
    ],
)
def test_path_and_data_together_are_refused(kwargs: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"Both the {name} path & data are set"):
        ConnectionInfo(server="https://host", **kwargs)


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        ConnectionInfo("https://host")  # type: ignore[call-arg]


def test_secrets_are_not_shown() -> None:
    info = ConnectionInfo(
        server="https://host", password="pwd!", token="tok!", private_key_data=b"key!", certificate_data=b"crt!"
    )
    assert "https://host" in repr(info)
    assert "!" not in repr(info)


@pytest.mark.parametrize(
    ("kwargs", "header"),
    [
        ({}, None),
        ({"token": "x"}, "Bearer x"),
        ({"token": "x", "scheme": "Digest"}, "Digest x"),
        ({"scheme": "Negotiate"}, "Negotiate"),
        ({"username": "u", "password": "p"}, "Basic dTpw"),
        ({"username": "u", "password": "p", "token": "x"}, "Basic dTpw"),
        ({"username": "ü", "password": "p"}, "Basic w7w6cA=="),
        ({"username": "u"}, None),
    ],
)
def test_http_headers(kwargs: dict[str, Any], header: str | None) -> None:
    info = ConnectionInfo(server="https://host", **kwargs)
    assert info.as_http_headers() == ({} if header is None else {"Authorization": header})
    assert info.as_aiohttp_basic_auth() is None


def test_token_file_is_read_every_time(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "token"
    info = ConnectionInfo(server="https://host", token_path=path)
    path.write_text("one\n")
    assert info.as_http_headers() == {"Authorization": "Bearer one"}
    path.write_text("two\n")
    assert info.as_http_headers() == {"Authorization": "Bearer two"}


def test_naive_expiration_is_in_utc() -> None:
    naive = datetime.datetime(2099, 12, 31, 23, 59, 59)  # noqa: DTZ001 -- this is what is tested
    aware = datetime.datetime(2099, 12, 31, 23, 59, 59, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    assert ConnectionInfo(server="x", expiration=naive).expiration == naive.replace(tzinfo=datetime.UTC)
    assert ConnectionInfo(server="x", expiration=aware).expiration is aware
    assert ConnectionInfo(server="x").expiration is None


async def test_ready_made_sessions() -> None:
    naive = datetime.datetime(2099, 12, 31)  # noqa: DTZ001 -- this is what is tested
    async with aiohttp.ClientSession() as session:
        info = AiohttpSession(server="https://host", aiohttp_session=session, expiration=naive)
        assert info.expiration == naive.replace(tzinfo=datetime.UTC)
        assert info.priority == 0
        assert info.default_namespace is None


@pytest.mark.parametrize(
    ("options", "mode"), [({}, ssl.CERT_REQUIRED), ({"insecure": True}, ssl.CERT_NONE)], ids=["default", "insecure"]
)
def test_verification(options: Any, mode: ssl.VerifyMode) -> None:
    context = ConnectionInfo(server="https://host", **options).as_ssl_context()
    assert context.verify_mode == mode
    assert context.check_hostname is (mode == ssl.CERT_REQUIRED)


@pytest.mark.parametrize("form", ["pem", "pem-str", "base64", "base64-str", "path", "path-bytes", "path-str"])
def test_ca_in_all_forms(pair: tuple[bytes, bytes], form: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(pair[0])
    kwargs: dict[str, dict[str, Any]] = {
        "pem": {"ca_data": pair[0]},
        "pem-str": {"ca_data": pair[0].decode()},
        "base64": {"ca_data": base64.b64encode(pair[0])},
        "base64-str": {"ca_data": base64.encodebytes(pair[0]).decode()},
        "path": {"ca_path": path},
        "path-bytes": {"ca_path": str(path).encode()},
        "path-str": {"ca_path": str(path)},
    }
    context = ConnectionInfo(server="https://host", **kwargs[form]).as_ssl_context()
    assert [cert["subject"] for cert in context.get_ca_certs()] == [((("commonName", "test"),),)]


@pytest.mark.parametrize("form", ["data", "paths", "mixed", "one file"])
def test_client_certificates_in_all_forms(
    pair: tuple[bytes, bytes], form: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "client.crt").write_bytes(pair[0])
    (tmp_path / "client.key").write_bytes(pair[1])
    (tmp_path / "both.pem").write_bytes(pair[0] + pair[1])
    kwargs: dict[str, dict[str, Any]] = {
        "data": {"certificate_data": pair[0], "private_key_data": base64.b64encode(pair[1])},
        "paths": {"certificate_path": "~/client.crt", "private_key_path": tmp_path / "client.key"},
        "mixed": {"certificate_path": tmp_path / "client.crt", "private_key_data": pair[1].decode()},
        "one file": {"certificate_path": tmp_path / "both.pem"},
    }
    ConnectionInfo(server="https://host", **kwargs[form]).as_ssl_context()
    assert list(temporary.iterdir()) == []  # the keys are not left on disk


def test_client_certificates_where_files_in_memory_are_forbidden(
    pair: tuple[bytes, bytes], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ConnectionInfo(server="https://host", certificate_data=pair[0], private_key_data=pair[1]).as_ssl_context()
    assert list(tmp_path.iterdir()) == []


def test_other_certificates_beside_the_key_are_ignored(pair: tuple[bytes, bytes]) -> None:
    other, _ = make_pair()
    info = ConnectionInfo(server="https://host", certificate_data=pair[0], private_key_data=other + pair[1])
    info.as_ssl_context()


def test_unusable_keys_are_not_left_on_disk(
    pair: tuple[bytes, bytes], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    garbage = b"-----BEGIN PRIVATE KEY-----\ngarbage\n-----END PRIVATE KEY-----\n"
    info = ConnectionInfo(server="https://host", certificate_data=pair[0], private_key_data=garbage)
    with pytest.raises(ssl.SSLError):
        info.as_ssl_context()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"what is it?", base64.b64encode(b"not a certificate"), "ÿ"])
def test_data_that_is_not_pem(data: str | bytes) -> None:
    with pytest.raises(ValueError, match="PEM"):
        decode_pem(data)
