"""
Servers for local clusters, which run on the same machine as the operator, in containers or virtual machines.

All these clusters have a host name for their machine, and forward the traffic there. The kind of the cluster is
detected by its version and its nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kopf._admission.servers.webhook_server import WebhookServer
from kopf._client.errors import APIError, APINetworkError
from kopf._client.http.api import get_current_api
from kopf._values import codec

logger = logging.getLogger(__name__)

_NODES = {"limit": "20"}  # local clusters have only a few
_MINIKUBE_LABEL = "minikube.k8s.io/name"
_DOCKER_DESKTOP_NODES = ("docker-desktop", "desktop-control-plane")


class WebhookK3dServer(WebhookServer):
    """
    A server for clusters of K3d/K3s on the same machine; nothing leaves the machine.

    It is accessed as ``host.k3d.internal``. For the options, see :class:`kopf.WebhookServer`.
    """

    DEFAULT_HOST = "host.k3d.internal"


class WebhookMinikubeServer(WebhookServer):
    """
    A server for clusters of Minikube on the same machine; nothing leaves the machine.

    It is accessed as ``host.minikube.internal``. For the options, see :class:`kopf.WebhookServer`.
    """

    DEFAULT_HOST = "host.minikube.internal"


class WebhookDockerDesktopServer(WebhookServer):
    """
    A server for clusters of Docker Desktop on the same machine; nothing leaves the machine.

    It is accessed as ``host.docker.internal``. For the options, see :class:`kopf.WebhookServer`.
    """

    DEFAULT_HOST = "host.docker.internal"


class ClusterDetector:
    """Detects the kind of a local cluster, and so the host name of the machine in it."""

    @staticmethod
    async def guess_host() -> str | None:
        """
        Get the host name by which the cluster can reach this machine; ``None`` for other kinds of clusters.

        It works only inside of a running operator; elsewhere, it raises :class:`LookupError`.
        """
        api = get_current_api()
        try:
            version = codec.decode_answer(await api.get("/version"))
            if "+k3s" in version.get("gitVersion", ""):
                return WebhookK3dServer.DEFAULT_HOST
            nodes = codec.decode_answer(await api.get("/api/v1/nodes", params=_NODES))
        except (APIError, APINetworkError) as e:
            logger.warning("The kind of the cluster cannot be detected: %s", e)
            return None
        return next(filter(None, map(_recognize, nodes["items"])), None)


def _recognize(node: Mapping[str, Any]) -> str | None:
    metadata = node["metadata"]
    if _MINIKUBE_LABEL in (metadata.get("labels") or {}):
        return WebhookMinikubeServer.DEFAULT_HOST
    if metadata["name"] in _DOCKER_DESKTOP_NODES:
        return WebhookDockerDesktopServer.DEFAULT_HOST
    return None
