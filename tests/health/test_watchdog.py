from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import inspect
import logging
import pathlib
import re
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import click
import pytest

from kopf._client.auth.piggyback import login_via_async_client, login_via_client, login_via_pykube
from kopf._handlers.executor import invoke
from kopf._handlers.handlers import Handler
from kopf._handlers.thread_pools import ThreadPools
from kopf._health import watchdog as watchdogs
from kopf._health.watchdog import Watchdog, describe_culprit
from kopf._settings.settings import ExecutionSettings, HealthSettings
from kopf._values.ids import HandlerId
from tests.client.libraries import replace_libraries, write_library
from tests.patience import PATIENCE


async def blocking_fn(seen: list[str | None], watchdog: Watchdog, **_: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while watchdog.blockage is None and time.monotonic() < deadline:
        time.sleep(0.01)  # the bad thing
    seen.append(watchdog.blockage)


async def find_culprit(fn: Callable[..., Any], watchdog: Watchdog) -> str:
    """Let the handler block the loop until that is noticed."""
    seen: list[str | None] = []
    handler = Handler(id=HandlerId("some/id"), fn=fn)
    await invoke(handler, {"seen": seen, "watchdog": watchdog}, threads=ThreadPools(ExecutionSettings()))
    [culprit] = seen
    assert culprit is not None
    return culprit


async def wait_for_message(caplog: pytest.LogCaptureFixture, text: str) -> logging.LogRecord:
    deadline = time.monotonic() + PATIENCE
    while not (found := [record for record in caplog.records if text in record.getMessage()]):
        assert time.monotonic() < deadline, f"No {text!r} in {caplog.messages}."
        await asyncio.sleep(0.01)
    return found[0]


async def test_blocking_handlers_are_named_while_they_block(caplog: pytest.LogCaptureFixture) -> None:
    with Watchdog(HealthSettings(loop_timeout=0.2)) as watchdog:
        culprit = await find_culprit(blocking_fn, watchdog)
        await wait_for_message(caplog, "works again")
        assert watchdog.blockage is None
    assert culprit.startswith(f"the handler 'some/id', blocking_fn() at {__file__}:")
    [error, warning] = [record for record in caplog.records if record.name == "kopf._health.watchdog"]
    assert error.levelno == logging.ERROR
    assert error.getMessage().startswith(f"The event loop is blocked for 0.2 seconds by {culprit}. Nothing else")
    duration = re.match(r"The event loop works again after being blocked for ([\d.]+) seconds", warning.getMessage())
    assert duration is not None
    assert 0.2 <= float(duration[1]) < PATIENCE


async def test_handlers_of_installed_packages_are_named_themselves_and_not_the_libraries_they_call() -> None:
    namespace: dict[str, Any] = {"blocking_fn": blocking_fn}
    source = "async def installed_fn(**kwargs):\n    await library_fn(**kwargs)\n"
    exec(compile(source, click.__file__, "exec"), namespace)
    library = blocking_fn.__code__.replace(co_filename=pytest.__file__, co_name="library_fn")
    namespace["library_fn"] = types.FunctionType(library, globals())
    with Watchdog(HealthSettings(loop_timeout=0.2)) as watchdog:
        culprit = await find_culprit(namespace["installed_fn"], watchdog)
    assert culprit.startswith(f"the handler 'some/id', installed_fn() at {click.__file__}:2")


@pytest.mark.parametrize("name", ["kubernetes", "kubernetes_asyncio", "pykube"])
async def test_login_handlers_are_not_blamed_for_our_imports(
    name: str, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The libraries are large, and the machines are slow. It happens if login functions are called from coroutines."""
    logins = {"kubernetes": login_via_client, "kubernetes_asyncio": login_via_async_client, "pykube": login_via_pykube}

    async def login_fn() -> None:
        result = logins[name]()
        await result if inspect.isawaitable(result) else None

    handler = Handler(id=HandlerId("login_fn"), fn=login_fn)
    with replace_libraries(tmp_path / "libraries") as folder, Watchdog(HealthSettings(loop_timeout=0.1)) as watchdog:
        source = f"import time; time.sleep(0.5); raise ModuleNotFoundError(name={name!r})"
        write_library(folder, name, __init__=source)
        await invoke(handler, {}, threads=ThreadPools(ExecutionSettings()))
        assert watchdog.blockage is None
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_nobody_is_blamed_for_imports_of_the_framework(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It imports some libraries on demand, which takes seconds in pods with a small share of a processor."""

    class SlowLibrary(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
        def find_spec(self, fullname: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
            return importlib.machinery.ModuleSpec(fullname, self) if fullname == "slow_library" else None

        def get_source(self, fullname: str) -> str:
            return "import time; time.sleep(1)"

        def get_code(self, fullname: str) -> types.CodeType:
            return compile(self.get_source(fullname), pytest.__file__, "exec")

    monkeypatch.setattr("sys.meta_path", [SlowLibrary(), *sys.meta_path])
    monkeypatch.setattr(watchdogs, "_WARNING_TIMEOUT", 0.2)
    with Watchdog(HealthSettings(loop_timeout=0.3)) as watchdog:
        code = compile("import slow_library", watchdogs.__file__, "exec")
        asyncio.get_running_loop().call_soon(types.FunctionType(code, {}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sys.modules.pop("slow_library", None) is not None
        assert watchdog.blockage is None
    assert caplog.messages == []


async def test_others_who_block_are_named_by_their_place(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str | None] = []
    with Watchdog(HealthSettings(loop_timeout=0.2)) as watchdog:
        await blocking_fn(seen, watchdog)
    [culprit] = seen
    assert culprit is not None
    assert culprit.startswith(f"blocking_fn() at {__file__}:")


async def test_it_can_be_switched_off_and_tuned_at_runtime(caplog: pytest.LogCaptureFixture) -> None:
    settings = HealthSettings(loop_timeout=None)
    with Watchdog(settings) as watchdog:
        time.sleep(0.5)  # the bad thing
        assert watchdog.blockage is None
        settings.loop_timeout = 0.1
        await asyncio.sleep(0.01)
        seen: list[str | None] = []
        await blocking_fn(seen, watchdog)
    assert seen != [None]


async def test_working_loops_are_fine(caplog: pytest.LogCaptureFixture) -> None:
    with Watchdog(HealthSettings(loop_timeout=2.0)) as watchdog:
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            await asyncio.sleep(0)
        assert watchdog.blockage is None
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.fastforward
async def test_skipped_time_is_not_the_time_of_blocking(caplog: pytest.LogCaptureFixture) -> None:
    with Watchdog(HealthSettings()) as watchdog:
        await asyncio.sleep(100_000)
        assert watchdog.blockage is None
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_the_thread_ends_with_the_block() -> None:
    with Watchdog(HealthSettings()):
        assert "kopf-watchdog" in {thread.name for thread in threading.enumerate()}
    assert "kopf-watchdog" not in {thread.name for thread in threading.enumerate()}


def sleeping_fn(watchdog: Watchdog, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while watchdog.blockage is None and time.monotonic() < deadline:
        time.sleep(0.01)  # the bad thing


async def pause(watchdog: Watchdog, seconds: float) -> None:
    """Let a library block the loop until that is noticed, as the system does with all who work on a busy machine."""
    library_fn = types.FunctionType(sleeping_fn.__code__.replace(co_filename=pytest.__file__), globals())
    asyncio.get_running_loop().call_soon(library_fn, watchdog, seconds)
    await asyncio.sleep(0)


async def test_nobody_is_blamed_for_short_pauses_on_busy_machines(caplog: pytest.LogCaptureFixture) -> None:
    """In development, half a second is much for a handler, but little for a machine that does something else, too."""
    with Watchdog(HealthSettings(loop_timeout=0.2)) as watchdog:
        await pause(watchdog, 0.5)
        assert watchdog.blockage is None
        await pause(watchdog, PATIENCE)
        message = (await wait_for_message(caplog, "is blocked")).getMessage()
    assert re.match(rf"The event loop is blocked for [\d.]+ seconds by sleeping_fn\(\) at {pytest.__file__}:", message)


async def test_those_who_have_started_the_loop_are_not_blamed() -> None:
    frame = await asyncio.get_running_loop().run_in_executor(None, _find_frame, threading.get_ident())
    assert describe_culprit(frame).startswith("select() at ")


def _find_frame(thread: int) -> types.FrameType:
    """Find where the loop waits for something to do."""
    while (frame := sys._current_frames()[thread]).f_code.co_name != "select":
        time.sleep(0.01)
    return frame


def test_no_frames() -> None:
    assert describe_culprit(None) == "something unknown"


async def test_blocked_loops_are_told_long_before_they_count_as_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def fn(**_: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.01)  # the bad thing
        seen.append(watchdog.blockage)

    seen: list[str | None] = []
    with Watchdog(HealthSettings()) as watchdog:
        await invoke(Handler(id=HandlerId("some/id"), fn=fn), {}, threads=ThreadPools(ExecutionSettings()))
        await wait_for_message(caplog, "works again")
    warning = caplog.records[0]
    assert seen == [None]  # so the probes are answered as always
    assert warning.levelno == logging.WARNING
    culprit = rf"the handler 'some/id', .*fn\(\) at {__file__}:\d+: time.sleep"
    assert re.match(rf"The event loop is blocked for \d[.\d]* seconds by {culprit}", warning.getMessage())
    assert len(caplog.records) == 2
