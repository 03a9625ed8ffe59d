"""Operators whose bugs are seen only if one event alone is late, comes twice, or is followed by the past."""

from __future__ import annotations

from typing import Any, Final

import kopf
from kopf.testing import Simulation, explore

outside: Final[dict[str, Any]] = {}
"""What there is outside of the cluster."""


def _look() -> dict[str, Any]:
    return dict(outside)


def _make(kind: str, name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": {"mine": "yes"}}, "data": data}


# The password is there long before the account: but its event is in another stream.

accounts = kopf.OperatorRegistry()


@kopf.index("secrets", labels={"mine": "yes"}, registry=accounts)
async def passwords(name: str, **_: Any) -> dict[str, bool]:
    return {name: True}


@kopf.on.create("configmaps", labels={"mine": "yes"}, registry=accounts)
async def open_account(name: str, passwords: kopf.Index[str, bool], **_: Any) -> None:
    outside[name] = "protected" if name in passwords else "open"


@explore(registry=accounts, observe=_look)
async def late(simulation: Simulation) -> None:
    outside.clear()
    await simulation.advance(seconds=1)  # not in the midst of the first listings
    await simulation.apply(_make("Secret", "jane"))
    await simulation.advance(seconds=10)
    await simulation.apply(_make("ConfigMap", "jane"))
    await simulation.settle()


# What is doubled as a whole, is still balanced.

ledgers = kopf.OperatorRegistry()


@kopf.on.event("secrets", labels={"mine": "yes"}, registry=ledgers)
async def note_expense(type: str, **_: Any) -> None:
    outside["balance"] -= type == "DELETED"


@kopf.on.event("configmaps", labels={"mine": "yes"}, registry=ledgers)
async def note_income(type: str, **_: Any) -> None:
    outside["balance"] += type == "DELETED"


@explore(registry=ledgers, observe=_look)
async def doubled(simulation: Simulation) -> None:
    outside.clear()
    outside["balance"] = 100
    for kind in ("Secret", "ConfigMap"):
        await simulation.apply(_make(kind, "payment"))
    await simulation.settle()
    for kind in ("secrets", "configmaps"):
        await simulation.delete(kind, "payment")
    await simulation.settle()


# Nobody makes a draft again of what is published; but it is seen so, and the mail is sent once more.

articles = kopf.OperatorRegistry()


@kopf.on.event("configmaps", labels={"mine": "yes"}, registry=articles)
async def announce(body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    if memo.get("phase") == "draft" and body["data"]["phase"] == "published":
        outside["mails"] += 1
    memo.phase = body["data"]["phase"]


@explore(registry=articles, observe=_look)
async def stale(simulation: Simulation) -> None:
    outside.clear()
    outside["mails"] = 0
    await simulation.apply(_make("ConfigMap", "news", phase="draft"))
    await simulation.settle()
    await simulation.patch("configmaps", "news", {"data": {"phase": "published"}})
    await simulation.settle()
