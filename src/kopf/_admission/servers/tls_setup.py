"""
Setup of TLS: what the options, the files, and the certificates come to at some moment, and how they are put into use.
"""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
import ssl

from kopf._admission.servers.certificate_sources import read_file
from kopf._admission.servers.identities import READS, Identity, IdentitySource, join_pems
from kopf._admission.servers.tls_contexts import ClientVerification, Path, check_bundle, load_identity, make_context


@dataclasses.dataclass(frozen=True, kw_only=True)
class TLSOptions:
    """Those of :class:`kopf.WebhookServer` with the same names."""

    cadata: bytes | None
    cafile: Path | None
    cadump: Path | None
    context: ssl.SSLContext | None
    insecure: bool
    password: str | None
    verify_mode: ssl.VerifyMode | None
    verify_cafile: Path | None
    verify_capath: Path | None
    verify_cadata: str | bytes | None


@dataclasses.dataclass(frozen=True)
class Trust:
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


class TLSSetup:
    """TLS of one server, with the identity from the source; ``None`` is for those that have it in their contexts."""

    def __init__(self, options: TLSOptions, source: IdentitySource | None) -> None:
        self._options = options
        self._source = source

    async def examine(self) -> Trust:
        """Read everything as it is now. Raises :class:`ValueError` or :class:`OSError` if it cannot be used."""
        READS.total += 1
        try:
            return await self._read()
        except (OSError, ValueError):
            READS.errors += 1
            raise

    async def _read(self) -> Trust:
        identity = await self._source.get() if self._source is not None else None
        bundle = self._read_bundle()
        if bundle is not None:
            check_bundle(bundle)
        clients = self._read_clients(bundle)
        if bundle is None and identity is not None:
            bundle = identity.bundle
        return Trust(identity, clients, bundle)

    def get_deadline(self) -> datetime.datetime | None:
        """Tell when it must be examined again at the latest; ``None`` for any time."""
        return self._source.get_deadline() if self._source is not None else None

    def check(self, trust: Trust) -> None:
        """Check that it is usable at all. Raises :class:`ValueError` if not."""
        self._configure(make_context(), trust)

    def make_context(self, trust: Trust) -> ssl.SSLContext | None:
        """Make what new connections are to use; ``None`` if there is no TLS."""
        if self._options.insecure:
            return None
        context = self._options.context if self._options.context is not None else make_context()
        self._configure(context, trust)
        return context

    def dump(self, bundle: bytes | None) -> None:
        """Write the bundle to the file for it, if there are both."""
        if self._options.cadump is not None and bundle is not None:
            pathlib.Path(self._options.cadump).write_bytes(bundle)

    def _configure(self, context: ssl.SSLContext, trust: Trust) -> None:
        if trust.identity is not None:
            load_identity(context, trust.identity, password=self._options.password)
        trust.clients.apply(context)

    def _read_bundle(self) -> bytes | None:
        options = self._options
        if options.cafile is None:
            return options.cadata
        content = read_file(options.cafile)
        return content if options.cadata is None else join_pems(options.cadata, content)

    def _read_clients(self, bundle: bytes | None) -> ClientVerification:
        options = self._options
        authorities = [options.verify_cadata] if options.verify_cadata else []
        if options.verify_cafile is not None:
            authorities.append(read_file(options.verify_cafile).decode("ascii", errors="replace"))
        if bundle is not None and not authorities and options.verify_capath is None and options.context is None:
            authorities.append(bundle.decode("ascii", errors="replace"))
        return ClientVerification(options.verify_mode, tuple(authorities), options.verify_capath)
