"""
The environment of a test: what is changed in the process for as long as a cluster in it is *the* cluster.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

_READING_ON_IMPORT = (
    "kubernetes.config",
    "kubernetes.config.kube_config",
    "kubernetes_asyncio.config",
    "kubernetes_asyncio.config.kube_config",
)
"""The modules that remember ``KUBECONFIG`` as it was when they were imported: of an earlier test, or of none."""
_NAME = "KUBE_CONFIG_DEFAULT_LOCATION"


@contextlib.contextmanager
def offering_kubeconfig(path: str) -> Iterator[None]:
    """Let all clients in this process find the kubeconfig, those too that have looked for it on import."""
    before = os.environ.get("KUBECONFIG")
    modules = [module for module in map(sys.modules.get, _READING_ON_IMPORT) if hasattr(module, _NAME)]
    remembered = [(module, getattr(module, _NAME)) for module in modules]
    os.environ["KUBECONFIG"] = path
    for module in modules:
        setattr(module, _NAME, path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["KUBECONFIG"]
        else:
            os.environ["KUBECONFIG"] = before
        for module, value in remembered:
            setattr(module, _NAME, value)
