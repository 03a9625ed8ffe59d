"""
Login of a pod: by the service account that Kubernetes mounts into every container.

For the files and variables, see "Accessing the Kubernetes API from a Pod" in the Kubernetes documentation. The kubelet
renews the token in the same file every hour or so, so the credentials contain the path, not the token.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

from kopf._client.auth.credentials import ConnectionInfo

SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


def read_namespace(directory: str | os.PathLike[str] | None = None) -> str | None:
    """Read the namespace of the pod; ``None`` outside of pods. Raises :class:`OSError` if the file is unreadable."""
    path = _get_token_path(directory).with_name("namespace")
    return path.read_text(encoding="utf-8").strip() or None if path.exists() else None


def is_mounted(directory: str | os.PathLike[str] | None = None) -> bool:
    """Tell if a service account is mounted, i.e. if this is a pod that has one."""
    return _get_token_path(directory).exists()


def login_with_service_account(*, directory: str | os.PathLike[str] | None = None, **_: Any) -> ConnectionInfo | None:
    """
    Log in as the service account of the pod.

    Returns ``None`` if there is no service account, i.e. outside of pods. ``directory`` is the mounted directory of the
    service account; by default, the usual one. Raises :class:`OSError` if its files exist but are unreadable.
    """
    if not is_mounted(directory):
        return None
    token_path = _get_token_path(directory)
    ca_path = token_path.with_name("ca.crt")
    return ConnectionInfo(
        server=_get_server(),
        ca_path=str(ca_path) if ca_path.exists() else None,
        token_path=str(token_path),
        default_namespace=read_namespace(directory),
    )


def _get_token_path(directory: str | os.PathLike[str] | None) -> pathlib.Path:
    return pathlib.Path(SERVICE_ACCOUNT_PATH if directory is None else directory) / "token"


def _get_server() -> str:
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    if not host:  # enableServiceLinks=false removes services from the environment, but not the DNS name
        return "https://kubernetes.default.svc"
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
