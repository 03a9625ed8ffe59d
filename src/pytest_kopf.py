"""
The plugin of pytest: the fixtures ``local_cluster`` and ``simulation``.

Every pytest in an environment with Kopf loads it, even without tests of operators. So it is outside of the package, and
imports nothing from the package before the first use of a fixture.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import _pytest
import pluggy
import pytest

if TYPE_CHECKING:
    from kopf.testing import LocalCluster, Simulation, SyncSimulation


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "local_cluster(**options): the options of kopf.testing.LocalCluster for the "
        "fixture `local_cluster`, e.g. simulate=True",
    )
    config.addinivalue_line(
        "markers",
        "simulation(*paths, **options): the operator's files and the options of "
        "kopf.testing.Simulation for the fixture `simulation`, e.g. seed=1",
    )


@pytest.fixture
def local_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A new local cluster for each test: a Kubernetes API from memory; ``KUBECONFIG`` is set during the test.

    The clients that read the variable only on import, the official one and ``kubernetes_asyncio``, get the kubeconfig,
    too. The cluster runs in its own thread, so it is for tests of all kinds. The mark sets the options of the class::

        @pytest.mark.local_cluster(simulate=True, authorization="rbac")
        def test_operator(local_cluster): ...
    """
    from kopf._virtual_time.process_patches import offering_kubeconfig  # all of the framework
    from kopf.testing import LocalCluster  # and the server

    mark = request.node.get_closest_marker("local_cluster")
    with (
        LocalCluster(**(mark.kwargs if mark is not None else {})) as cluster,
        offering_kubeconfig(str(cluster.kubeconfig)),
    ):
        yield cluster


@pytest.fixture
def simulation(request: pytest.FixtureRequest) -> Iterator[Simulation | SyncSimulation]:
    """A new operator and cluster in virtual time for each test: asynchronous for asynchronous tests.

    Asynchronous tests run in the event loop of the simulation, even if other plugins for such tests are installed. The
    mark sets the operator's files and the options of the class. Without files, the simulation uses the handlers in the
    default registry, i.e. in the modules that the test has imported::

        @pytest.mark.simulation("handlers.py", crds=pathlib.Path("crd.yaml"))
        async def test_operator(simulation):
            await simulation.apply("...")
    """
    from kopf.testing import SyncSimulation

    mark = request.node.get_closest_marker("simulation")
    args, options = (mark.args, mark.kwargs) if mark is not None else ((), {})
    with _without_details(request.config), SyncSimulation(*args, **options) as facade:
        request.node.stash[_FACADE] = facade
        yield facade.simulation if _is_async(request.function) else facade


@contextlib.contextmanager
def _without_details(config: pytest.Config) -> Iterator[None]:
    """Leave debugging details out of the reports of pytest unless they are asked for: they hide the failure."""
    plugin = config.pluginmanager.get_plugin("logging-plugin")
    if plugin is None or config.getoption("log_level") or config.getini("log_level"):
        yield
        return
    plugin.report_handler.addFilter(_is_no_detail)
    try:
        yield
    finally:
        plugin.report_handler.removeFilter(_is_no_detail)


def _is_no_detail(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.INFO or not record.name.startswith("kopf")


_FACADE = pytest.StashKey["SyncSimulation"]()


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(function))  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run the asynchronous tests of simulations in their own loop, before other plugins run them in theirs."""
    facade = pyfuncitem.stash.get(_FACADE, None)
    if facade is not None and _is_async(pyfuncitem.obj):
        pyfuncitem.obj = _make_sync(pyfuncitem.obj, pyfuncitem.instance, facade)
    is_explored = hasattr(pyfuncitem.obj, "exploration") or hasattr(pyfuncitem.obj, "walk")
    if facade is None and not is_explored:
        return (yield)
    try:
        with _showing_progress(pyfuncitem.config) if is_explored else contextlib.nullcontext():
            return (yield)
    except BaseException as e:
        if pyfuncitem.config.getoption("fulltrace"):
            raise
        if (traceback := _find_frames_of_test(e)) is None:
            raise pytest.fail.Exception(f"{type(e).__name__}: {e}", pytrace=False) from None
        e.__traceback__ = traceback
        raise


def _find_frames_of_test(error: BaseException) -> TracebackType | None:
    """Give the traceback with neither frames of the kit nor of pytest: explorations fail in no line of the test."""
    from kopf._testing.own_frames import leave_out_own_frames

    return leave_out_own_frames(error, [__file__, *_pytest.__path__, *pluggy.__path__])


@contextlib.contextmanager
def _showing_progress(config: pytest.Config) -> Iterator[None]:
    """Let explorations tell how far they have come, at a terminal: there, pytest has taken the place of the test."""
    from kopf._testing.exploring.exploration_progress import display

    terminal, capture = (config.pluginmanager.get_plugin(name) for name in ("terminalreporter", "capturemanager"))
    if terminal is None or capture is None or not terminal.isatty:
        yield
        return
    has_spoken = False

    def show(line: str) -> None:
        nonlocal has_spoken
        with capture.global_and_fixture_disabled():
            if not has_spoken and line:
                terminal.ensure_newline()
                has_spoken = True
            if has_spoken:
                terminal.rewrite(line, erase=True)
                terminal.flush()

    token = display.set(show)
    try:
        yield
    finally:
        display.reset(token)


def _make_sync(test: Callable[..., Any], instance: object, facade: SyncSimulation) -> Callable[..., object]:
    """Make a regular function of the test: there is nothing to do for other plugins then."""
    function = inspect.unwrap(test)  # some plugins have wrapped it already
    if instance is not None and not inspect.ismethod(function):
        function = function.__get__(instance)

    def run(**kwargs: Any) -> object:
        return facade.run(function(**kwargs))

    return run
