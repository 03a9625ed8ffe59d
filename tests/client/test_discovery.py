from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from kopf._client.errors import APIError, APIForbiddenError, APINetworkError, APIServerError
from kopf._client.http.api import APIClient
from kopf._client.resources.discovery import discover
from kopf._settings.settings import OperatorSettings
from kopf._values.resources import Resource
from kopf._values.selectors import EVERYTHING, Selector
from tests.client.scripted import Responder, ScriptedServer, drop, never, refuse, reply


def group(name: str, *versions: str, preferred: str | None = None) -> dict[str, Any]:
    return {
        "kind": "APIGroup",
        "name": name,
        "versions": [{"groupVersion": f"{name}/{version}", "version": version} for version in versions],
        "preferredVersion": {"version": preferred or versions[0]},
    }


def resources(*plurals: str) -> dict[str, Any]:
    return {
        "kind": "APIResourceList",
        "resources": [
            {
                "name": plural,
                "singularName": "",
                "kind": plural.rstrip("s").title(),
                "namespaced": True,
                "verbs": ["list"],
            }
            for plural in plurals
        ],
    }


PODS = {
    "name": "pods",
    "singularName": "pod",
    "kind": "Pod",
    "namespaced": True,
    "shortNames": ["po"],
    "categories": ["all"],
    "verbs": ["list", "watch"],
}


def select(found: Any) -> set[str]:
    return {f"{resource!r}{'' if resource.preferred else '?'}" for resource in found.resources}


async def test_all_details(server: ScriptedServer, api: APIClient) -> None:
    content = {
        "resources": [
            {"name": "pods/status", "kind": "Pod", "namespaced": True},
            PODS,
            {"name": "pods/exec", "kind": "PodExecOptions", "namespaced": True},
            {"name": "namespaces", "kind": "Namespace", "namespaced": False},
        ]
    }
    server.on("GET /api", reply({"versions": ["v1"]}))
    server.on("GET /api/v1", reply(content))
    discovery = await discover(api, [Selector("v1", "pods")])
    assert discovery.unavailable == {}
    pods, namespaces = sorted(discovery.resources, key=lambda resource: resource.plural, reverse=True)
    assert pods == Resource("", "v1", "pods")
    assert (pods.kind, pods.singular, pods.shortcuts, pods.categories) == (
        "Pod",
        "pod",
        frozenset({"po"}),
        frozenset({"all"}),
    )
    assert (pods.namespaced, pods.preferred) == (True, True)
    assert pods.subresources == {"status", "exec"}
    assert pods.verbs == {"list", "watch"}
    assert (namespaces.kind, namespaces.singular, namespaces.shortcuts) == ("Namespace", "namespace", frozenset())
    assert namespaces.namespaced is False
    assert namespaces.subresources == frozenset()


async def test_only_the_needed_groups_are_read(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /apis/kopf.dev", reply(group("kopf.dev", "v1")))
    server.on("GET /apis/kopf.dev/v1", reply(resources("kexes")))
    server.on("GET /apis/apps", reply(group("apps", "v1")))
    server.on("GET /apis/apps/v1", reply(resources("deployments")))
    selectors = [Selector("kopf.dev", "kexes"), Selector("kopf.dev/v1", "others"), Selector("deployments.apps")]
    assert select(await discover(api, selectors)) == {"kexes.v1.kopf.dev", "deployments.v1.apps"}
    assert len(server.requests) == 4


async def test_only_the_needed_versions_are_read(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /apis/kopf.dev", reply(group("kopf.dev", "v2", "v1", "v1beta1")))
    server.on("GET /apis/kopf.dev/v1", reply(resources("kexes")))
    assert select(await discover(api, [Selector("kopf.dev/v1", "kexes")])) == {"kexes.v1.kopf.dev?"}


async def test_nothing_is_needed(server: ScriptedServer, api: APIClient) -> None:
    assert (await discover(api, [])).resources == frozenset()
    assert server.requests == []


async def test_scanning_of_everything(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /api", reply({"versions": ["v1"]}))
    server.on("GET /api/v1", reply(resources("pods")))
    server.on("GET /apis", reply({"groups": [group("apps", "v1"), group("kopf.dev", "v1", "v2")]}))
    server.on("GET /apis/apps/v1", reply(resources("deployments")))
    server.on("GET /apis/kopf.dev/v1", reply(resources("kexes")))
    server.on("GET /apis/kopf.dev/v2", reply(resources("kexes")))
    found = await discover(api, [Selector("kopf.dev", "kexes"), Selector(EVERYTHING)])
    assert select(found) == {"pods.v1", "deployments.v1.apps", "kexes.v1.kopf.dev", "kexes.v2.kopf.dev?"}


async def test_preferred_versions(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /apis/g", reply(group("g", "v3", "v2", "v1", preferred="v2")))
    server.on("GET /apis/g/v3", reply(resources("everywhere", "newest")))
    server.on("GET /apis/g/v2", reply(resources("everywhere")))
    server.on("GET /apis/g/v1", reply(resources("everywhere", "newest", "oldest")))
    assert select(await discover(api, [Selector("g", "any")])) == {
        "everywhere.v2.g",
        "everywhere.v3.g?",
        "everywhere.v1.g?",
        "newest.v3.g",
        "newest.v1.g?",
        "oldest.v1.g",
    }


async def test_absent_groups(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /apis/kopf.dev", refuse(404))
    server.on("GET /apis/g", reply(group("g", "v1")))
    server.on("GET /apis/g/v1", refuse(404))
    discovery = await discover(api, [Selector("kopf.dev", "kexes"), Selector("g", "any")])
    assert discovery.resources == frozenset()
    assert discovery.unavailable == {}


@pytest.mark.fastforward
@pytest.mark.parametrize("failure", [refuse(503, "ServiceUnavailable", "no endpoints"), refuse(429)])
async def test_broken_extensions_are_tolerated(server: ScriptedServer, api: APIClient, failure: Any) -> None:
    server.on("GET /api", reply({"versions": ["v1"]}))
    server.on("GET /api/v1", reply(resources("pods")))
    server.on("GET /apis", reply({"groups": [group("metrics.k8s.io", "v1"), group("kopf.dev", "v1")]}))
    server.on("GET /apis/metrics.k8s.io/v1", failure, failure)
    server.on("GET /apis/kopf.dev/v1", reply(resources("kexes")))
    discovery = await discover(api, [Selector("pods")])
    assert select(discovery) == {"pods.v1", "kexes.v1.kopf.dev"}
    assert discovery.unavailable.keys() == {"metrics.k8s.io/v1"}


@pytest.mark.fastforward
async def test_hanging_extensions_do_not_hold_the_others(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /apis/metrics.k8s.io", reply(group("metrics.k8s.io", "v1")))
    server.on("GET /apis/metrics.k8s.io/v1", never, never)
    server.on("GET /apis/kopf.dev", reply(group("kopf.dev", "v1")))
    server.on("GET /apis/kopf.dev/v1", reply(resources("kexes")))
    loop = asyncio.get_running_loop()
    started = loop.time()
    discovery = await discover(api, [Selector("kopf.dev", "kexes"), Selector("metrics.k8s.io", "pods")])
    assert select(discovery) == {"kexes.v1.kopf.dev"}
    assert "no response in time" in str(discovery.unavailable["metrics.k8s.io/v1"])
    assert loop.time() - started < 15


@pytest.mark.fastforward
async def test_servers_that_do_not_know_the_permissions_yet(server: ScriptedServer, api: APIClient) -> None:
    """The discovery is permitted to everybody, but not in the first seconds of a new server."""
    server.on("GET /apis/g", refuse(403, "Forbidden"), refuse(403, "Forbidden"), reply(group("g", "v1")))
    server.on("GET /apis/g/v1", reply(resources("kexes")))
    assert select(await discover(api, [Selector("g", "any")])) == {"kexes.v1.g"}


async def test_forbidden_groups_are_unavailable(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /apis/g", reply(group("g", "v1")))
    server.on("GET /apis/g/v1", refuse(403, "Forbidden", "not yours"))
    discovery = await discover(api, [Selector("g", "any")])
    assert isinstance(discovery.unavailable["g/v1"], APIForbiddenError)


@pytest.mark.fastforward
async def test_less_preferred_versions_do_not_replace_the_broken_one(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /apis/g", reply(group("g", "v2", "v1")))
    server.on("GET /apis/g/v2", refuse(503), refuse(503))
    server.on("GET /apis/g/v1", reply(resources("kexes")))
    assert select(await discover(api, [Selector("g", "kexes")])) == {"kexes.v1.g?"}


@pytest.mark.parametrize(
    ("failure", "cls"), [(refuse(403), APIForbiddenError), (refuse(500), APIServerError), (drop, APINetworkError)]
)
async def test_broken_servers_are_not_tolerated(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings, failure: Any, cls: type[Exception]
) -> None:
    settings.networking.error_backoffs = ()
    server.on("GET /apis/g", failure, failure)
    with pytest.raises(cls):
        await discover(api, [Selector("g", "any")])


# ------------------------------------------------------------------ malformed documents


def reply_raw(body: bytes) -> Responder:
    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    return respond


STRANGE_FIELDS: list[dict[str, Any]] = [
    {"name": 5},
    {"kind": None},
    {"kind": 5},
    {"kind": {}, "singularName": "x"},
    {"singularName": 5},
    {"shortNames": [[]]},
    {"verbs": 5},
    {"verbs": [5]},
    {"categories": [{}]},
]
MALFORMED: list[Responder] = [
    *map(reply_raw, [b"<html>", b"", b"\xff", b"[" * 3000, b'{"resources":' * 2000, b"NaN"]),
    *map(reply, [[], 5, "text", {"resources": 5}, {"resources": {"a": 1}}, {"resources": [5]}, {"resources": [{}]}]),
    *(reply({"resources": [{**PODS, **fields}]}) for fields in STRANGE_FIELDS),
]


@pytest.mark.parametrize("malformed", MALFORMED)
async def test_malformed_versions_of_extensions(server: ScriptedServer, api: APIClient, malformed: Responder) -> None:
    server.on("GET /apis/broken.io", reply(group("broken.io", "v1")))
    server.on("GET /apis/broken.io/v1", malformed)
    server.on("GET /apis/kopf.dev", reply(group("kopf.dev", "v1")))
    server.on("GET /apis/kopf.dev/v1", reply(resources("kexes")))
    found = await discover(api, [Selector("broken.io", "any"), Selector("kopf.dev", "kexes")])
    assert select(found) == {"kexes.v1.kopf.dev"}
    assert "not a proper discovery document" in str(found.unavailable["broken.io/v1"])


@pytest.mark.parametrize("selector", [Selector(EVERYTHING), Selector("kopf.dev", "kexes")], ids=["all", "one-group"])
async def test_nothing_is_asked_for_after_a_failure(server: ScriptedServer, api: APIClient, selector: Selector) -> None:
    asked = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        asked.set()
        return await never(request)

    async def fail(request: web.Request) -> web.StreamResponse:
        await asked.wait()
        return await refuse(400)(request)

    server.on("GET /api", reply({"versions": ["v1", "v2"]}) if selector.group else hang)
    server.on("GET /apis", fail)
    server.on("GET /apis/kopf.dev", reply(group("kopf.dev", "v1", "v2")))
    server.on("GET /apis/kopf.dev/v1", hang)
    server.on("GET /apis/kopf.dev/v2", fail)
    before = asyncio.all_tasks()
    with pytest.raises(APIError):
        await discover(api, [selector])
    assert not [task for task in asyncio.all_tasks() - before if "_read_" in repr(task)]


@pytest.mark.parametrize("path", ["/apis/kopf.dev", "/api", "/apis"])
@pytest.mark.parametrize(
    "malformed",
    [
        *map(reply_raw, [b"<html>", b"", b"\xff", b"[" * 3000]),
        *map(reply, [[], 5, {}, {"versions": [5]}, {"groups": [{}]}, {"kind": "APIGroupDiscoveryList", "items": [{}]}]),
    ],
)
async def test_malformed_groups(server: ScriptedServer, api: APIClient, path: str, malformed: Responder) -> None:
    for other in ("/api", "/apis"):
        server.on(f"GET {other}", malformed if other == path else reply({"versions": [], "groups": []}))
    server.on("GET /apis/kopf.dev", malformed)
    selector = Selector("kopf.dev", "kexes") if path == "/apis/kopf.dev" else Selector(EVERYTHING)
    with pytest.raises(APIError, match="not a proper discovery document"):
        await discover(api, [selector])
