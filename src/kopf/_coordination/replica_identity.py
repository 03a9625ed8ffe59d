"""The name of this replica, and the namespace of the Leases."""

from __future__ import annotations

import os
import re
import socket

from kopf._client.auth.service_account import read_namespace
from kopf._client.auth.vault import Vault
from kopf._settings.coordination import CoordinationSettings

_MAX_NAME = 63


def get_replica_name(settings: CoordinationSettings) -> str:
    """
    Return the name of this replica: from the settings, its pod, or its host and process.

    The name fits in names of objects: at most 63 lowercase letters, digits, and dashes.
    """
    pod = os.environ.get("POD_NAME") or os.environ.get("POD_ID")
    if pod is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        pod = socket.gethostname()  # pods are hosts of their own names
    name = settings.identity or pod or f"{socket.gethostname()}-{os.getpid()}"
    fitting = re.sub(r"[^a-z0-9]+", "-", name.lower())[-_MAX_NAME:].strip("-")  # the end is what tells pods apart
    return fitting or f"replica-{os.getpid()}"


def get_lease_namespace(settings: CoordinationSettings, default_namespace: str | None) -> str:
    """
    Return the namespace of the Leases: from the settings, the pod, or the credentials.

    ``default_namespace`` is that of the credentials, i.e. of the current context of the kubeconfig.
    """
    known = settings.namespace or os.environ.get("POD_NAMESPACE") or read_namespace()
    return known or default_namespace or "default"


async def settle_lease_namespace(settings: CoordinationSettings, vault: Vault) -> None:
    """Set the namespace of the Leases in the settings, by the current credentials."""
    connection = await vault.acquire()
    vault.release(connection)
    settings.namespace = get_lease_namespace(settings, connection.credentials.default_namespace)
