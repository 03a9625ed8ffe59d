"""
Logins by means of other Kubernetes clients, if they are installed: with all the ways of authentication they
know.

Only what is needed for requests is taken from them. In a pod, it is the service account itself: the libraries read
its token once, while it is renewed every hour. They are large (tens of megabytes of memory), so they are
imported only when these functions are called.

As a documented side effect, the official clients are configured by the way: handlers can use e.g.
``kubernetes.client.CoreV1Api()`` with no further setup.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kopf._client.auth.credentials import ConnectionInfo, LoginError
from kopf._client.auth.kubeconfig import (
    DEFAULT_KUBECONFIG,
    Kubeconfig,
    get_context,
    make_connection_info,
    read_current_kubeconfig,
)
from kopf._client.auth.libraries import LibraryError, blaming, import_library, name_library
from kopf._client.auth.service_account import login_with_service_account

AnyLogger = logging.Logger | logging.LoggerAdapter[Any]

module_logger = logging.getLogger(__name__)

_HEADER_KEYS = ("BearerToken", "authorization")
"""Under which keys the official clients keep the header: the newer versions, and the older ones."""

_official_client = threading.Lock()
"""
For one login at once: the library keeps files with certificates and the configuration for the whole process, and
tells others of the files before it has written them. Operators in one process log in at the same time.
"""


def login_via_client(*, logger: AnyLogger = module_logger, **_: Any) -> ConnectionInfo | None:
    """
    Log in as the official synchronous client does; ``None`` if ``kubernetes`` is not installed.

    Raises :class:`LoginError` if it has found neither a service account nor a usable kubeconfig, or if the library
    itself is broken.
    """
    library = import_library("kubernetes", "client", "config")
    if library is None:
        logger.debug("Cannot log in via the official client: `kubernetes` is not installed.")
        return None
    with _official_client:
        return _login_via_client(library, logger)


def _login_via_client(library: Any, logger: AnyLogger) -> ConnectionInfo | None:
    config = library.config
    with blaming("kubernetes"):
        try:
            config.load_incluster_config()
        except config.ConfigException as incluster_error:
            with _explaining("The official client", "kubernetes", incluster_error):
                kubeconfig = _read_kubeconfig()
                context, cluster, user = get_context(kubeconfig)
                config.load_kube_config(config_file=_get_paths())
        else:
            logger.debug("The official client is configured in the cluster by the service account.")
            return login_with_service_account()
    logger.debug("The official client is configured by the kubeconfig.")
    if user.get("exec"):
        return make_connection_info(kubeconfig)
    with blaming("kubernetes"):
        settings = library.client.Configuration.get_default_copy()
        headers = [settings.get_api_key_with_prefix(key) for key in _HEADER_KEYS]
        return _make_connection_info(settings, headers, context, cluster)


async def login_via_async_client(*, logger: AnyLogger = module_logger, **_: Any) -> ConnectionInfo | None:
    """
    Log in as the official asynchronous client does; ``None`` if ``kubernetes_asyncio`` is not installed.

    Raises :class:`LoginError` if it has found neither a service account nor a usable kubeconfig, or if the library
    itself is broken.
    """
    library = await asyncio.to_thread(import_library, "kubernetes_asyncio", "client", "config")
    if library is None:
        logger.debug("Cannot log in via the asynchronous client: `kubernetes_asyncio` is not installed.")
        return None
    config = library.config
    with blaming("kubernetes_asyncio"):
        try:
            config.load_incluster_config()
        except config.ConfigException as incluster_error:
            with _explaining("The asynchronous client", "kubernetes_asyncio", incluster_error):
                kubeconfig = _read_kubeconfig()
                context, cluster, user = get_context(kubeconfig)
                await config.load_kube_config(config_file=_get_paths())
        else:
            logger.debug("The asynchronous client is configured in the cluster by the service account.")
            return login_with_service_account()
    logger.debug("The asynchronous client is configured by the kubeconfig.")
    if user.get("exec"):
        return await asyncio.to_thread(make_connection_info, kubeconfig)
    with blaming("kubernetes_asyncio"):
        settings = library.client.Configuration.get_default_copy()
        headers = [settings.get_api_key_with_prefix(key) for key in _HEADER_KEYS]
        headers = [await header if inspect.isawaitable(header) else header for header in headers]
        return _make_connection_info(settings, headers, context, cluster)


def login_via_pykube(*, logger: AnyLogger = module_logger, **_: Any) -> ConnectionInfo | None:
    """
    Log in as ``pykube-ng`` does; ``None`` if it is not installed.

    Raises :class:`LoginError` if it has found neither a service account nor a usable kubeconfig, or if the library
    itself is broken.
    """
    pykube = import_library("pykube", "config")
    if pykube is None:
        logger.debug("Cannot log in via pykube: `pykube-ng` is not installed.")
        return None
    try:
        with blaming("pykube"):
            pykube.KubeConfig.from_service_account()
    except (OSError, KeyError) as incluster_error:  # no files or no variables of a pod
        with _explaining("Pykube", "pykube", incluster_error):
            kubeconfig = _read_kubeconfig()
            user = get_context(kubeconfig)[2]
            config = pykube.KubeConfig.from_file(_get_paths())
    else:
        logger.debug("Pykube is configured in the cluster by the service account.")
        return login_with_service_account()
    logger.debug("Pykube is configured by the kubeconfig.")
    if user.get("exec"):
        return make_connection_info(kubeconfig)
    try:
        with blaming("pykube"):
            return _make_connection_info_of_pykube(config)
    except (pykube.PyKubeError, KeyError) as exc:
        raise LoginError(f"Pykube cannot make sense of its configuration: {exc!r}") from exc


@contextlib.contextmanager
def _explaining(client: str, library: str, incluster_error: Exception) -> Iterator[None]:
    """Turn everything that happens with a kubeconfig into :class:`LoginError`."""
    try:
        with blaming(library):
            yield
    except LibraryError:
        raise
    except Exception as exc:  # the library can fail in any way on what it does not understand
        reason = exc if isinstance(exc, LoginError) else repr(exc)
        raise LoginError(
            f"{client} ({name_library(library)}) can log in neither by a service account ({incluster_error}) "
            f"nor by a kubeconfig ({reason})."
        ) from exc


def _get_paths() -> str:
    """Get the files to read, as of now: the libraries remember the variable as of their import."""
    return os.environ.get("KUBECONFIG") or os.path.expanduser(DEFAULT_KUBECONFIG)


def _read_kubeconfig() -> Kubeconfig:
    kubeconfig = read_current_kubeconfig()
    if kubeconfig.is_empty:
        raise LoginError(f"no such file, or there is nothing in it: {_get_paths()}")
    return kubeconfig


def _make_connection_info(
    settings: Any, headers: Iterable[str | None], context: Mapping[str, Any], cluster: Mapping[str, Any]
) -> ConnectionInfo:
    """
    Take what is needed from the configuration of the official clients: both have the same.

    Old versions know nothing of proxies and names of servers, and new ones take proxies from the environment, which is
    for ``trust_env`` to decide. So, these come from the kubeconfig.
    """
    scheme, _, token = (next(filter(None, headers), None) or "").partition(" ")
    if scheme and not token:  # the value is the token alone, with no scheme
        scheme, token = "", scheme
    return ConnectionInfo(
        server=settings.host,
        ca_path=settings.ssl_ca_cert or None,
        insecure=not settings.verify_ssl,
        username=settings.username or None,
        password=settings.password or None,
        scheme=scheme or None,
        token=token or None,
        certificate_path=settings.cert_file or None,
        private_key_path=settings.key_file or None,
        proxy_url=cluster.get("proxy-url") or None,
        tls_server_name=cluster.get("tls-server-name") or None,
        default_namespace=context.get("namespace") or None,
    )


def _make_connection_info_of_pykube(config: Any) -> ConnectionInfo:
    cluster, user = config.cluster, config.user
    ca, certificate, key = (
        cluster.get("certificate-authority"),
        user.get("client-certificate"),
        user.get("client-key"),
    )
    return ConnectionInfo(
        server=cluster["server"],
        ca_data=ca.bytes() if ca else None,
        insecure=cluster.get("insecure-skip-tls-verify"),
        username=user.get("username"),
        password=user.get("password"),
        token=user.get("token"),
        certificate_data=certificate.bytes() if certificate else None,
        private_key_data=key.bytes() if key else None,
        proxy_url=cluster.get("proxy-url"),
        tls_server_name=cluster.get("tls-server-name"),
        default_namespace=config.namespace,
    )
