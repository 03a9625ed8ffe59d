"""What single commands do in the cluster with no operator around: log in, freeze, release; with a scripted server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest

import kopf
from kopf._client.auth.credentials import LoginError
from kopf._client.auth.vault import Vault
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.access import Access
from kopf._operator.freezing import MissingPeeringError, put_record
from kopf._operator.releasing import UnknownResourceError, release
from kopf._settings.settings import OperatorSettings
from tests.client.scripted import ScriptedServer, listing, obj, refuse, reply

FINALIZER = "kopf.dev/finalizer"
GROUP = {"name": "kopf.dev", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}}
KINDS = {"clusterkopfpeerings": "ClusterKopfPeering", "kopfpeerings": "KopfPeering", "kopfexamples": "KopfExample"}
EXAMPLES = "/apis/kopf.dev/v1/kopfexamples"


class Reached:
    """A cluster with the custom resources of that group, and the access to it."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.registry = OperatorRegistry()
        settings = OperatorSettings()
        settings.networking.error_backoffs = ()
        self.access = Access(registry=self.registry, settings=settings, vault=Vault(settings))
        kopf.on.login(id="login", registry=self.registry, retries=1)(lambda **_: kopf.ConnectionInfo(server=server.url))

    def serve(self, *plurals: str) -> None:
        """Let it have these resources, when it is asked for the next time."""
        resources = [
            {
                "name": plural,
                "kind": KINDS[plural],
                "namespaced": not plural.startswith("cluster"),
                "verbs": ["list", "watch", "patch"],
            }
            for plural in plurals
        ]
        self.server.on("GET /apis/zalando.org", refuse(404))
        self.server.on("GET /apis/kopf.dev", reply(GROUP))
        self.server.on("GET /apis/kopf.dev/v1", reply({"resources": resources}))

    async def freeze(self, *patterns: str, record: dict[str, Any] | None = None) -> Collection[str]:
        return await put_record(self.access, "me", record, name="default", patterns=patterns)

    async def release(self, *names: str, **options: Any) -> list[str]:
        options = {"namespaces": [], "finalizer": FINALIZER, "dry_run": False, "only_deleted": False, **options}
        return [released.name async for released in release(self.access, names, **options)]


@pytest.fixture
async def reached() -> AsyncIterator[Reached]:
    server = ScriptedServer()
    await server.start()
    yield Reached(server)
    await server.stop()
    assert not server.unexpected


async def test_access_is_for_the_time_of_the_block(reached: Reached) -> None:
    reached.server.on("GET /x", reply({"a": 1}))
    async with reached.access.connected() as api:
        assert json.loads(await api.get("/x")) == {"a": 1}
    with pytest.raises(LoginError, match="closed"):
        await api.get("/x")


async def test_failed_logins(reached: Reached) -> None:
    @kopf.on.login(id="login", registry=reached.registry, retries=1)
    def fail(**_: Any) -> None:
        raise kopf.PermanentError("no way")

    reached.registry.activities.remove(reached.registry.activities[0])
    with pytest.raises(LoginError, match="no way"):
        async with reached.access.connected():
            pass


@pytest.mark.parametrize("record", [None, {"priority": 1}])
async def test_records_are_put_and_removed(reached: Reached, record: dict[str, Any] | None) -> None:
    reached.serve("clusterkopfpeerings", "kopfpeerings")
    reached.server.on("PATCH /apis/kopf.dev/v1/clusterkopfpeerings/default", reply(obj("default", 1)))
    assert await reached.freeze(record=record) == {"'default' cluster-wide": False}
    assert json.loads(reached.server.bodies[-1]) == {"status": {"me": record}}


async def test_records_in_namespaces(reached: Reached) -> None:
    reached.serve("clusterkopfpeerings", "kopfpeerings")
    for namespace in ("a", "b"):
        path = f"/apis/kopf.dev/v1/namespaces/{namespace}/kopfpeerings/default"
        reached.server.on(f"PATCH {path}", reply(obj("default", 1)))
    assert [*await reached.freeze("b", "a")] == ["'default' in 'a'", "'default' in 'b'"]


async def test_absent_peerings(reached: Reached) -> None:
    reached.serve("kopfpeerings")
    with pytest.raises(MissingPeeringError, match="ClusterKopfPeering is not defined"):
        await reached.freeze()


async def test_absent_peering_objects(reached: Reached) -> None:
    reached.serve("clusterkopfpeerings")
    reached.server.on("PATCH /apis/kopf.dev/v1/clusterkopfpeerings/default", refuse(404))
    with pytest.raises(MissingPeeringError, match="'default' cluster-wide does not exist"):
        await reached.freeze()


@pytest.mark.parametrize(
    ("options", "released", "patched"),
    [
        ({}, ["a", "b"], ["a", "b"]),
        ({"dry_run": True}, ["a", "b"], []),
        ({"only_deleted": True}, ["b"], ["b"]),
        ({"finalizer": "other"}, ["c"], ["c"]),
    ],
    ids=str,
)
async def test_finalizers_are_removed(
    reached: Reached,
    options: dict[str, Any],
    released: list[str],
    patched: list[str],
) -> None:
    reached.serve("kopfexamples")
    objects = [obj(name, 1) for name in "abc"]
    for item, finalizer in zip(objects, (FINALIZER, FINALIZER, "other"), strict=True):
        item["metadata"]["finalizers"] = ["first", finalizer]
    objects[1]["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
    reached.server.on(f"GET {EXAMPLES}", reply(listing(10, *objects)))
    for name in patched:
        reached.server.on(f"PATCH /apis/kopf.dev/v1/namespaces/ns/kopfexamples/{name}", reply(obj(name, 2)))
    assert await reached.release("kopfexamples.kopf.dev", **options) == released
    assert [
        request.path.rpartition("/")[2] for request in reached.server.requests if request.method == "PATCH"
    ] == patched


async def test_unknown_resources(reached: Reached) -> None:
    reached.serve("kopfexamples")
    with pytest.raises(UnknownResourceError, match=r"'others\.kopf\.dev' in the cluster: there is none"):
        await reached.release("others.kopf.dev")
