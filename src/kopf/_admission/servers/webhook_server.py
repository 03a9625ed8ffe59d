"""
The server: an HTTPS endpoint, its certificates, and its configuration for the API servers, all kept up to date.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import ipaddress
import logging
import pathlib
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator
from typing import ClassVar

from kopf._admission.servers.identities import Identity, IdentitySource, join_pems
from kopf._admission.servers.managing import WebhookContextManager
from kopf._admission.servers.rotation import LIFETIME
from kopf._admission.servers.sources import CertificateFiles, GeneratedCertificates, Issuer, read_file
from kopf._admission.servers.tls_contexts import ClientVerification, Path, check_bundle, load_identity, make_context
from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIError
from kopf._serving.listening import open_sockets
from kopf._values.reviews import WebhookClientConfig, WebhookFn

logger = logging.getLogger(__name__)

Listen = Callable[[ssl.SSLContext | None], None]

DEFAULT_PORT = 9443
_RENEWAL_ERRORS = (OSError, ValueError, APIError, LoginError)  # maybe next time
_LOCALHOST = "localhost"


@dataclasses.dataclass(frozen=True)
class _Trust:
    """Who trusts whom at some moment."""

    identity: Identity | None
    """``None`` if it is unknown (with the user's own context) or absent (without TLS)."""
    clients: ClientVerification
    bundle: bytes | None
    """What the clients are to trust."""

    @property
    def serving(self) -> tuple[object, ...]:
        """What makes a difference to the connections."""
        pair = (self.identity.certificate, self.identity.key) if self.identity is not None else ()
        return (*pair, self.clients)


class WebhookServer(WebhookContextManager):
    """
    A local HTTPS (or HTTP) server for admission reviews.

    - ``addr`` & ``port`` are where to listen: by default, at ``localhost``, port 9443. With another ``host``, all
      addresses are listened at by default, as the requests come from elsewhere then. Port 0 is for any free one.
    - ``path`` is the root path of the webhooks; none by default.
    - ``host`` is the host name for the URL; by default, the same as ``addr``.
    - ``cadata`` & ``cafile`` are the CA bundle (PEM) for the API servers, which the managed configurations get.
      By default, it is the self-signed certificate; with ``certfile`` or ``context``, it is none, i.e. those that
      the API servers trust anyway. If there are no other options for the verification of client certificates, they
      are verified with this bundle too, if provided.
    - ``cadump`` is a file to write the resulting CA bundle to, e.g. for ``curl --cacert``.
    - ``certfile`` & ``pkeyfile`` are the certificate and the private key of the server (PEM). By default, they are
      self-signed, generated for ``host``, ``addr``, and ``extra_sans``, and renewed when a third of their lifetime
      is left: first, the CA bundle with both certificates is published, and the server switches to the new one later.
    - ``password`` is for the private key: of the file, or of the generated one.
    - ``extra_sans`` are additional host names or IP addresses for the generated certificate.
    - ``verify_mode``, ``verify_cafile``, ``verify_capath``, ``verify_cadata`` are for the client certificates, as in
      :attr:`ssl.SSLContext.verify_mode` and :meth:`ssl.SSLContext.load_verify_locations`. If there are authorities
      but no mode, certificates are optional: they are verified if provided, and are passed to handlers as ``sslpeer``.
    - ``context`` is a ready-made context to be used; whatever of the above is specified explicitly, is loaded into it.
    - ``max_body`` is the size of the largest review, in bytes: 7 MiB by default, twice the largest object.
    - ``max_connections`` is how many connections to keep, and so, how many reviews are handled at the same time:
      4096 by default, or a quarter of the files that may be open, if that is less.
    - ``insecure`` is for HTTP instead of HTTPS. Kubernetes does not support that, but tunnels & debugging do.

    All files are read again every minute; if they have changed, new connections use the new ones.

    Large because every option is an attribute, which inherited servers read and change.

    When it serves, it raises :class:`ValueError` or :class:`OSError` if the certificates cannot be used, or if it is
    impossible to listen. If renewed files cannot be used, it only warns of them, and goes on with the previous ones.
    """

    DEFAULT_HOST: str | None = None
    """The host name for the URL when it is not specified in ``host``."""

    CHECK_INTERVAL: ClassVar[float] = 60.0
    """How often to check if the files have changed, in seconds."""

    CERTIFICATE_LIFETIME: ClassVar[datetime.timedelta] = LIFETIME
    """How long the generated certificates are valid; they are renewed when a third of it is left."""

    EXIT_TIMEOUT: ClassVar[float] = 10.0
    """How long to wait on exit until the current reviews are answered, in seconds."""

    PROPAGATION_DELAY: ClassVar[float] = 5.0
    """How long it takes API servers to take notice of a changed configuration, in seconds."""

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
        max_connections: int | None = None,
    ) -> None:
        """Large because these are the options that existing operators pass; see the class."""
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
        self.max_body = max_body
        self.max_connections = max_connections
        self._complaint: str | None = None

    @staticmethod
    def build_certificate(hostnames: Collection[str], password: str | None = None) -> tuple[bytes, bytes]:
        """
        Make a self-signed certificate for the host names and IP addresses; give it and its private key (PEM).

        The first host name is the common name; if there are none, it is the first address. Addresses like ``0.0.0.0``
        are left out. The password encrypts the key.

        Raises :class:`ValueError` if no names are left.
        """
        issuer = Issuer(hostnames, lifetime=LIFETIME, password=password)
        certificate = issuer.issue(issuer.names)
        return certificate.certificate, certificate.key

    async def _serve(self, fn: WebhookFn) -> AsyncGenerator[WebhookClientConfig, None]:
        from kopf._admission.servers.handler import Endpoint  # servers take memory, and most operators have none

        source = await self._make_source()
        trust = await self._examine(source)
        path = _normalize_path(self.path)
        endpoint = Endpoint(fn, path=path, max_body=self.max_body, max_connections=self.max_connections)
        with _listening(self._get_addr(), DEFAULT_PORT if self.port is None else self.port) as sockets:
            try:
                endpoint.listen(sockets, self._make_context(trust))
                config = await self._make_config(sockets[0].getsockname()[1], path)
                self._dump(trust.bundle)
                logger.info("The webhook server is listening for %s", _describe(config))
                yield self._publish(config, trust.bundle)
                renewals = self._follow(source, trust, lambda context: endpoint.listen(sockets, context))
                async with contextlib.aclosing(renewals):
                    async for bundle in renewals:
                        yield self._publish(config, bundle)
            finally:
                await endpoint.close(self.EXIT_TIMEOUT)

    async def _follow(
        self, source: IdentitySource | None, trust: _Trust, listen: Listen
    ) -> AsyncGenerator[bytes | None, None]:
        """Keep the server up to date with everything that is renewed. Give the bundles to be published."""
        while True:
            await asyncio.sleep(self._get_delay(source))
            try:
                renewed = await self._examine(source)
                async with contextlib.aclosing(self._switch(trust, renewed, listen)) as bundles:
                    async for bundle in bundles:
                        yield bundle
            except _RENEWAL_ERRORS as e:
                self._complain(e)
            else:
                trust, self._complaint = renewed, None

    async def _switch(self, trust: _Trust, renewed: _Trust, listen: Listen) -> AsyncGenerator[bytes | None, None]:
        """Begin to use what is renewed, so that the clients trust both the old and the new certificate meanwhile."""
        if renewed.serving != trust.serving:
            self._configure(make_context(), renewed)  # is it usable at all?
            if trust.bundle and renewed.bundle and renewed.bundle != trust.bundle:
                yield join_pems(trust.bundle, renewed.bundle)
                await asyncio.sleep(self.PROPAGATION_DELAY)
            listen(self._make_context(renewed))
            logger.info("The webhook server uses the renewed certificates for new connections.")
        if renewed.bundle != trust.bundle:
            yield renewed.bundle
            self._dump(renewed.bundle)

    def _get_addr(self) -> str:
        """Listen at all addresses if the clients use a name that belongs to somebody else."""
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
            return CertificateFiles(self.certfile, self.pkeyfile)
        return None if self.context is not None else await self._make_default_source()

    async def _make_default_source(self) -> IdentitySource:
        if self.cadata is not None or self.cafile is not None:
            logger.warning(
                "The webhook server generates its certificate, but API servers are told to trust another authority. "
                "If they connect directly, add certfile= & pkeyfile= that are signed by that authority."
            )
        return GeneratedCertificates(self._get_names(), lifetime=self.CERTIFICATE_LIFETIME, password=self.password)

    async def _examine(self, source: IdentitySource | None) -> _Trust:
        """Read everything as it is now."""
        identity = await source.get() if source is not None else None
        bundle = self._read_bundle()
        if bundle is not None:
            check_bundle(bundle)
        clients = self._read_clients(bundle)
        if bundle is None and identity is not None:
            bundle = identity.bundle
        return _Trust(identity, clients, bundle)

    def _complain(self, error: Exception) -> None:
        """Tell what is wrong with what was renewed; only once, as it is tried again every minute."""
        if str(error) != self._complaint:
            logger.warning("The webhook server cannot renew its certificates, and uses the previous ones: %s", error)
        self._complaint = str(error)

    def _make_context(self, trust: _Trust) -> ssl.SSLContext | None:
        if self.insecure:
            return None
        context = self.context if self.context is not None else make_context()
        self._configure(context, trust)
        return context

    def _configure(self, context: ssl.SSLContext, trust: _Trust) -> None:
        if trust.identity is not None:
            load_identity(context, trust.identity, password=self.password)
        trust.clients.apply(context)

    def _read_bundle(self) -> bytes | None:
        if self.cafile is None:
            return self.cadata
        content = read_file(self.cafile)
        return content if self.cadata is None else join_pems(self.cadata, content)

    def _read_clients(self, bundle: bytes | None) -> ClientVerification:
        authorities = [self.verify_cadata] if self.verify_cadata else []
        if self.verify_cafile is not None:
            authorities.append(read_file(self.verify_cafile).decode("ascii", errors="replace"))
        if bundle is not None and not authorities and self.verify_capath is None and self.context is None:
            authorities.append(bundle.decode("ascii", errors="replace"))
        return ClientVerification(self.verify_mode, tuple(authorities), self.verify_capath)

    def _get_delay(self, source: IdentitySource | None) -> float:
        """How long to wait until something can be different."""
        deadline = source.get_deadline() if source is not None else None
        if deadline is None or self._complaint is not None:
            return self.CHECK_INTERVAL
        left = (deadline - datetime.datetime.now(datetime.UTC)).total_seconds()
        return min(self.CHECK_INTERVAL, max(left, 1.0))

    async def _make_config(self, port: int, path: str) -> WebhookClientConfig:
        """Tell how to reach the server that listens at this port; all but the CA bundle."""
        host = self._get_host()
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        return {"url": f"{'http' if self.insecure else 'https'}://{host}:{port}{path}"}

    def _dump(self, bundle: bytes | None) -> None:
        if self.cadump is not None and bundle is not None:
            pathlib.Path(self.cadump).write_bytes(bundle)

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
            "If it is used by somebody else, choose another one with port=, or stop them.",
        ) from e
    try:
        yield sockets
    finally:
        for sock in sockets:
            sock.close()


def _get_reachable(addr: str) -> str:
    """Replace what means "all addresses" by one of them; URLs cannot have those."""
    try:
        address = ipaddress.ip_address(addr)
    except ValueError:
        return addr
    if not address.is_unspecified:
        return addr
    return "127.0.0.1" if address.version == 4 else "::1"


def _normalize_path(path: str | None) -> str:
    """A slash in the beginning, none in the end; nothing for the root."""
    stripped = (path or "").strip("/")
    return f"/{stripped}" if stripped else ""


def _describe(config: WebhookClientConfig) -> str:
    return str(config.get("url") or config.get("service"))
