"""
Inside of the cluster: the API servers come via a Service, and the replicas share their certificates.
"""

from __future__ import annotations

import pathlib
import ssl
from collections.abc import Iterable
from typing import TypedDict, Unpack

from kopf._admission.servers.identities import IdentitySource
from kopf._admission.servers.secrets import CertificateSecret
from kopf._admission.servers.sources import Issuer
from kopf._admission.servers.tls_contexts import Path
from kopf._admission.servers.webhook_server import WebhookServer
from kopf._client.auth.service_account import SERVICE_ACCOUNT_PATH
from kopf._values.reviews import WebhookClientConfig


class ServerOptions(TypedDict, total=False):
    """The options of servers that are the same behind a ``Service``: all but the host name and the insecure mode."""

    addr: str | None
    port: int | None
    path: str | None
    cadata: bytes | None
    cafile: Path | None
    cadump: Path | None
    context: ssl.SSLContext | None
    certfile: Path | None
    pkeyfile: Path | None
    password: str | None
    extra_sans: Iterable[str]
    verify_mode: ssl.VerifyMode | None
    verify_cafile: Path | None
    verify_capath: Path | None
    verify_cadata: str | bytes | None
    max_body: int | None
    file_check_interval: float
    max_connections: int | None


class WebhookServiceServer(WebhookServer):
    """
    A server for operators in pods: the API servers come to a ``Service``, which is deployed together with the operator.

    - ``name`` & ``namespace`` are of the ``Service``; the default namespace is that of the pod.
    - ``service_port`` is the port of the ``Service``, 443 by default; ``port`` is where the operator listens, i.e.
      the target port of the ``Service``, 9443 by default; ``addr`` is where to listen: all addresses by default.
    - ``path`` is the root path of the webhooks; none by default.
    - ``secret`` is the name of a ``Secret`` in the same namespace, where the certificates are kept. By default, it is
      the name of the service with ``-webhook-certs`` in the end. It is created if absent. All replicas of the operator
      use and renew the same certificates, so they can be restarted one by one with no review refused. If it was
      created by somebody else, e.g. by cert-manager, it is used as it is, and read again every minute.
      The operator must be permitted to ``get``, ``create``, and ``patch`` secrets.
    - All other options are as in :class:`kopf.WebhookServer`. With ``certfile`` or ``context``, no secret is used.

    When it serves, it raises the same errors as :class:`kopf.WebhookServer`; :class:`ValueError` if the namespace is
    not specified and is unknown; :class:`PermissionError` if the secret is forbidden; and others if the API fails.
    """

    def __init__(
        self,
        name: str,
        *,
        namespace: str | None = None,
        service_port: int | None = None,
        secret: str | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(**options)
        self.name = name
        self.namespace = namespace
        self.service_port = service_port
        self.secret = secret

    def _get_addr(self) -> str:
        return self.addr if self.addr is not None else ""

    def _get_host(self) -> str:
        return f"{self.name}.{self._get_namespace()}.svc"  # it is what API servers verify

    def _get_names(self) -> list[str]:
        return [self._get_host(), *self.extra_sans]

    def _get_namespace(self) -> str:
        if self.namespace is not None:
            return self.namespace
        try:
            return pathlib.Path(SERVICE_ACCOUNT_PATH, "namespace").read_text(encoding="utf-8").strip()
        except OSError as e:
            raise ValueError(
                f"The namespace of the service {self.name!r} is unknown, as it is not a pod with a service account: "
                "add namespace=."
            ) from e

    async def _make_default_source(self) -> IdentitySource:
        issuer = Issuer(self._get_names(), lifetime=self.CERTIFICATE_LIFETIME, password=self.password)
        return CertificateSecret(self._get_namespace(), self.secret or f"{self.name}-webhook-certs", issuer)

    async def _make_config(self, port: int, path: str) -> WebhookClientConfig:
        service_port = 443 if self.service_port is None else self.service_port
        return {
            "service": {
                "namespace": self._get_namespace(),
                "name": self.name,
                "port": service_port,
                "path": path or "/",
            }
        }
