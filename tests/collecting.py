"""
The collection of thousands of tests: once for all processes that run them, as far as possible.

Each process imports all the files of tests, and the one that comes first compiles the file for all of them. They
begin at the same time with the same file, and so each would compile each of them. Therefore, each first imports
its own share, and after that it finds the others' shares compiled.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

import pytest


def import_share(config: pytest.Config) -> None:
    """Import the files that are for this process to be compiled; there are no shares if it is alone."""
    mine: dict[str, str] = getattr(config, "workerinput", {})
    if mine:
        count, number = int(mine["workercount"]), int(mine["workerid"].removeprefix("gw"))
        for name in sorted(_list_modules(config))[number::count]:
            # Whatever goes wrong, goes wrong again, and is reported, when the module is collected.
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(name)


def _list_modules(config: pytest.Config) -> Iterator[str]:
    for folder in {config.invocation_params.dir / arg for arg in config.args}:
        for path in folder.rglob("test_*.py"):
            yield ".".join(path.relative_to(config.rootpath).with_suffix("").parts)
