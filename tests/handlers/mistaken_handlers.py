"""
Handlers with mistakes that type checkers find, one in a line, see `test_typing.py`.

They are what is ignored here: both checkers complain of what is ignored needlessly.
"""

from __future__ import annotations

from typing import Any

import kopf


def mistakes() -> None:
    kopf.on.create("kopfexamples", retires=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    kopf.on.create("kopfexamples", retries="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    kopf.on.create("kopfexamples", deleted=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    kopf.on.create(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    kopf.on.update("kopfexamples", labels={"a": 1})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    kopf.on.resume("kopfexamples", deleted="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    kopf.on.event("kopfexamples", timeout=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    kopf.on.validate("kopfexamples", operation="READ")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    kopf.on.startup(interval=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    kopf.timer("kopfexamples", interval="10s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    kopf.daemon("kopfexamples", owns="pods")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@kopf.daemon("kopfexamples")
async def daemon(stopped: kopf.Stopped, spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    stopped.wait(5) + 1  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    stopped.sleep(5)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    spec["x"] = 1  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
    patch.specs["x"] = 1  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
