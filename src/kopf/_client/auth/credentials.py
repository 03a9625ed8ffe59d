"""
Credentials: how to reach one API server, and how to log in there.

They are plain values, which login handlers return. This module derives their meaning for TLS and HTTP on demand; it
makes no connections.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import datetime
import hashlib
import os
import re
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kopf._values.operator_error import OperatorError

if TYPE_CHECKING:
    import aiohttp

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class LoginError(OperatorError):
    """The operator cannot log in to the API. The message says why, and what can be done."""


class PluginError(LoginError):
    """
    A plugin of the kubeconfig ran and failed. It can succeed next time, as plugins make requests over the network.
    """


_USERINFO = re.compile(r"(?<=://)[^/\s]*@")


def redact(text: str) -> str:
    """Hide the users and passwords of all URLs in the text, e.g. of proxies."""
    return _USERINFO.sub("***@", text)


def redact_url(url: str) -> str:
    """Hide the user and password of the URL, even if it is malformed, e.g. by a slash or a space in the password."""
    userinfo, at, host = url.rpartition("@")
    scheme, separator, _ = userinfo.partition("://")
    return f"{scheme if separator else ''}{separator}***@{host}" if at else url


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ConnectionInfo:
    """
    One API server with the credentials for it, as login handlers return it.

    All fields except ``server`` are optional:

    - ``server`` is the URL of the API server.
    - ``priority``: the operator uses the credentials with the highest priority; 0 by default.
    - ``default_namespace`` is the namespace of objects without one, e.g. of the Leases of replicas.
    - ``expiration``: when to stop using the credentials; never by default. Without a timezone, it is in UTC.
    - ``ca_path`` or ``ca_data`` is the certificate authority of the server; by default, that of the system.
    - ``insecure``: with ``True``, the certificate of the server is not verified.
    - ``username`` & ``password`` are for the HTTP basic authentication.
    - ``token`` or ``token_path`` goes to the ``Authorization`` header, after the ``scheme`` (``Bearer`` by default).
      The file is read again when it changes: service account tokens are renewed every hour.
    - ``certificate_path`` or ``certificate_data`` is the client certificate, ``private_key_path`` or
      ``private_key_data`` its private key.
    - ``proxy_url`` is the proxy: ``http://``, ``https://``, or, with the extra ``socks`` installed, ``socks5://`` and
      ``socks4://``. With ``trust_env``, the proxies of the environment variables are used, too.
    - ``tls_server_name`` is the name in the certificate of the server; by default, it is the host in ``server``.
    - ``strict_x509``: whether certificates must follow RFC 5280 to the letter; by default, as
      ``settings.networking.strict_x509`` says.

    ``*_path`` fields are paths of files (``~`` is expanded). ``*_data`` fields are contents: PEM, or base64-encoded PEM
    as in kubeconfigs. Raises :class:`ValueError` if both are set for the same thing.
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
                raise ValueError(f"Both the {name} path & data are set; set only one of them.")
        if self.insecure is not None and not isinstance(self.insecure, bool):
            raise ValueError(f"`insecure` must be a boolean, got {type(self.insecure).__name__}.")
        object.__setattr__(self, "expiration", as_utc(self.expiration))

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.repr}
        urls = {key: redact_url(values[key]) for key in ("server", "proxy_url") if isinstance(values[key], str)}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in {**values, **urls}.items())})"

    def as_ssl_context(self, *, strict_x509: bool | None = None) -> ssl.SSLContext:
        """
        Make the TLS settings: the trusted authorities, and the client certificate.

        ``strict_x509`` applies unless the credentials have a value of their own; ``None`` leaves it to Python (strict
        since 3.13). Raises :class:`OSError` (e.g. :class:`ssl.SSLError`) if the files or the data are unusable.
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
        certificate, key = (
            _read(path) if data is None else decode_pem(data)
            for path, data in (
                (self.certificate_path, self.certificate_data),
                (self.private_key_path, self.private_key_data),
            )
        )
        key = _CERTIFICATES.sub(b"", key)  # files with keys can hold others, and OpenSSL takes the first one
        with exposing(key.strip() + b"\n" + certificate) as path:
            context.load_cert_chain(path)

    def as_http_headers(self) -> dict[str, str]:
        """Make the headers of every request. Raises :class:`OSError` if the file with the token is unreadable."""
        return make_http_headers(self, self.read_token())

    def as_aiohttp_basic_auth(self) -> aiohttp.BasicAuth | None:
        """
        Return ``None``: the basic authentication is in :meth:`as_http_headers`.

        ``aiohttp`` refuses a header together with its own way, and deprecates its own way.
        """
        return None

    @property
    def has_files(self) -> bool:
        """Whether parts of the credentials are in files, which can change."""
        paths = (self.ca_path, self.certificate_path, self.private_key_path, self.token_path)
        return any(path is not None for path in paths)

    def digest_certificates(self) -> bytes:
        """
        Make a digest of the files with certificates and keys: it changes when they are renewed.

        Raises :class:`OSError` if they are unreadable.
        """
        digest = hashlib.blake2b(digest_size=16)
        for path in (self.ca_path, self.certificate_path, self.private_key_path):
            digest.update(_read(path))
        return digest.digest()

    def read_token(self) -> str | None:
        """Get the current token. Raises :class:`OSError` if its file is unreadable."""
        return self.token if self.token_path is None else _read(self.token_path).decode().strip()


@dataclasses.dataclass(frozen=True, kw_only=True)
class AiohttpSession:
    """
    One API server with a ready-made session of ``aiohttp``, for authentication that :class:`ConnectionInfo` cannot
    express.

    ``aiohttp_session`` is used unchanged, with its own headers and connector. From now on, it belongs to the operator,
    which closes it when it expires, when the server refuses it, or when the operator exits. ``server``, ``priority``,
    ``default_namespace``, and ``expiration`` are the same as in :class:`ConnectionInfo`.
    """

    server: str
    priority: int = 0
    default_namespace: str | None = None
    expiration: datetime.datetime | None = None
    aiohttp_session: aiohttp.ClientSession

    def __post_init__(self) -> None:
        object.__setattr__(self, "expiration", as_utc(self.expiration))


Credentials = ConnectionInfo | AiohttpSession
"""The result of a successful login handler."""


def make_http_headers(info: ConnectionInfo, token: str | None) -> dict[str, str]:
    """Make the headers of every request with this token: tokens in files change."""
    if info.username and info.password:
        pair = base64.b64encode(f"{info.username}:{info.password}".encode())
        return {"Authorization": f"Basic {pair.decode('ascii')}"}
    if token:
        return {"Authorization": f"{info.scheme or 'Bearer'} {token}"}
    return {"Authorization": info.scheme} if info.scheme else {}


def as_utc(timestamp: datetime.datetime | None) -> datetime.datetime | None:
    """Add the timezone if it is absent: naive timestamps are in UTC."""
    if timestamp is None or timestamp.tzinfo is not None:
        return timestamp
    return timestamp.replace(tzinfo=datetime.UTC)


def decode_pem(data: str | bytes) -> bytes:
    """Get PEM from PEM or base64-encoded PEM. Raises :class:`ValueError` if it is neither."""
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


def _read(path: AnyPath | None) -> bytes:
    """Read a small file, if there is one."""
    if path is None:
        return b""
    with open(_expand(path), "rb") as file:
        return file.read()


_CERTIFICATES = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def _open_memory() -> int | None:
    """Open a file in memory, where the system can do that and permits it (``vm.memfd_noexec``, seccomp)."""
    if not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.memfd_create("kopf", os.MFD_CLOEXEC)
    except OSError:
        return None


@contextlib.contextmanager
def exposing(data: bytes) -> Iterator[str]:
    """
    Expose the data as a file for the time of the block, because OpenSSL loads certificates only from files.

    Private keys should be on no disk, and containers often have no place to write to. So, the file is in memory where
    the system can do that.
    """
    if (descriptor := _open_memory()) is not None:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        import tempfile  # Linux needs none

        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "identity.pem")
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            yield path
