"""
The plugin of pytest: the fixture ``local_cluster``, for those who have Kopf installed.

It is loaded by every pytest in that environment, whoever uses it. So, it is outside of the package, and imports
nothing of it before the fixture is used.
"""
from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kopf.testing import LocalCluster

_READING_ON_IMPORT = ("kubernetes.config", "kubernetes.config.kube_config",
                      "kubernetes_asyncio.config", "kubernetes_asyncio.config.kube_config")
"""The modules that remember ``KUBECONFIG`` as it was when they were imported: of an earlier test, or of none."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "local_cluster(**options): the options of kopf.testing.LocalCluster for the "
                                       "fixture `local_cluster`, e.g. simulate=True")


@pytest.fixture
def local_cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """A Kubernetes API from memory, anew for each test; ``KUBECONFIG`` leads to it as long as the test runs.

    The libraries that look at the variable only when they are imported, the official client and ``kubernetes_asyncio``,
    are told of it, too. The cluster runs in a thread of its own, so it is for tests of all kinds. Its options are those
    of the class, by the mark::

        @pytest.mark.local_cluster(simulate=True, authorization="rbac")
        def test_operator(local_cluster): ...
    """
    from kopf.testing import LocalCluster  # all of the framework and the server

    mark = request.node.get_closest_marker("local_cluster")
    with LocalCluster(**(mark.kwargs if mark is not None else {})) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        for module in filter(None, map(sys.modules.get, _READING_ON_IMPORT)):
            monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", str(cluster.kubeconfig))
        yield cluster
