"""Setup of TLS: the options, files, and certificates as they are at some moment, and how the server uses them."""

from __future__ import annotations

import dataclasses
import pathlib
import ssl
from typing import TypedDict

from kopf._admission.servers.certificate_sources import read_file
from kopf._admission.servers.identities import READS, Identity, IdentitySource, join_pems
from kopf._admission.servers.tls_contexts import ClientVerification, Path, check_bundle, load_identity, make_context


class TLSOptions(TypedDict, total=False):
    """The options of TLS, with the same names as in :class:`kopf.WebhookServer`."""

    cadata: bytes | None
    cafile: Path | None
    cadump: Path | None
    context: ssl.SSLContext | None
    password: str | None
    verify_mode: ssl.VerifyMode | None
    verify_cafile: Path | None
    verify_capath: Path | None
    verify_cadata: str | bytes | None


@dataclasses.dataclass(frozen=True)
class Trust:
    """The identity and the trusted certificates at some moment."""

    identity: Identity | None
    """The identity of the server; ``None`` if it is unknown (in a ready-made context) or absent (without TLS)."""
    clients: ClientVerification
    bundle: bytes | None
    """The certificates that the clients must trust."""

    @property
    def serving(self) -> tuple[object, ...]:
        """Everything that matters to connections: if it changes, the server needs another context."""
        pair = (self.identity.certificate, self.identity.key) if self.identity is not None else ()
        return (*pair, self.clients)


class TLSSetup:
    """TLS of one server. Without a source, its identity is in a ready-made context, or it has none (``insecure``)."""

    def __init__(self, options: TLSOptions, source: IdentitySource | None, *, insecure: bool = False) -> None:
        self._options = options
        self._source = source
        self._insecure = insecure

    async def examine(self) -> Trust:
        """Read the current state. Raises :class:`ValueError` or :class:`OSError` if it is unusable."""
        READS.total += 1
        try:
            return await self._read()
        except (OSError, ValueError):
            READS.errors += 1
            raise

    async def _read(self) -> Trust:
        identity = await self._source() if self._source is not None else None
        bundle = self._read_bundle()
        if bundle is not None:
            check_bundle(bundle)
        clients = self._read_clients(bundle)
        if bundle is None and identity is not None:
            bundle = identity.bundle
        return Trust(identity, clients, bundle)

    def check(self, trust: Trust) -> None:
        """Check that the state is usable. Raises :class:`ValueError` if it is not."""
        self._configure(make_context(), trust)

    def make_context(self, trust: Trust) -> ssl.SSLContext | None:
        """Make the context of new connections; ``None`` means no TLS."""
        if self._insecure:
            return None
        context = self._options.get("context") or make_context()
        self._configure(context, trust)
        return context

    def dump(self, bundle: bytes | None) -> None:
        """Write the bundle to its file, if there are both."""
        if (path := self._options.get("cadump")) is not None and bundle is not None:
            pathlib.Path(path).write_bytes(bundle)

    def _configure(self, context: ssl.SSLContext, trust: Trust) -> None:
        if trust.identity is not None:
            load_identity(context, trust.identity, password=self._options.get("password"))
        trust.clients.apply(context)

    def _read_bundle(self) -> bytes | None:
        data, path = self._options.get("cadata"), self._options.get("cafile")
        if path is None:
            return data
        content = read_file(path)
        return content if data is None else join_pems(data, content)

    def _read_clients(self, bundle: bytes | None) -> ClientVerification:
        options = self._options
        authorities = [data] if (data := options.get("verify_cadata")) else []
        directory = options.get("verify_capath")
        if (path := options.get("verify_cafile")) is not None:
            authorities.append(read_file(path).decode("ascii", errors="replace"))
        if bundle is not None and not authorities and directory is None and options.get("context") is None:
            authorities.append(bundle.decode("ascii", errors="replace"))
        return ClientVerification(options.get("verify_mode"), tuple(authorities), directory)
