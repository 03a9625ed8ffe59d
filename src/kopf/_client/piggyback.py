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
import logging
import os
from typing import Any

from kopf._client.credentials import ConnectionInfo, LoginError
from kopf._client.kubeconfig import get_context, make_connection_info, read_current_kubeconfig
from kopf._client.service_account import login_with_service_account

AnyLogger = logging.Logger | logging.LoggerAdapter[Any]

module_logger = logging.getLogger(__name__)


def login_via_client(*, logger: AnyLogger = module_logger, **_: Any) -> ConnectionInfo | None:
    """
    Log in as the official synchronous client does; ``None`` if ``kubernetes`` is not installed.

    Raises :class:`LoginError` if it has found neither a service account nor a usable kubeconfig.
    """
    try:
        import kubernetes.client
        import kubernetes.config
    except ImportError:
        logger.debug("Cannot log in via the official client: `kubernetes` is not installed.")
        return None
    config: Any = kubernetes.config
    try:
        config.load_incluster_config()
        logger.debug("The official client is configured in the cluster by the service account.")
        return login_with_service_account()
    except config.ConfigException as incluster_error:
        try:
            # The library remembers the variable as of its import.
            config.load_kube_config(config_file=os.environ.get("KUBECONFIG"))
            namespace = _get_context_namespace(config)
            logger.debug("The official client is configured by the kubeconfig.")
        except Exception as exc:  # the library can fail in any way on what it does not understand
            raise _explain("The official client", incluster_error, exc) from exc
    if (info := _log_in_by_plugin()) is not None:
        return info
    settings = kubernetes.client.Configuration.get_default_copy()
    header = settings.get_api_key_with_prefix("BearerToken", alias="authorization")
    return _make_connection_info(settings, header, namespace)


async def login_via_async_client(*, logger: AnyLogger = module_logger, **_: Any) -> ConnectionInfo | None:
    """
    Log in as the official asynchronous client does; ``None`` if ``kubernetes_asyncio`` is not installed.

    Raises :class:`LoginError` if it has found neither a service account nor a usable kubeconfig.
    """
    try:
        import kubernetes_asyncio.client
        import kubernetes_asyncio.config
    except ImportError:
        logger.debug("Cannot log in via the asynchronous client: `kubernetes_asyncio` is not installed.")
        return None
    config: Any = kubernetes_asyncio.config
    try:
        config.load_incluster_config()
        logger.debug("The asynchronous client is configured in the cluster by the service account.")
        return login_with_service_account()
    except config.ConfigException as incluster_error:
        try:
            await config.load_kube_config(config_file=os.environ.get("KUBECONFIG"))
            namespace = _get_context_namespace(config)
            logger.debug("The asynchronous client is configured by the kubeconfig.")
        except Exception as exc:  # as above
            raise _explain("The asynchronous client", incluster_error, exc) from exc
    if (info := await asyncio.to_thread(_log_in_by_plugin)) is not None:
        return info
    settings = kubernetes_asyncio.client.Configuration.get_default_copy()
    header = await settings.get_api_key_with_prefix("BearerToken")
    return _make_connection_info(settings, header, namespace)


def login_via_pykube(*, logger: AnyLogger = module_logger, **_: Any) -> ConnectionInfo | None:
    """
    Log in as ``pykube-ng`` does; ``None`` if it is not installed.

    Raises :class:`LoginError` if it has found neither a service account nor a usable kubeconfig.
    """
    try:
        import pykube
    except ImportError:
        logger.debug("Cannot log in via pykube: `pykube-ng` is not installed.")
        return None
    try:
        pykube.KubeConfig.from_service_account()
        logger.debug("Pykube is configured in the cluster by the service account.")
        return login_with_service_account()
    except (OSError, KeyError) as incluster_error:  # no files or no variables of a pod
        try:
            config = pykube.KubeConfig.from_file()
            logger.debug("Pykube is configured by the kubeconfig.")
        except Exception as exc:  # as above
            raise _explain("Pykube", incluster_error, exc) from exc
    try:
        if (info := _log_in_by_plugin()) is not None:
            return info
        return _make_connection_info_of_pykube(config)
    except (pykube.PyKubeError, KeyError) as exc:
        raise LoginError(f"Pykube cannot make sense of its configuration: {exc!r}") from exc


def _explain(client: str, incluster_error: Exception, kubeconfig_error: Exception) -> LoginError:
    return LoginError(
        f"{client} can log in neither by a service account ({incluster_error}) "
        f"nor by a kubeconfig ({kubeconfig_error!r})."
    )


def _make_connection_info(settings: Any, header: str | None, namespace: str | None) -> ConnectionInfo:
    """Take what is needed from the configuration of the official clients: both have the same."""
    scheme, _, token = header.partition(" ") if header else ("", "", "")
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
        proxy_url=_get_proxy(),
        tls_server_name=settings.tls_server_name or None,
        default_namespace=namespace,
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


def _get_context_namespace(config: Any) -> str | None:
    _, context = config.list_kube_config_contexts(config_file=os.environ.get("KUBECONFIG"))
    namespace = context["context"].get("namespace")
    return str(namespace) if namespace else None


def _get_proxy() -> str | None:
    """
    Get the proxy of the kubeconfig. What the libraries say can come from the environment, which is for
    ``trust_env`` to decide.
    """
    _, cluster, _ = get_context(read_current_kubeconfig())
    return cluster.get("proxy-url") or None


def _log_in_by_plugin() -> ConnectionInfo | None:
    """
    Run the plugin of the kubeconfig if there is one: the libraries neither tell when its credentials expire,
    nor that it has failed.
    """
    config = read_current_kubeconfig()
    _, _, user = get_context(config)
    return make_connection_info(config) if user.get("exec") else None
