"""The webhook server over HTTPS, its certificates, and its configuration for the API servers, all kept up to date."""

from __future__ import annotations

import abc
import base64
import contextlib
import datetime
import functools
import ipaddress
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator
from types import TracebackType
from typing import ClassVar, Self, cast

from kopf._admission.servers.certificate_sources import GeneratedCertificates, Issuer, read_identity
from kopf._admission.servers.identities import IdentitySource
from kopf._admission.servers.renewal import follow_renewals
from kopf._admission.servers.rotation import LIFETIME
from kopf._admission.servers.tls_contexts import Path
from kopf._admission.servers.tls_setup import TLSOptions, TLSSetup
from kopf._serving.listening import open_sockets
from kopf._values.reviews import WebhookClientConfig, WebhookFn

logger = logging.getLogger(__name__)

DEFAULT_PORT = 9443
_LOCALHOST = "localhost"


class WebhookContextManager(abc.ABC):
    """
    A server or a tunnel that closes its iterators when its context ends.

    The iterators stop the server in their ``finally`` blocks. But hardly anything closes iterators explicitly: neither
    loops that end early, nor the iterators of users that wrap ours.
    """

    def __init__(self) -> None:
        super().__init__()
        self._generators: list[AsyncGenerator[WebhookClientConfig, None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        while self._generators:
            await self._generators.pop().aclose()

    def __call__(self, fn: WebhookFn, /) -> AsyncIterator[WebhookClientConfig]:
        """Pass the reviews to this function, until closed. Yield the config when it is ready, and when it changes."""
        generator = self._serve(fn)
        self._generators.append(generator)
        return generator

    @abc.abstractmethod
    def _serve(self, fn: WebhookFn) -> AsyncGenerator[WebhookClientConfig, None]: ...


class WebhookServer(WebhookContextManager):
    """
    A local HTTPS (or HTTP) server for admission reviews.

    - ``addr`` & ``port`` are the address and the port where it listens: by default, ``localhost`` and 9443. With
      another ``host``, the default is all addresses, as requests come from elsewhere then. Port 0 means any free port.
    - ``path`` is the root path of the webhooks; none by default.
    - ``host`` is the host name in the URL; by default, the same as ``addr``.
    - ``cadata`` & ``cafile`` are the CA bundle (PEM) for the API servers, which goes to the managed configurations.
      By default, it is the self-signed certificate. With ``certfile`` or ``context``, the default is no bundle: the API
      servers use the authorities that they trust anyway. Without other options for client certificates, this bundle
      also verifies them.
    - ``cadump`` is a file that gets the resulting CA bundle, e.g. for ``curl --cacert``.
    - ``certfile`` & ``pkeyfile`` are the certificate and the private key of the server (PEM). By default, the server
      makes a self-signed certificate for ``host``, ``addr``, and ``extra_sans``, and renews it when a third of its
      lifetime is left: it first publishes a CA bundle with both certificates, and switches to the new one later.
    - ``password`` decrypts the private key in the file, or encrypts the generated one.
    - ``extra_sans`` are additional host names or IP addresses for the generated certificate.
    - ``verify_mode``, ``verify_cafile``, ``verify_capath``, ``verify_cadata`` are for client certificates, as in
      :attr:`ssl.SSLContext.verify_mode` and :meth:`ssl.SSLContext.load_verify_locations`. With authorities but no mode,
      client certificates are optional: the server verifies them and passes them to handlers as ``sslpeer``.
    - ``context`` is a ready-made TLS context. The options above, if specified, are loaded into it.
    - ``max_body`` is the size of the largest review, in bytes; 7 MiB by default, twice the largest object.
    - ``max_connections`` is the number of connections, and so, of reviews handled at the same time; by default, 4096,
      or a quarter of the files that may be open, if that is less.
    - ``insecure`` switches to HTTP instead of HTTPS. Kubernetes does not support that, but tunnels and debuggers do.

    All files are read again every ``file_check_interval`` seconds (60 by default). If they have changed, new
    connections use the new ones.

    Large because every option is an attribute, which derived servers read and change.

    When it serves, it raises :class:`ValueError` or :class:`OSError` if the certificates are unusable, or if it cannot
    listen. If renewed files are unusable, it only warns of them and keeps the previous ones.
    """

    DEFAULT_HOST: str | None = None
    """The host name in the URL if ``host`` is not specified."""

    CERTIFICATE_LIFETIME: ClassVar[datetime.timedelta] = LIFETIME
    """The validity of generated certificates, which are renewed when a third of it is left."""

    EXIT_TIMEOUT: ClassVar[float] = 10.0
    """The longest wait at the exit until the current reviews are answered, in seconds."""

    PROPAGATION_DELAY: ClassVar[float] = 5.0
    """The time that API servers need to notice a changed configuration, in seconds."""

    def __init__(
        self,
        *,
        addr: str | None = None,
        port: int | None = None,
        path: str | None = None,
        host: str | None = None,
        cadata: bytes | None = None,
        cafile: Path | None = None,
        cadump: Path | None = None,
        context: ssl.SSLContext | None = None,
        insecure: bool = False,
        certfile: Path | None = None,
        pkeyfile: Path | None = None,
        password: str | None = None,
        extra_sans: Iterable[str] = (),
        verify_mode: ssl.VerifyMode | None = None,
        verify_cafile: Path | None = None,
        verify_capath: Path | None = None,
        verify_cadata: str | bytes | None = None,
        max_body: int | None = None,
        file_check_interval: float = 60.0,
        max_connections: int | None = None,
    ) -> None:
        """Large because existing operators pass all these options; see the class."""
        super().__init__()
        self.addr = addr
        self.port = port
        self.path = path
        self.host = host
        self.cadata = cadata
        self.cafile = cafile
        self.cadump = cadump
        self.context = context
        self.insecure = insecure
        self.certfile = certfile
        self.pkeyfile = pkeyfile
        self.password = password
        self.extra_sans = extra_sans
        self.verify_mode = verify_mode
        self.verify_cafile = verify_cafile
        self.verify_capath = verify_capath
        self.verify_cadata = verify_cadata
        self.file_check_interval = file_check_interval
        self.max_body = max_body
        self.max_connections = max_connections

    @staticmethod
    def build_certificate(hostnames: Collection[str], password: str | None = None) -> tuple[bytes, bytes]:
        """
        Make a self-signed certificate for the host names and IP addresses. Return it with its private key, in PEM.

        The common name is the first host name, or the first address if there are no names. Addresses like ``0.0.0.0``
        are left out. The password, if any, encrypts the key.

        Raises :class:`ValueError` if no names are left.
        """
        issuer = Issuer(hostnames, lifetime=LIFETIME, password=password)
        certificate = issuer.issue(issuer.names)
        return certificate.certificate, certificate.key

    async def _serve(self, fn: WebhookFn) -> AsyncGenerator[WebhookClientConfig, None]:
        from kopf._admission.servers.review_server import (  # it takes memory, and most operators need none
            Limits,
            ReviewServer,
        )

        setup = TLSSetup(self._get_tls_options(), await self._make_source(), insecure=self.insecure)
        trust = await setup.examine()
        path = _normalize_path(self.path)
        limits = Limits(max_body=self.max_body, max_connections=self.max_connections)
        server = ReviewServer(fn, path=path, limits=limits)
        with _listening(self._get_addr(), DEFAULT_PORT if self.port is None else self.port) as sockets:
            try:
                server.listen(sockets, setup.make_context(trust))
                config = await self._make_config(sockets[0].getsockname()[1], path)
                setup.dump(trust.bundle)
                logger.info("The webhook server is listening for %s", _describe(config))
                yield self._publish(config, trust.bundle)
                renewals = follow_renewals(
                    setup,
                    trust,
                    lambda context: server.listen(sockets, context),
                    interval=self.file_check_interval,
                    delay=self.PROPAGATION_DELAY,
                )
                async with contextlib.aclosing(renewals) as bundles:
                    async for bundle in bundles:
                        yield self._publish(config, bundle)
            finally:
                await server.close(self.EXIT_TIMEOUT)

    def _get_tls_options(self) -> TLSOptions:
        return cast(TLSOptions, {name: getattr(self, name) for name in TLSOptions.__annotations__})

    def _get_addr(self) -> str:
        """Get the address to listen at: all addresses if the clients use another name."""
        if self.addr is not None:
            return self.addr
        return "" if self.host or self.DEFAULT_HOST else _LOCALHOST

    def _get_host(self) -> str:
        host = self.host or self.DEFAULT_HOST
        return host or _get_reachable(self.addr or _LOCALHOST)

    def _get_names(self) -> list[str]:
        return [self._get_host(), _get_reachable(self.addr or _LOCALHOST), *self.extra_sans]

    async def _make_source(self) -> IdentitySource | None:
        if self.pkeyfile is not None and self.certfile is None:
            raise ValueError("There is pkeyfile= of the webhook server, but no certfile=.")
        if self.insecure:
            return None
        if self.certfile is not None:
            return functools.partial(read_identity, self.certfile, self.pkeyfile)
        return None if self.context is not None else await self._make_default_source()

    async def _make_default_source(self) -> IdentitySource:
        if self.cadata is not None or self.cafile is not None:
            logger.warning(
                "The webhook server generates its certificate, but API servers are told to trust another authority. "
                "If they connect directly, add certfile= & pkeyfile= that are signed by that authority."
            )
        return GeneratedCertificates(self._get_names(), lifetime=self.CERTIFICATE_LIFETIME, password=self.password).get

    async def _make_config(self, port: int, path: str) -> WebhookClientConfig:
        """Make the config of the server that listens at this port, without the CA bundle."""
        host = self._get_host()
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        return {"url": f"{'http' if self.insecure else 'https'}://{host}:{port}{path}"}

    def _publish(self, config: WebhookClientConfig, bundle: bytes | None) -> WebhookClientConfig:
        config = config.copy()
        if bundle is not None and not self.insecure:
            config["caBundle"] = base64.b64encode(bundle).decode("ascii")
        return config


@contextlib.contextmanager
def _listening(addr: str, port: int) -> Iterator[list[socket.socket]]:
    try:
        sockets = open_sockets(addr, port)
    except OSError as e:
        raise OSError(
            e.errno,
            f"The webhook server {e.strerror}. "
            "If another process uses the port, stop that process, or choose another port with port=.",
        ) from e
    try:
        yield sockets
    finally:
        for sock in sockets:
            sock.close()


def _get_reachable(addr: str) -> str:
    """Replace an address that means "all addresses" by the loopback, as URLs need a real one."""
    try:
        address = ipaddress.ip_address(addr)
    except ValueError:
        return addr
    if not address.is_unspecified:
        return addr
    return "127.0.0.1" if address.version == 4 else "::1"


def _normalize_path(path: str | None) -> str:
    """Put a slash at the beginning and none at the end; the root becomes an empty string."""
    stripped = (path or "").strip("/")
    return f"/{stripped}" if stripped else ""


def _describe(config: WebhookClientConfig) -> str:
    return str(config.get("url") or config.get("service"))
