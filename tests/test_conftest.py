"""The leak detection must detect: the cases run in a separate test session with the real conftest."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent

CONFTEST = """
import tests.conftest
tests.conftest.GRACE_SECONDS = 0.1
from tests.conftest import *
from tests.conftest import _no_leaked_tasks, _no_leaks, _task_watch
"""

CASES = """
import asyncio, socket, threading
_keep = []

async def forgotten():
    await asyncio.sleep(1000)

async def test_leaked_task():
    _keep.append(asyncio.create_task(forgotten(), name='the-task'))

def test_leaked_thread():
    threading.Thread(target=threading.Event().wait, args=(1,), name='the-thread').start()

def test_leaked_socket():
    sock = socket.socket()
    sock.bind(('127.0.0.1', 0))
    sock.listen()
    _keep.append(sock)

async def test_clean():
    await asyncio.create_task(asyncio.sleep(0))
    await asyncio.to_thread(lambda: None)
    thread = threading.Thread(target=lambda: None)
    thread.start(); thread.join()
    socket.socket().close()

def test_kubectl(kubectl):
    pass
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("session")
    (path / "conftest.py").write_text(CONFTEST)
    (path / "test_it.py").write_text(CASES)
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-v",
            "-p",
            "no:cacheprovider",
            "-c",
            str(ROOT / "pyproject.toml"),
            "--rootdir",
            str(ROOT),
            str(path / "test_it.py"),
        ],
        cwd=ROOT,
        env={**os.environ, "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1, result.stdout
    return result.stdout


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        ("test_leaked_task", ["left running tasks", "the-task", "forgotten"]),
        ("test_leaked_thread", ["left behind", "thread 'the-thread'"]),
        ("test_leaked_socket", ["left behind", "socket <socket.socket", "127.0.0.1"]),
    ],
)
def test_leaks_fail_the_test_and_are_named(report: str, case: str, texts: list[str]) -> None:
    [line] = [line for line in report.splitlines() if line.startswith("ERROR ") and f"::{case} -" in line]
    for text in texts:
        assert text in report
    assert "left" in line


def test_nothing_left_is_fine(report: str) -> None:
    assert "::test_clean PASSED" in report
    assert "::test_clean ERROR" not in report


def test_missing_kubectl_is_reported_loudly(report: str) -> None:
    assert "NOT TESTED" in report
    assert "1 tests with the real kubectl were skipped" in report
