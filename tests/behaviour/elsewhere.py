"""Runs an operator in a process of its own, by any framework and in any virtual environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def run_elsewhere(command: str, operator: str | pathlib.Path, **env: str) -> AsyncIterator[None]:
    """
    Run the file with an operator by that command; kill it in the end.

    The environment is that of the tests, but nothing of Python and Kubernetes goes there except for ``env``.
    """
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "KUBE", "MIGRATION"))}
    process = await asyncio.create_subprocess_exec(
        command,
        "run",
        "--standalone",
        "--all-namespaces",
        str(operator),
        env={**variables, **env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    try:
        yield
    except AssertionError as e:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        e.add_note((await errors).decode())
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()
        await errors
