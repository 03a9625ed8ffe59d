"""Writes JSON logs in a process of its own, which can have another version of ``python-json-logger``."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

import kopf

_PROBE = """
import logging, kopf
kopf.configure(log_format=kopf.LogFormat.JSON, log_refkey="ref")
logger = logging.getLogger("kopf.objects")
logger.info("hello, %s", "world", extra={"k8s_ref": {"name": "obj"}, "k8s_skip": True, "settings": None, "some": [1]})
try:
    raise ValueError("boom")
except ValueError:
    logger.exception("oops")
"""


def check_json_logs(python: str, *folders: pathlib.Path) -> None:
    """Check that this interpreter writes what it must; the folders are where to look for packages first."""
    source = pathlib.Path(kopf.__file__).parent.parent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*folders, source]))}
    result = subprocess.run([python, "-W", "error", "-c", _PROBE], capture_output=True, text=True, check=False, env=env)
    assert result.returncode == 0, result.stderr
    plain, failed = [_parse(line) for line in result.stderr.splitlines()]
    assert plain == {"message": "hello, world", "severity": "info", "ref": {"name": "obj"}, "some": [1]}
    traceback = failed.pop("exc_info")
    assert failed == {"message": "oops", "severity": "error"}
    assert traceback.startswith("Traceback (most recent call last):")
    assert traceback.endswith("ValueError: boom")


def _parse(line: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(line)
    assert record.pop("timestamp").endswith("+00:00")
    return record
