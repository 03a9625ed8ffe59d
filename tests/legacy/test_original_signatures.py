"""Whatever is public in the original framework is here, too, and can be called in the same ways."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.differential.hosting import get_original_python
from tests.patience import PATIENCE

HERE = pathlib.Path(__file__).parent
ORIGINAL = get_original_python()

Descriptions = dict[str, list[list[str]] | None]

DIFFERENT = {
    # Called by the framework only; or a logger is still to be given, but does not have to be.
    "kopf.login_via_pykube": "has a default",
    "kopf.login_via_client": "has a default",
    "kopf.login_via_async_client": "has a default",
    "kopf.DaemonStopped": "made by the framework",
    "kopf.SyncDaemonStopperChecker": "made by the framework",
    "kopf.AsyncDaemonStopperChecker": "made by the framework",
    "kopf.ObjectLogger.isEnabledFor": "all arguments of the standard library",
    "kopf.LocalObjectLogger.isEnabledFor": "all arguments of the standard library",
    "kopf.LocalObjectLogger.log": "all arguments of the standard library",
    # Named or told otherwise, but called in the same ways.
    "kopf.label": "None is no labels, as the absence is",
    "kopf.TemporaryError": "the message is positional",
    "kopf.Body": "the source is positional",
    "kopf.Meta": "the source is positional",
    "kopf.Spec": "the source is positional",
    "kopf.Status": "the source is positional",
    "kopf.Diff": "the source is positional",
    "kopf.Diff.count": "a tuple",
    "kopf.Diff.index": "a tuple",
    "kopf.Patch.clear": "a dict",
}
"""What differs on purpose, and why."""


def describe(python: str) -> Descriptions:
    result = subprocess.run(
        [python, "-I", str(HERE / "describing.py")], capture_output=True, timeout=PATIENCE, check=True
    )
    described: Descriptions = json.loads(result.stdout)
    return described


@pytest.fixture(scope="module")
def original() -> Descriptions:
    if ORIGINAL is None:
        pytest.skip("The original framework is not installed: make original.")
    return describe(ORIGINAL)


@pytest.fixture(scope="module")
def own() -> Descriptions:
    return describe(sys.executable)


def find_difference(theirs: list[list[str]] | None, ours: list[list[str]] | None) -> Any:
    """Find a parameter that cannot be passed as it was, has another default, or was not there, but is needed now."""
    if theirs is None:
        return None
    known = {name: rest for name, *rest in ours or ()}
    kinds = {kind for _, kind, _ in ours or ()}
    for name, *rest in theirs:
        takes_it = "VAR_KEYWORD" in kinds or (rest[0] == "POSITIONAL_ONLY" and "VAR_POSITIONAL" in kinds)
        if known.get(name, rest if takes_it else None) != rest:
            return name
    names = {name for name, *_ in theirs}
    return next(
        (
            name
            for name, kind, default in ours or ()
            if name not in names and not default and not kind.startswith("VAR")
        ),
        None,
    )


def test_everything_is_there(original: Descriptions, own: Descriptions) -> None:
    assert len(original) > 500
    assert not original.keys() - own.keys()


def test_everything_is_called_as_before(original: Descriptions, own: Descriptions) -> None:
    different = {name: find_difference(original[name], own[name]) for name in original.keys() & own.keys()}
    assert {name for name, parameter in different.items() if parameter is not None} == DIFFERENT.keys()
