"""
Logins by means of other Kubernetes clients, with all ways of authentication that these clients support.

The operator takes from them only the data that its requests need. In a pod, it uses the service account itself: the
token is renewed every hour, but the libraries read it only once. The libraries are large (tens of megabytes of
memory), so these functions import them on demand.

As a documented side effect, the official clients are configured on the way: handlers can use e.g.
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
"""The keys of the header in the official clients: in newer versions, then in older ones."""

_TITLES = {
    "kubernetes": "the official client",
    "kubernetes.aio": "the asynchronous part of the official client",
    "kubernetes_asyncio": "the asynchronous client",
}

_configuring = threading.Lock()
"""
Only one login at a time: the libraries configure the whole process and keep files with certificates. They announce
these files before they have written them. Several operators in one process can log in at the same time.
"""


def login_via_library(name: str, *, logger: AnyLogger = module_logger, **_: Any) -> ConnectionInfo | None:
    """Log in via ``pykube``, ``kubernetes``, ``kubernetes_asyncio``, or ``kubernetes.aio``, as below."""
    return login_via_pykube(logger=logger) if name == "pykube" else _login_via_official_client(name, logger)


def login_via_client(*, logger: AnyLogger = module_logger, **_: Any) -> ConnectionInfo | None:
    """
    Log in as the official synchronous client does.

    Returns ``None`` if ``kubernetes`` is not installed. Raises :class:`LoginError` if the library is broken, or finds
    neither a service account nor a usable kubeconfig.
    """
    return _login_via_official_client("kubernetes", logger)


async def login_via_async_client(*, logger: AnyLogger = module_logger, **_: Any) -> ConnectionInfo | None:
    """
    Log in as the official asynchronous client does.

    Returns ``None`` if ``kubernetes_asyncio`` is not installed. Raises :class:`LoginError` if the library is broken, or
    finds neither a service account nor a usable kubeconfig.
    """
    # In a thread, as the import, the files, and the plugins of kubeconfigs take long.
    return await asyncio.to_thread(_login_via_official_client, "kubernetes_asyncio", logger)


def _login_via_official_client(name: str, logger: AnyLogger) -> ConnectionInfo | None:
    library, title = import_library(name, "client", "config"), _TITLES[name]
    if library is None:
        logger.debug("Cannot log in via %s: `%s` is not installed.", title, name)
        return None
    config = library.config
    with _configuring:
        with blaming(name):
            try:
                config.load_incluster_config()
            except config.ConfigException as incluster_error:
                with _explaining(title.capitalize(), name, incluster_error):
                    kubeconfig = _read_kubeconfig()
                    context, cluster, user = get_context(kubeconfig)
                    _finish(config.load_kube_config(config_file=_get_paths()))
            else:
                logger.debug("%s is configured in the cluster by the service account.", title.capitalize())
                return login_with_service_account()
        logger.debug("%s is configured by the kubeconfig.", title.capitalize())
        if user.get("exec"):
            return make_connection_info(kubeconfig)
        with blaming(name):
            settings = library.client.Configuration.get_default_copy()
            headers = [_finish(settings.get_api_key_with_prefix(key)) for key in _HEADER_KEYS]
            return _make_connection_info(settings, headers, context, cluster)


def _finish(result: Any) -> Any:
    """Get the value: the asynchronous client returns coroutines where the synchronous one returns values."""
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def login_via_pykube(*, logger: AnyLogger = module_logger, **_: Any) -> ConnectionInfo | None:
    """
    Log in as ``pykube-ng`` does.

    The credentials are those of :func:`login_with_kubeconfig`: the library uses any others only in its own requests.

    Returns ``None`` if it is not installed. Raises :class:`LoginError` if the library is broken, or finds neither a
    service account nor a usable kubeconfig.
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
            pykube.KubeConfig.from_file(_get_paths())
    else:
        logger.debug("Pykube is configured in the cluster by the service account.")
        return login_with_service_account()
    logger.debug("Pykube is configured by the kubeconfig.")
    return make_connection_info(kubeconfig)


@contextlib.contextmanager
def _explaining(client: str, library: str, incluster_error: Exception) -> Iterator[None]:
    """Turn any problem with a kubeconfig into :class:`LoginError`."""
    try:
        with blaming(library):
            yield
    except LibraryError:
        raise
    except Exception as exc:  # libraries can fail in any way on fields that they do not understand
        reason = exc if isinstance(exc, LoginError) else repr(exc)
        raise LoginError(
            f"{client} ({name_library(library)}) can log in neither by a service account ({incluster_error}) "
            f"nor by a kubeconfig ({reason})."
        ) from exc


def _get_paths() -> str:
    """Get the current paths of the kubeconfigs: the libraries remember those at the time of their import."""
    return os.environ.get("KUBECONFIG") or os.path.expanduser(DEFAULT_KUBECONFIG)


def _read_kubeconfig() -> Kubeconfig:
    kubeconfig = read_current_kubeconfig()
    if kubeconfig.is_empty:
        raise LoginError(f"the file is missing or empty: {_get_paths()}")
    return kubeconfig


def _make_connection_info(
    settings: Any, headers: Iterable[str | None], context: Mapping[str, Any], cluster: Mapping[str, Any]
) -> ConnectionInfo:
    """
    Take the needed values from the configuration of an official client; both clients have the same fields.

    The proxy and the server name come from the kubeconfig: old versions lack them, and new versions take proxies from
    the environment, which only ``trust_env`` may permit.
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
