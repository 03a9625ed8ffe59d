"""What the definitions of custom resources tell: whether all is to be discovered anew; with no requests."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

import kopf
from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._coordination.peering import Peering
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.resource_definitions import Definitions
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource
from tests.runtimes import make_runtime

KEX = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", subresources=frozenset(["status"]), namespaced=True)


def make_definitions(*selectors: str) -> tuple[Definitions, Peering]:
    registry, runtime = OperatorRegistry(), make_runtime()
    for selector in selectors:
        kopf.on.event(selector, registry=registry)(lambda **_: None)
    peering = Peering(runtime, "us")
    return Definitions(runtime, registry, peering, is_lacking=lambda: False), peering


def make_events(*names: str) -> list[WatchEvent]:
    return [WatchEvent("ADDED", KubeObject.from_dict({"metadata": {"name": name}})) for name in names]


@pytest.mark.parametrize(
    ("selector", "discovered", "name", "expected"),
    [
        ("kopfexamples.v1.kopf.dev", {KEX}, "kopfexamples.kopf.dev", False),
        ("kopfexamples.v1.kopf.dev", {KEX}, "others.kopf.dev", True),
        ("kopfexamples.v1.kopf.dev", set(), "kopfexamples.kopf.dev", True),
        ("kopfexamples.v1.kopf.dev", set(), "others.example.com", False),
        ("kopfexamples", set(), "others.example.com", True),  # it can be of any group
    ],
)
async def test_the_first_listing_is_news_only_if_something_has_appeared_since_the_discovery(
    selector: str,
    discovered: Collection[Resource],
    name: str,
    expected: bool,
) -> None:
    definitions, _ = make_definitions(selector)
    definitions.discovered = discovered
    await definitions._take(make_events(name))
    await definitions._take([LISTED])
    assert definitions.changed.is_set() is expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, False),
        ({"versions": [{"name": "v2", "served": True, "subresources": {"status": {}}}]}, True),
        ({"versions": [{"name": "v1", "served": True, "subresources": {}}]}, True),
        ({"versions": []}, True),
        ({"names": {"kind": "Other"}}, True),
        ({"scope": "Cluster"}, True),
    ],
)
async def test_the_first_listing_is_news_if_a_definition_has_changed(change: dict[str, Any], expected: bool) -> None:
    definitions, _ = make_definitions("kopfexamples.v1.kopf.dev")
    definitions.discovered = {KEX}
    versions = [
        {"name": "v1", "served": True, "subresources": {"status": {}}},
        {"name": "v0", "served": False},
    ]
    spec = {"names": {"kind": "KopfExample"}, "scope": "Namespaced", "versions": versions, **change}
    crd = KubeObject.from_dict({"metadata": {"name": "kopfexamples.kopf.dev"}, "spec": spec})
    await definitions._take([WatchEvent("ADDED", crd)])
    assert definitions.changed.is_set() is expected


async def test_everything_after_the_listing_is_news() -> None:
    definitions, _ = make_definitions("kopfexamples.v1.kopf.dev")
    await definitions._take([LISTED])
    assert not definitions.changed.is_set()
    await definitions._take(make_events("others.example.com"))
    assert definitions.changed.is_set()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("kopfpeerings.kopf.dev", True), ("clusterkopfpeerings.zalando.org", True), ("others.example.com", False)],
)
async def test_the_kinds_of_peering_are_looked_for(name: str, expected: bool) -> None:
    definitions, peering = make_definitions("pods")
    await definitions._take(make_events(name))
    assert peering._rescanning.is_set() is expected
