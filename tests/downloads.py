"""Old versions of libraries: the real ones, downloaded once to ``.venv-old``, for subprocesses of the tests."""
from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import pytest

from tests.conftest import OLD_LIBRARIES_MISSING

_CACHE = pathlib.Path(__file__).parent.parent / ".venv-old"
_TIMEOUT = 100
"""For a single download, in seconds."""


def get_old(name: str, requirements: Sequence[str]) -> pathlib.Path:
    """
    Get the folder with these packages, for ``PYTHONPATH``; what they depend on is not there.

    The test is skipped, and the summary says so, if they cannot be downloaded.
    """
    folder = _CACHE / name
    if not folder.exists() and not _download(requirements, folder):
        pytest.skip(OLD_LIBRARIES_MISSING)
    return folder


def _download(requirements: Sequence[str], folder: pathlib.Path) -> bool:
    _CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as unfinished:  # several processes can do the same
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
        command = [*pip, "--no-deps", "--target", f"{unfinished}/ready", *requirements]
        try:
            subprocess.run(command, capture_output=True, check=True, timeout=_TIMEOUT)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        with contextlib.suppress(OSError):  # somebody else was faster
            os.rename(f"{unfinished}/ready", folder)
    return folder.exists()
