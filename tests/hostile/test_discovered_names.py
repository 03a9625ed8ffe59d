"""Names of resources, groups, and versions that are not as in Kubernetes: extensions can have any, and hurt nobody."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from kopf._controller import supervision
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator
from tests.hostile.spoiling import SpoilingProxy

NAMES = ["vic tims", "a?watch=", "b#c", "..", ".", "%2e%2e", "a/../b", "-a", "a\nb", "É", "A", "", "x" * 300]


def add_resources(groups: list[Any]) -> None:
    """Add the names to the resources of the group, in the aggregated discovery."""
    for group in groups:
        if group["metadata"].get("name") == "kopf.dev":
            resources = group["versions"][0]["resources"]
            resources += [{**resources[0], "resource": name, "subresources": []} for name in NAMES]


def add_versions(groups: list[Any]) -> None:
    for group in groups:
        if group["metadata"].get("name") == "kopf.dev":
            group["versions"] += [{**group["versions"][0], "version": name} for name in NAMES]


def add_groups(groups: list[Any]) -> None:
    [known] = [group for group in groups if group["metadata"].get("name") == "kopf.dev"] or [None]
    if known is not None:
        groups += [{**known, "metadata": {"name": name}} for name in NAMES if name]


@pytest.mark.parametrize("add", [add_resources, add_versions, add_groups])
async def test_improper_names_are_skipped(
    operator: Operator,
    kex: Objects,
    proxy: SpoilingProxy,
    calls: Calls,
    logs: Logs,
    add: Any,
) -> None:
    def rewrite(content: Any) -> None:
        if isinstance(content, dict) and content.get("kind") == "APIGroupDiscoveryList":
            add(content["items"])

    @kopf.on.event(kopf.EVERYTHING)
    async def fn(name: str, **_: Any) -> None:
        calls.append(name)

    proxy.rewrite = rewrite
    logs.expected.append(".*is skipped: it is no proper name of a resource or of an API version.*")
    await operator.launch()
    await kex.create("obj")
    await calls.wait(lambda items: "obj" in items)
    warnings = [text for text in logs.get_messages() if "is no proper name" in text]
    assert len(warnings) >= 10
    assert max(map(len, warnings)) < 300
    assert operator.is_running


async def test_a_watcher_never_ends_the_process(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervision, "_BACKOFFS", (0.01, 0.01))
    logs.expected.append("The watcher of configmaps.v1 has failed")

    @kopf.on.event("configmaps")
    @kopf.on.event("kopfexamples")
    async def fn(name: str, **_: Any) -> None:
        calls.append(name)

    operator.cluster.faults.inject(400, resource="configmaps")  # it is not known what to do with it
    await operator.launch()
    await logs.wait("The watcher of configmaps.v1 has failed.*", times=10)
    await kex.create("obj")
    await calls.wait(lambda items: "obj" in items)
    assert operator.is_running
