"""
Local clusters: those that run on the same machine as the operator, in containers or in virtual machines.

All of them have a host name for the machine that runs them, and forward the traffic there by themselves.
"""

from __future__ import annotations

from kopf._admission.servers.webhook_server import WebhookServer


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
