"""Crafted records of progress in the status, where schemas and webhooks of others can put anything: all is handled."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator

RECORD: dict[str, Any] = {"started": 5, "stopped": {}, "delayed": [], "retries": "x", "success": "yes", "subrefs": 5}


@pytest.mark.parametrize(
    "crafted",
    [
        {"kopf": 5},
        {"kopf": []},
        {"kopf": {"progress": "text"}},
        {"kopf": {"progress": [1]}},
        {"kopf": {"progress": {"fn": 5}}},
        {"kopf": {"progress": {"fn": []}}},
        {"kopf": {"progress": {"fn": RECORD}}},
        {"kopf": {"progress": {"fn": {"started": "9999-99-99"}, "fn~digest": 5}, "dummy": {"a": 1}}},
        {
            "kopf": {
                "progress": {"fn": {"retries": 10**30}, "fn~digest": {"started": None, "digest": [], "reentries": {}}}
            }
        },
    ],
    ids=str,
)
async def test_progress_records(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    crafted: dict[str, Any],
) -> None:
    def configure(settings: kopf.OperatorSettings) -> None:
        settings.persistence.progress_storage = kopf.StatusProgressStorage()

    @kopf.on.create("kopfexamples", id="fn")
    @kopf.on.delete("kopfexamples", id="fn")
    async def fn(name: str, reason: str, retry: int, **_: Any) -> None:
        calls.append((reason, name))
        if retry == 0:
            raise kopf.TemporaryError("once more", delay=0.01)

    logs.expected.append(".*once more.*")
    operator.configure = configure
    await kex.create("crafted", status=crafted)
    await kex.create("other")
    await operator.start()
    await kex.wait_handled("other")
    await kex.wait_handled("crafted")
    for name in ("crafted", "other"):
        await kex.delete(name)
        await kex.wait_gone(name)
    assert {name for _, name in calls} == {"crafted", "other"}
