"""
Hostile inputs: what anybody in the cluster, or on the way to it, can send to an operator.

The operator, the cluster, and the objects are those of the tests of behaviour; in between, the answers are spoiled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.conftest import api as api  # the fixtures are used where they are imported
from tests.behaviour.conftest import calls as calls
from tests.behaviour.conftest import cluster as cluster
from tests.behaviour.conftest import defined as defined
from tests.behaviour.conftest import kex as kex
from tests.behaviour.conftest import logs as logs
from tests.behaviour.conftest import operator as operator
from tests.behaviour.conftest import sub as sub
from tests.behaviour.conftest import watch_lag as watch_lag
from tests.hostile.spoiling import SpoilingProxy


@pytest.fixture
async def proxy(cluster: LocalCluster) -> AsyncIterator[SpoilingProxy]:
    """What stays between the operator and the cluster."""
    proxy = SpoilingProxy(cluster)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
def registry(proxy: SpoilingProxy) -> kopf.OperatorRegistry:
    """A registry that logs in to the proxy."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: object) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=proxy.url)

    return registry
