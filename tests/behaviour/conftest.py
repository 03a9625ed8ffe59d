"""
Behaviour tests: a real operator, a real API, and real HTTP between them, in one event loop.

>>> async def test_it(operator, kex):
...     @kopf.on.create('kopfexamples')
...     def create_fn(**_): ...
...     await operator.start()
...     await kex.create()
...     await kex.wait_handled()
"""

from __future__ import annotations

import importlib.util
import logging
import os
import pathlib
import sys
import textwrap
import time
import types
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import yaml

import kopf
from kopf._virtual_time.process_patches import asking_virtually
from kopf_cluster import LocalCluster
from kopf_cluster.store.archive import Snapshot
from tests.behaviour.connecting import connect_in_memory
from tests.behaviour.objects import API, Objects, connect, watch
from tests.behaviour.peerings import PeeringObject, create_peering
from tests.behaviour.resources import make_crd as make_crd
from tests.behaviour.running import Calls, Logs, Operator
from tests.conftest import is_lagging

Load = Callable[[str], types.ModuleType]

#: By how many seconds watch events are late at most, in the second runs of the tests marked as ``lagging``.
LAG = 0.5

#: The same for all tests of behaviour, marked or not.
ALWAYS_LAG = float(os.environ.get("KOPF_TEST_WATCH_LAG") or 0)

#: Whether repeated tests are as large as each night: see ``make coverage``.
IS_THOROUGH = bool(os.environ.get("KOPF_TEST_TROUBLES"))


@pytest.fixture
def watch_lag() -> float:
    """By how many seconds watch events are late at most; tests marked as ``lagging`` run with and without a lag."""
    return ALWAYS_LAG


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if is_lagging(metafunc.definition) and "watch_lag" in metafunc.fixturenames and not ALWAYS_LAG:
        metafunc.parametrize(
            "watch_lag",
            [
                pytest.param(0.0, id=pytest.HIDDEN_PARAM),
                pytest.param(LAG, id="lag"),
            ],
        )


class ContinuedCluster(LocalCluster):
    """A cluster that begins with the data of another one, as after a restart: that is faster."""

    def __init__(self, snapshot: Snapshot, **options: Any) -> None:
        super().__init__(**options)
        self._snapshot = snapshot

    def _open_archive(self) -> Snapshot:
        return self._snapshot


@pytest.fixture(scope="session")
def defined() -> Snapshot:
    """A bare cluster with two custom resources, the second one with the status subresource."""
    with LocalCluster(bare=True) as cluster:
        cluster.apply(make_crd("KopfExample", "kopfexamples", status=False))
        cluster.apply(make_crd("KopfStatusExample", "kopfstatusexamples", status=True))
        while not all(is_served(definition) for definition in cluster.list("customresourcedefinitions")):
            time.sleep(0.001)
        return cluster._need_server().take_snapshot()


def is_served(definition: Any) -> bool:
    conditions = definition.get("status", {}).get("conditions", [])
    return ("Established", "True") in {(condition["type"], condition["status"]) for condition in conditions}


@pytest.fixture
async def cluster(
    monkeypatch: pytest.MonkeyPatch,
    watch_lag: float,
    request: pytest.FixtureRequest,
    shared_certificates: None,
    defined: Snapshot,
) -> AsyncIterator[LocalCluster]:
    """Two custom resources, the second one with the status subresource, in a bare cluster."""
    async with ContinuedCluster(defined, seed=zlib.crc32(request.node.name.encode()), bare=True) as cluster:
        if watch_lag:
            cluster.faults.lag_watches(0, up_to=watch_lag)
        if watch_lag or "by_network" not in request.fixturenames:
            connect_in_memory(cluster, monkeypatch)
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        yield cluster


@pytest.fixture
def by_network() -> None:
    """Let the operators connect by TCP and TLS: in tests of connections, and of what becomes of them in trouble."""


@pytest.fixture
async def api(cluster: LocalCluster) -> AsyncIterator[API]:
    """A client of the cluster."""
    async with connect(cluster) as api:
        yield api


@pytest.fixture
async def kex(api: API) -> AsyncIterator[Objects]:
    """The objects of the resource with no status subresource."""
    async with watch(api, "KopfExample", "kopfexamples") as objects:
        yield objects


@pytest.fixture
async def sub(api: API) -> AsyncIterator[Objects]:
    """The objects of the resource with the status subresource."""
    async with watch(api, "KopfStatusExample", "kopfstatusexamples") as objects:
        yield objects


@pytest.fixture(params=["kex", "sub"], ids=["regular", "subresource"])
def objects(request: pytest.FixtureRequest) -> Objects:
    """The objects of both kinds: with the status as a regular field, and as a subresource."""
    objects: Objects = request.getfixturevalue(request.param)
    return objects


@pytest.fixture
async def peering(api: API) -> PeeringObject:
    """The peering object of all cluster-wide operators."""
    return await create_peering(api)


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    """A registry of the test's own, with a login that does not depend on which libraries are imported."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(_login)
    return registry


async def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_kubeconfig(**kwargs)


@pytest.fixture
async def logs() -> AsyncIterator[Logs]:
    """All that the framework logs, down to the debug level."""
    logs, logger = Logs(), logging.getLogger("kopf")
    level = logger.level
    logger.addHandler(logs)
    logger.setLevel(logging.DEBUG)
    yield logs
    logger.setLevel(level)
    logger.removeHandler(logs)


@pytest.fixture
async def operator(
    cluster: LocalCluster,
    registry: kopf.OperatorRegistry,
    logs: Logs,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Operator]:
    """Runs the operator; stops it in the end, and checks that nothing was wrong inside of it."""
    operator = Operator(cluster, registry)
    with asking_virtually():
        yield operator
        if operator.is_running:
            await operator.stop()
    logs.check()


@pytest.fixture
async def calls() -> Calls:
    """What the handlers of the test note down when they are called."""
    return Calls()


@pytest.fixture
def load(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Import a user's code from a file, as ``kopf run`` does; the decorators fill the default registry."""

    def load(code: str) -> types.ModuleType:
        path = tmp_path / "handlers.py"
        path.write_text(textwrap.dedent(code))
        spec = importlib.util.spec_from_file_location("handlers", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "handlers", module)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def change_kubeconfig(
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., None]:
    """Let the operator use a kubeconfig with this user, if any, and with these fields of the cluster."""

    def change(*, user: Any = None, **fields: Any) -> None:
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"] |= {key.replace("_", "-"): value for key, value in fields.items()}
        config["users"][0]["user"] = user or config["users"][0]["user"]
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(path))

    return change


@pytest.fixture
def as_users_run_it(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the operator with the default registry, and with the default login by the kubeconfig."""
    operator.registry = None
    kopf.set_default_registry(kopf.OperatorRegistry())
    # The login depends on whether a client library is imported, so it matters what other tests have imported.
    for name in ("kubernetes", "kubernetes_asyncio", "pykube"):
        monkeypatch.delitem(sys.modules, name, raising=False)
