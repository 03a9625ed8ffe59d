"""
The plugin of pytest: the fixtures ``local_cluster`` and ``simulation``, for those who have Kopf installed.

It is loaded by every pytest in that environment, whoever uses it. So, it is outside of the package, and imports
nothing of it before a fixture is used.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kopf.testing import LocalCluster, Simulation, SyncSimulation


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "local_cluster(**options): the options of kopf.testing.LocalCluster for the "
                                       "fixture `local_cluster`, e.g. simulate=True")
    config.addinivalue_line("markers", "simulation(*paths, **options): the operator's files and the options of "
                                       "kopf.testing.Simulation for the fixture `simulation`, e.g. seed=1")


@pytest.fixture
def local_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A Kubernetes API from memory, anew for each test; ``KUBECONFIG`` leads to it as long as the test runs.

    The libraries that look at the variable only when they are imported, the official client and ``kubernetes_asyncio``,
    are told of it, too. The cluster runs in a thread of its own, so it is for tests of all kinds. Its options are those
    of the class, by the mark::

        @pytest.mark.local_cluster(simulate=True, authorization="rbac")
        def test_operator(local_cluster): ...
    """
    from kopf._testing.environment import offering_kubeconfig  # all of the framework
    from kopf.testing import LocalCluster  # and the server

    mark = request.node.get_closest_marker("local_cluster")
    with LocalCluster(**(mark.kwargs if mark is not None else {})) as cluster, \
            offering_kubeconfig(str(cluster.kubeconfig)):
        yield cluster


@pytest.fixture
def simulation(request: pytest.FixtureRequest) -> Iterator[Simulation | SyncSimulation]:
    """An operator and a cluster in virtual time, anew for each test: asynchronous for asynchronous tests.

    Those run in the event loop of the simulation, whatever other plugins for such tests are there. The operator's files
    and the options are those of the class, by the mark; without files, the handlers are those of the default
    registry, i.e. of what the test has imported::

        @pytest.mark.simulation("handlers.py", crds=pathlib.Path("crd.yaml"))
        async def test_operator(simulation):
            await simulation.apply("...")
    """
    from kopf.testing import SyncSimulation

    mark = request.node.get_closest_marker("simulation")
    args, options = (mark.args, mark.kwargs) if mark is not None else ((), {})
    with SyncSimulation(*args, **options) as facade:
        request.node.stash[_FACADE] = facade
        yield facade.simulation if _is_async(request.function) else facade


_FACADE = pytest.StashKey["SyncSimulation"]()


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(function))  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run the asynchronous tests of simulations in their own loop, before other plugins run them in theirs."""
    facade = pyfuncitem.stash.get(_FACADE, None)
    if facade is not None and _is_async(pyfuncitem.obj):
        pyfuncitem.obj = _make_sync(pyfuncitem.obj, pyfuncitem.instance, facade)
    return (yield)


def _make_sync(test: Callable[..., Any], instance: object, facade: SyncSimulation) -> Callable[..., object]:
    """Make a regular function of the test: there is nothing to do for other plugins then."""
    function = inspect.unwrap(test)  # some plugins have wrapped it already
    if instance is not None and not inspect.ismethod(function):
        function = function.__get__(instance)

    def run(**kwargs: Any) -> object:
        return facade.run(function(**kwargs))

    return run
