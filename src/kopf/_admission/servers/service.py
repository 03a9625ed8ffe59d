"""
Webhook servers in pods: the API servers come via a Service, and the replicas share their certificates in a Secret.

One replica makes the certificates, all replicas use them, and they survive restarts. The Secret is a shared state with
no owner, so every write is guarded: the operator either creates the Secret, or patches the same version that it has
read. A replica that comes too late reads the Secret again, and finds nothing left to do.

A Secret of others, e.g. of cert-manager, is only read. Empty Secrets are filled.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import logging
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from kopf._admission.servers.certificate_sources import Issuer
from kopf._admission.servers.identities import Identity, IdentitySource
from kopf._admission.servers.rotation import Rotation, advance
from kopf._admission.servers.tls_contexts import Path
from kopf._admission.servers.tls_setup import TLSOptions
from kopf._admission.servers.webhook_server import WebhookServer
from kopf._client.auth.service_account import read_namespace
from kopf._client.errors import APIConflictError, APIForbiddenError, APINotFoundError
from kopf._client.http.api import get_current_api
from kopf._values import codec
from kopf._values.reviews import WebhookClientConfig

logger = logging.getLogger(__name__)

_OWNER = {"app.kubernetes.io/managed-by": "kopf"}

# The keys follow "TLS Secrets" in the Kubernetes documentation, and cert-manager; two pairs are our own.
_CERTIFICATE, _KEY, _BUNDLE = "tls.crt", "tls.key", "ca.crt"
_NEXT_CERTIFICATE, _NEXT_KEY, _PREVIOUS_CERTIFICATE = "next.crt", "next.key", "previous.crt"

_ATTEMPTS = 10


class CertificateSecret:
    """A Secret with the certificates for all replicas of an operator. It works only inside of a running operator."""

    def __init__(self, namespace: str, name: str, issuer: Issuer) -> None:
        self._namespace = namespace
        self._name = name
        self._issuer = issuer
        self._collection = f"/api/v1/namespaces/{urllib.parse.quote(namespace, safe='')}/secrets"
        self._path = f"{self._collection}/{urllib.parse.quote(name, safe='')}"
        self._is_foreign = False

    async def get(self) -> Identity:
        """
        Read the Secret. Take the next step of the rotation if it is due and no other replica has taken it.

        Raises :class:`PermissionError` if a request is forbidden, and :class:`APIError` and others if one fails.
        """
        try:
            return await self._synchronize()
        except APIForbiddenError as e:
            raise PermissionError(
                f"The certificates of the webhook server cannot be kept in the Secret {self._name!r} "
                f"of the namespace {self._namespace!r}: {e}. Permit the verbs 'get', 'create', 'patch' on 'secrets' "
                "of the API group '' there. Or make certificates by other means, and use certfile= & pkeyfile=."
            ) from e

    async def _synchronize(self) -> Identity:
        for _ in range(_ATTEMPTS):
            secret = await self._read()
            if secret is not None and _is_made_by_others(secret):
                return self._take_from_others(secret)
            rotation = self._parse(secret) if secret is not None else None
            now = datetime.datetime.now(datetime.UTC)
            advanced = advance(rotation, self._issuer.names, now, self._issuer.issue)
            if advanced is rotation or await self._write(secret, advanced):
                return advanced.identity
        raise RuntimeError(
            f"The Secret {self._name!r} of the namespace {self._namespace!r} keeps changing. Find out what changes it."
        )

    async def _read(self) -> Mapping[str, Any] | None:
        try:
            secret: Mapping[str, Any] = codec.decode_answer(await get_current_api().get(self._path))
        except APINotFoundError:
            return None
        return secret

    async def _write(self, secret: Mapping[str, Any] | None, rotation: Rotation) -> bool:
        """Store the certificates. Return false if others have changed the Secret meanwhile."""
        api, data = get_current_api(), _dump(rotation)
        try:
            if secret is None:
                await api.post(
                    self._collection,
                    payload={
                        "apiVersion": "v1",
                        "kind": "Secret",
                        "type": "kubernetes.io/tls",
                        "metadata": {"namespace": self._namespace, "name": self._name, "labels": _OWNER},
                        "data": {key: value for key, value in data.items() if value is not None},
                    },
                )
            else:
                version = secret["metadata"]["resourceVersion"]
                await api.patch(
                    self._path,
                    payload={
                        "metadata": {"resourceVersion": version, "labels": _OWNER},
                        "data": data,
                    },
                )
        except (APIConflictError, APINotFoundError) as e:
            if isinstance(e, APINotFoundError) and secret is None:
                raise  # there is no such namespace
            return False
        logger.info("The certificates of the webhook server are stored in the Secret %r.", self._name)
        return True

    def _parse(self, secret: Mapping[str, Any]) -> Rotation | None:
        """Read the state of the rotation; ``None`` if the Secret is empty or broken."""
        try:
            pems = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
            if not pems.get(_CERTIFICATE):
                return None
            following = pems.get(_NEXT_CERTIFICATE)
            return Rotation(
                current=self._issuer.read(pems[_CERTIFICATE], pems[_KEY]),
                next=self._issuer.read(following, pems[_NEXT_KEY]) if following else None,
                previous=pems.get(_PREVIOUS_CERTIFICATE) or None,
            )
        except (ValueError, KeyError, binascii.Error) as e:
            logger.warning("The certificates in the Secret %r are broken, and are replaced: %r", self._name, e)
            return None

    def _take_from_others(self, secret: Mapping[str, Any]) -> Identity:
        if not self._is_foreign:
            self._is_foreign = True
            logger.info(
                "The operator did not make the certificates in the Secret %r: it uses them, but does not renew them.",
                self._name,
            )
        data = secret["data"]
        bundle = base64.b64decode(data.get(_BUNDLE) or "")
        return Identity(
            certificate=base64.b64decode(data[_CERTIFICATE]),
            key=base64.b64decode(data.get(_KEY) or ""),
            bundle=bundle or None,
        )


def _is_made_by_others(secret: Mapping[str, Any]) -> bool:
    labels = secret["metadata"].get("labels") or {}
    return not labels.items() >= _OWNER.items() and bool((secret.get("data") or {}).get(_CERTIFICATE))


def _dump(rotation: Rotation) -> dict[str, str | None]:
    following = rotation.next
    pems = {
        _CERTIFICATE: rotation.current.certificate,
        _KEY: rotation.current.key,
        _BUNDLE: rotation.identity.bundle,
        _NEXT_CERTIFICATE: following.certificate if following is not None else None,
        _NEXT_KEY: following.key if following is not None else None,
        _PREVIOUS_CERTIFICATE: rotation.previous,
    }
    return {key: base64.b64encode(pem).decode("ascii") if pem is not None else None for key, pem in pems.items()}


class ServerOptions(TLSOptions, total=False):
    """The options of :class:`kopf.WebhookServer` behind a ``Service``: all but ``host`` and ``insecure``."""

    addr: str | None
    port: int | None
    path: str | None
    certfile: Path | None
    pkeyfile: Path | None
    extra_sans: Iterable[str]
    max_body: int | None
    file_check_interval: float
    max_connections: int | None


class WebhookServiceServer(WebhookServer):
    """
    A server for operators in pods: the API servers come to a ``Service``, which is deployed together with the operator.

    - ``name`` & ``namespace`` identify the ``Service``; the default namespace is that of the pod.
    - ``service_port`` is the port of the ``Service``, 443 by default.
    - ``port`` is the port where the operator listens, i.e. the target port of the ``Service``; 9443 by default.
    - ``addr`` is the address where the operator listens; all addresses by default.
    - ``path`` is the root path of the webhooks; none by default.
    - ``secret`` is the name of a ``Secret`` in the same namespace, which keeps the certificates. By default, it is the
      name of the service with the suffix ``-webhook-certs``. The operator creates the secret if it is absent. All
      replicas of the operator use and renew the same certificates, so they can be restarted one by one, and no review
      is refused. If somebody else, e.g. cert-manager, has created the secret, the operator only reads it, again every
      minute. The operator needs the permissions to ``get``, ``create``, and ``patch`` secrets.
    - For all other options, see :class:`kopf.WebhookServer`. With ``certfile`` or ``context``, there is no secret.

    When it serves, it raises the errors of :class:`kopf.WebhookServer`; :class:`ValueError` if no namespace is
    specified and the namespace of the pod is unknown; :class:`PermissionError` if the secret is forbidden; and others
    if the API fails.
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
        return f"{self.name}.{self._get_namespace()}.svc"  # API servers verify this name

    def _get_names(self) -> list[str]:
        return [self._get_host(), *self.extra_sans]

    def _get_namespace(self) -> str:
        namespace = self.namespace if self.namespace is not None else read_namespace()
        if namespace is None:
            raise ValueError(
                f"The namespace of the service {self.name!r} is unknown, as it is not a pod with a service account: "
                "add namespace=."
            )
        return namespace

    async def _make_default_source(self) -> IdentitySource:
        issuer = Issuer(self._get_names(), lifetime=self.CERTIFICATE_LIFETIME, password=self.password)
        return CertificateSecret(self._get_namespace(), self.secret or f"{self.name}-webhook-certs", issuer).get

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
