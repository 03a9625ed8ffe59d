from __future__ import annotations

import asyncio
import concurrent.futures
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import click
import pytest

from kopf._handlers.executor import invoke
from kopf._handlers.handlers import Handler
from kopf._handlers.thread_pools import ThreadPools
from kopf._logging import tracebacks
from kopf._logging.tracebacks import format_traceback, is_framework, is_library
from kopf._settings.settings import ExecutionSettings
from kopf._values.ids import HandlerId


def helper() -> None:
    raise ValueError("boom")


def failing(**_: Any) -> None:
    helper()


async def async_failing(**_: Any) -> None:
    failing()


def wrapping(**_: Any) -> None:
    try:
        helper()
    except ValueError as e:
        raise RuntimeError("outer") from e


def grouping(**_: Any) -> None:
    errors = []
    for _i in range(2):
        try:
            helper()
        except ValueError as e:
            errors.append(e)
    raise ExceptionGroup("group", errors)


def failing_in_a_library(**_: Any) -> None:
    json.loads("{")


async def trace(fn: Callable[..., Any]) -> str:
    """Let the function fail as a handler does, and format its traceback."""
    with concurrent.futures.ThreadPoolExecutor() as executor:
        handler = Handler(id=HandlerId("x"), fn=fn)
        with pytest.raises(Exception, match="boom|outer|group|Expecting") as info:
            await invoke(handler, {}, threads=ThreadPools(ExecutionSettings(executor=executor)))
    tb = info.tb.tb_next  # beginning from the framework, as it is when operators are run
    return format_traceback((info.type, info.value, tb), trimming=True)


def get_functions(text: str) -> list[str]:
    return re.findall(r", in (\w+)$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("fn", "functions"),
    [
        (failing, ["failing", "helper"]),
        (async_failing, ["async_failing", "failing", "helper"]),
        (wrapping, ["wrapping", "helper", "wrapping"]),
        (grouping, ["grouping", "grouping", "helper", "grouping", "helper"]),
    ],
    ids=lambda arg: getattr(arg, "__name__", ""),
)
async def test_only_the_users_frames_remain(fn: Callable[..., Any], functions: list[str]) -> None:
    assert get_functions(await trace(fn)) == functions


async def test_what_is_called_by_the_users_code_remains() -> None:
    functions = get_functions(await trace(failing_in_a_library))
    assert functions[-4:] == ["failing_in_a_library", "loads", "decode", "raw_decode"]


@pytest.mark.parametrize(
    ("source", "functions"),
    [
        ("def inner():\n    raise ValueError('boom')\ndef outer():\n    inner()\n", ["outer", "inner"]),
        ("def outer():\n    library_fn()\n", ["outer", "library_fn"]),  # its libraries are trimmed neither
    ],
)
def test_errors_of_the_framework_are_not_trimmed(source: str, functions: list[str]) -> None:
    namespace: dict[str, Any] = {"library_fn": make_library(click.__file__)}
    exec(compile(source, tracebacks.__file__, "exec"), namespace)
    with pytest.raises(ValueError, match="boom") as info:
        namespace["outer"]()
    text = format_traceback((info.type, info.value, info.tb.tb_next), trimming=True)
    assert get_functions(text) == functions


def make_library(filename: str) -> Callable[..., Any]:
    """Make a function as if it is of an installed package."""
    namespace: dict[str, Any] = {}
    exec(compile("def library_fn(**_):\n    raise ValueError('boom')\n", filename, "exec"), namespace)
    return namespace["library_fn"]  # type: ignore[no-any-return]  # made at runtime


async def test_operators_can_be_installed_packages() -> None:
    assert get_functions(await trace(make_library(click.__file__))) == ["library_fn"]


def test_no_error_is_no_text() -> None:
    assert format_traceback((None, None, None), trimming=True) == ""


def test_errors_with_no_traceback() -> None:
    assert format_traceback((ValueError, ValueError("boom"), None), trimming=True) == "ValueError: boom"


@pytest.mark.parametrize(
    ("filename", "framework", "library"),
    [
        (tracebacks.__file__, True, True),
        (asyncio.__file__, True, True),
        (json.__file__, True, True),
        ("<frozen importlib._bootstrap>", True, True),
        (click.__file__, False, True),
        (__file__, False, False),
        ("handlers.py", False, False),
        ("<string>", False, False),
    ],
)
def test_whose_code_it_is(filename: str, framework: bool, library: bool) -> None:
    assert (is_framework(filename), is_library(filename)) == (framework, library)


def test_whose_code_it_is_in_a_deleted_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    monkeypatch.setattr(tracebacks, "is_framework", is_framework.__wrapped__)  # nothing is known already
    assert not is_library.__wrapped__("handlers.py")
