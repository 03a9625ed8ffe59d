"""
An operator that logs in via one of the client libraries, and is run with various versions of them.

Besides, its handler talks to the cluster by the same library, with no setup of its own: the login has configured it.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import kopf
from kopf._client.auth import service_account

LOGIN = os.environ["LOGIN_VIA"]
POD = os.environ.get("LOGIN_POD")
"""Where the files of the service account are, as in a pod."""


def enter_pod(path: str) -> None:
    """Tell everybody where the service account is: the real folder is for root only."""
    service_account.SERVICE_ACCOUNT_PATH = path
    for name in ("kubernetes", "kubernetes_asyncio"):
        module = importlib.import_module(f"{name}.config.incluster_config")
        module.SERVICE_TOKEN_FILENAME = f"{path}/token"  # type: ignore[attr-defined]  # it is not typed
        module.SERVICE_CERT_FILENAME = f"{path}/ca.crt"  # type: ignore[attr-defined]  # as above
    config = importlib.import_module("pykube").KubeConfig
    load = config.from_service_account
    config.from_service_account = lambda: load(path=path)


if POD is not None:
    enter_pod(POD)

kopf.on.login()(getattr(kopf, LOGIN))


@kopf.on.startup()
async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False


@kopf.on.create("kopf.dev", "kopfexamples")
async def create_fn(namespace: str, name: str, **_: Any) -> dict[str, Any]:
    return {"seen": await look(namespace, name), "python": sys.prefix}


async def look(namespace: str, name: str) -> str | None:
    """Get the name of the object by the library that has logged in."""
    args: tuple[str, ...] = ("kopf.dev", "v1", namespace, "kopfexamples", name)
    match LOGIN:
        case "login_via_client":
            client = importlib.import_module("kubernetes.client")
            obj = client.CustomObjectsApi().get_namespaced_custom_object(*args)
        case "login_via_async_client":
            client = importlib.import_module("kubernetes_asyncio.client")
            async with client.ApiClient() as api_client:
                obj = await client.CustomObjectsApi(api_client).get_namespaced_custom_object(*args)
        case _:
            return name  # there is nothing to configure in pykube
    found: str = obj["metadata"]["name"]
    return found
