"""
Credentials: how to reach one API server and how to identify oneself there.

They are plain values that login handlers return. What they mean for TLS & HTTP is derived here, on demand;
connections are made elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import hashlib
import os
import re
import ssl
from typing import TYPE_CHECKING

from kopf._values.operator_error import OperatorError

if TYPE_CHECKING:
    import aiohttp

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class LoginError(OperatorError):
    """The operator cannot log in to the API; the message says why and what can be done."""


class PluginError(LoginError):
    """
    A plugin of the kubeconfig has been run and has failed. It may succeed next time: plugins ask somebody over the
    network.
    """


_USERINFO = re.compile(r"(?<=://)[^/\s]*@")


def redact(text: str) -> str:
    """Hide the users & passwords of all URLs in the text, e.g. of those of proxies."""
    return _USERINFO.sub("***@", text)


def redact_url(url: str) -> str:
    """Hide the user & password of the URL, even if it is malformed, e.g. by a slash or a space in the password."""
    userinfo, at, host = url.rpartition("@")
    scheme, separator, _ = userinfo.partition("://")
    return f"{scheme if separator else ''}{separator}***@{host}" if at else url


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ConnectionInfo:
    """
    A single endpoint with specific credentials.

    ``*_path`` fields are files (``~`` is expanded), ``*_data`` fields are contents: PEM, or base64-encoded
    PEM as in kubeconfigs. Only one of them can be set for each thing, otherwise :class:`ValueError` is
    raised.

    With ``username`` & ``password``, it is HTTP basic authentication. With ``token``, the ``Authorization``
    header is the ``scheme`` (``Bearer`` by default) and the token. ``token_path`` is a file with the token,
    which is read again when the file changes (service account tokens are renewed hourly).

    ``expiration`` is when the credentials stop being used; with no timezone, it is in UTC. Credentials with
    higher ``priority`` are preferred. ``proxy_url`` is the proxy to go through: ``http://``, ``https://``, or, with
    the extra ``socks`` installed, ``socks5://`` & ``socks4://``; ``trust_env`` is for the proxies of the
    environment variables.

    ``tls_server_name`` is whom the certificate of the server must be for, if not for the host in ``server``.
    ``strict_x509`` tells whether the certificates must follow RFC 5280 to the letter; ``None`` is for
    ``settings.networking.strict_x509``.
    """

    server: str
    priority: int = 0
    default_namespace: str | None = None
    expiration: datetime.datetime | None = None
    ca_path: AnyPath | None = None
    ca_data: str | bytes | None = dataclasses.field(default=None, repr=False)
    insecure: bool | None = None
    username: str | None = None
    password: str | None = dataclasses.field(default=None, repr=False)
    scheme: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    token_path: AnyPath | None = None
    certificate_path: AnyPath | None = None
    certificate_data: str | bytes | None = dataclasses.field(default=None, repr=False)
    private_key_path: AnyPath | None = None
    private_key_data: str | bytes | None = dataclasses.field(default=None, repr=False)
    proxy_url: str | None = None
    trust_env: bool = False
    tls_server_name: str | None = None
    strict_x509: bool | None = None

    def __post_init__(self) -> None:
        for name, path, data in (
            ("CA", self.ca_path, self.ca_data),
            ("certificate", self.certificate_path, self.certificate_data),
            ("private key", self.private_key_path, self.private_key_data),
            ("token", self.token_path, self.token),
        ):
            if path is not None and data is not None:
                raise ValueError(f"Both the {name} path & data are set, only one of them is needed.")
        if self.insecure is not None and not isinstance(self.insecure, bool):
            raise ValueError(f"`insecure` must be a boolean, got {type(self.insecure).__name__}.")
        object.__setattr__(self, "expiration", as_utc(self.expiration))

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.repr}
        urls = {key: redact_url(values[key]) for key in ("server", "proxy_url") if isinstance(values[key], str)}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in {**values, **urls}.items())})"

    def as_ssl_context(self, *, strict_x509: bool | None = None) -> ssl.SSLContext:
        """
        Make the TLS settings: whom to trust, and which client certificate to show.

        ``strict_x509`` is used unless the credentials have their own; ``None`` leaves it to Python (strict since
        3.13). Raises :class:`OSError` (:class:`ssl.SSLError` included) if the files or data are unusable.
        """
        context = ssl.create_default_context(
            cafile=None if self.ca_path is None else _expand(self.ca_path),
            cadata=None if self.ca_data is None else decode_pem(self.ca_data).decode("ascii"),
        )
        strict = self.strict_x509 if self.strict_x509 is not None else strict_x509
        if strict is not None:
            others = context.verify_flags & ~ssl.VERIFY_X509_STRICT
            context.verify_flags = others | (ssl.VERIFY_X509_STRICT if strict else 0)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_path is not None or self.certificate_data is not None:
            self._load_client_certificate(context)
        return context

    def _load_client_certificate(self, context: ssl.SSLContext) -> None:
        # OpenSSL loads certificates from files only. Keys that came as data are on disk only while it does.
        import tempfile  # pods have tokens instead

        with tempfile.TemporaryDirectory(prefix="kopf-") as tmpdir:
            certificate_path = self.certificate_path
            if self.certificate_data is not None:
                certificate_path = _store(tmpdir, "client.crt", self.certificate_data)
            private_key_path = self.private_key_path
            if self.private_key_data is not None:
                private_key_path = _store(tmpdir, "client.key", self.private_key_data)
            if certificate_path is not None:
                key = None if private_key_path is None else _expand(private_key_path)
                context.load_cert_chain(_expand(certificate_path), key)

    def as_http_headers(self) -> dict[str, str]:
        """Make the headers of every request. Raises :class:`OSError` if the token's file is unreadable."""
        return make_http_headers(self, self.read_token())

    def as_aiohttp_basic_auth(self) -> aiohttp.BasicAuth | None:
        """
        Always ``None``: the basic authentication is in :meth:`as_http_headers`.

        Aiohttp refuses the header and its own way combined, and its own way is deprecated there.
        """
        return None

    @property
    def has_files(self) -> bool:
        """Whether anything of it is in files, which can change."""
        paths = (self.ca_path, self.certificate_path, self.private_key_path, self.token_path)
        return any(path is not None for path in paths)

    def digest_certificates(self) -> bytes:
        """
        Tell one state of the files with certificates & keys from another: these are replaced when they are renewed.

        Raises :class:`OSError` if they are unreadable.
        """
        digest = hashlib.blake2b(digest_size=16)
        for path in (self.ca_path, self.certificate_path, self.private_key_path):
            if path is not None:
                with open(_expand(path), "rb") as file:
                    digest.update(file.read())
        return digest.digest()

    def read_token(self) -> str | None:
        """
        Get the token, the freshest one if it is in a file. Raises :class:`OSError` if the file is unreadable.
        """
        if self.token_path is None:
            return self.token
        with open(_expand(self.token_path), encoding="utf-8") as file:
            return file.read().strip()


@dataclasses.dataclass(frozen=True, kw_only=True)
class AiohttpSession:
    """
    A single endpoint with a ready-made session, for the authentication that :class:`ConnectionInfo` cannot
    express.

    The session is used as it is, with its own headers and connector. It belongs to the operator from now on,
    and is closed when it is not needed anymore: it expires, is refused by the server, or the operator exits.
    """

    server: str
    priority: int = 0
    default_namespace: str | None = None
    expiration: datetime.datetime | None = None
    aiohttp_session: aiohttp.ClientSession

    def __post_init__(self) -> None:
        object.__setattr__(self, "expiration", as_utc(self.expiration))


Credentials = ConnectionInfo | AiohttpSession
"""What login handlers return if they have succeeded."""


def make_http_headers(info: ConnectionInfo, token: str | None) -> dict[str, str]:
    """Make the headers of every request with the specific token (those in files change)."""
    if info.username and info.password:
        pair = base64.b64encode(f"{info.username}:{info.password}".encode())
        return {"Authorization": f"Basic {pair.decode('ascii')}"}
    if token:
        return {"Authorization": f"{info.scheme or 'Bearer'} {token}"}
    return {"Authorization": info.scheme} if info.scheme else {}


def as_utc(timestamp: datetime.datetime | None) -> datetime.datetime | None:
    """Add the timezone where it is absent: naive timestamps are in UTC."""
    if timestamp is None or timestamp.tzinfo is not None:
        return timestamp
    return timestamp.replace(tzinfo=datetime.UTC)


def decode_pem(data: str | bytes) -> bytes:
    """Get PEM out of PEM or base64-encoded PEM. Raises :class:`ValueError` if it is neither."""
    raw = data.encode("utf-8") if isinstance(data, str) else data
    if b"-----BEGIN" in raw:
        return raw
    try:
        decoded = base64.b64decode(b"".join(raw.split()), validate=True)
    except binascii.Error as exc:
        raise ValueError("A certificate or a key is neither PEM nor base64-encoded PEM.") from exc
    if b"-----BEGIN" not in decoded:
        raise ValueError("A certificate or a key is base64-encoded, but there is no PEM inside.")
    return decoded


def _expand(path: AnyPath) -> str:
    return os.path.expanduser(os.fsdecode(path))


def _store(tmpdir: str, name: str, data: str | bytes) -> str:
    path = os.path.join(tmpdir, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(decode_pem(data))
    return path
