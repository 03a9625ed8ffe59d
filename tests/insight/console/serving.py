"""An operator with its console, beside a local cluster: all of it in threads, so that tests are plain functions."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import kopf
from kopf._insight.console import console
from kopf.cli.dev.cluster_editing import ClusterEditing
from kopf_cluster import LocalCluster
from tests.patience import PATIENCE
from tests.ports import find_free_port

TOKEN = "0123456789abcdef"


class Served(NamedTuple):
    """What runs."""

    url: str
    cluster: LocalCluster


async def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_kubeconfig(**kwargs)


@contextlib.contextmanager
def editing(cluster: LocalCluster) -> Iterator[None]:
    """Let the consoles of this context edit the cluster, as under ``kopf dev``."""
    token = console.editing.set(ClusterEditing(str(cluster.kubeconfig)))
    try:
        yield
    finally:
        console.editing.reset(token)


@contextlib.contextmanager
def running(cluster: LocalCluster, registry: kopf.OperatorRegistry, *, token: str | None = None) -> Iterator[Served]:
    """Run the operator until the end of the block. The environment and the context are to be set for it."""
    kopf.on.login(registry=registry)(_login)
    settings = kopf.OperatorSettings()
    port = find_free_port()
    settings.console.endpoint, settings.console.token = f"http://127.0.0.1:{port}", token
    ready, stop = threading.Event(), threading.Event()
    kwargs = {"registry": registry, "settings": settings, "standalone": True, "clusterwide": True}
    kwargs |= {"ready_flag": ready, "stop_flag": stop}
    thread = threading.Thread(target=contextvars.copy_context().run, args=[kopf.run], kwargs=kwargs)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield Served(settings.console.endpoint, cluster)
    finally:
        stop.set()
        thread.join()
