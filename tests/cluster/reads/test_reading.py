from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import (
    CONFIG_MAPS,
    CRDS,
    Client,
    Obj,
    causes,
    make_config_map,
    make_definition,
    make_kex,
)


def names(listing: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listing["items"]]


async def fill(client: Client, count: int) -> list[str]:
    made = [f"cm{number:03}" for number in range(count)]
    for name in made:
        await client.create(CONFIG_MAPS, make_config_map(name, metadata={"labels": {"odd": str(int(name[2:]) % 2)}}))
    return made


async def test_lists_have_the_latest_version(client: Client) -> None:
    empty = await client.get(CONFIG_MAPS)
    assert empty == {
        "apiVersion": "v1",
        "kind": "ConfigMapList",
        "items": [],
        "metadata": {"resourceVersion": empty["metadata"]["resourceVersion"]},
    }
    obj = await client.create(CONFIG_MAPS, make_config_map())
    listing = await client.get(CONFIG_MAPS)
    assert listing["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]


async def test_lists_of_custom_kinds_are_as_of_those_that_know_no_types(client: Client, kexes: str) -> None:
    """The fields are sorted, and the token to go on is there even if it is empty: `kubectl get --raw` shows that."""
    async with client.session.get(kexes) as response:
        empty = await response.text()
    version = json.loads(empty)["metadata"]["resourceVersion"]
    assert empty.rstrip() == (
        '{"apiVersion":"example.com/v1","items":[],"kind":"KexList",'
        f'"metadata":{{"continue":"","resourceVersion":"{version}"}}}}'
    )
    await client.create(kexes, make_kex())
    assert list(listing := await client.get(kexes)) == ["apiVersion", "items", "kind", "metadata"]
    assert listing["metadata"]["continue"] == ""


async def test_items_of_builtin_lists_have_no_kinds_and_of_custom_ones_have(client: Client, kexes: str) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    await client.create(kexes, make_kex())
    assert set((await client.get(CONFIG_MAPS))["items"][0]) == {"metadata"}
    assert (await client.get(kexes))["items"][0]["kind"] == "Kex"
    assert (await client.get(kexes))["kind"] == "KexList"


async def test_lists_of_one_and_of_all_namespaces(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map("a"))
    await client.create("/api/v1/namespaces/kube-system/configmaps", make_config_map("b"))
    assert names(await client.get(CONFIG_MAPS)) == ["a"]
    assert names(await client.get("/api/v1/configmaps")) == ["a", "b"]
    assert names(await client.get("/api/v1/namespaces/nosuch/configmaps")) == []


async def test_selectors(client: Client) -> None:
    await fill(client, 4)
    assert names(await client.get(CONFIG_MAPS, params={"labelSelector": "odd=1"})) == ["cm001", "cm003"]
    assert names(await client.get(CONFIG_MAPS, params={"fieldSelector": "metadata.name=cm002"})) == ["cm002"]
    reply = await client.call("GET", CONFIG_MAPS, params={"fieldSelector": "data.x=1"}, expected=400)
    assert reply.body["message"] == "field label not supported: data.x"


@pytest.mark.parametrize(
    ("path", "absent", "present", "selector"),
    [
        ("/api/v1/nodes", {}, {"spec": {"unschedulable": True}}, "spec.unschedulable={}"),
        ("/api/v1/namespaces/default/pods", {}, {"spec": {"hostNetwork": True}}, "spec.hostNetwork={}"),
    ],
)
async def test_absent_flags_are_selected_as_false(
    client: Client,
    path: str,
    absent: Obj,
    present: Obj,
    selector: str,
) -> None:
    for name, extra in (("a", absent), ("b", present)):
        spec = {"containers": [{"name": "c", "image": "i"}]} if path.endswith("pods") else {}
        await client.create(path, {"metadata": {"name": name}, "spec": {**spec, **extra.get("spec", {})}})
    for value, expected in (("false", ["a"]), ("true", ["b"]), ("", [])):
        assert names(await client.get(path, params={"fieldSelector": selector.format(value)})) == expected
        other = await client.get(path, params={"fieldSelector": selector.format(value).replace("=", "!=")})
        assert names(other) == [name for name in ("a", "b") if name not in expected]


@pytest.mark.parametrize(
    ("path", "field", "count"),
    [
        ("/apis/batch/v1/namespaces/default/jobs", "status.successful", "succeeded"),
        ("/apis/apps/v1/namespaces/default/replicasets", "status.replicas", "replicas"),
    ],
)
async def test_absent_numbers_are_selected_as_zeros(client: Client, path: str, field: str, count: str) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            **({"restartPolicy": "Never"} if path.endswith("jobs") else {}),
        },
    }
    spec = {"template": template, **({} if path.endswith("jobs") else {"selector": {"matchLabels": {"a": "b"}}})}
    for name in ("a", "b"):
        await client.create(path, {"metadata": {"name": name}, "spec": spec})
    await client.patch(f"{path}/b/status", {"status": {count: 1}})
    assert names(await client.get(path, params={"fieldSelector": f"{field}=0"})) == ["a"]
    assert names(await client.get(path, params={"fieldSelector": f"{field}=1"})) == ["b"]


async def test_events_are_selected_by_sources_that_report_in_either_way(client: Client) -> None:
    events = "/api/v1/namespaces/default/events"
    for name, reporter in (
        ("a", {"source": {"component": "me"}}),
        ("b", {"reportingComponent": "me"}),
        ("c", {"source": {"component": "you"}, "reportingComponent": "me"}),
    ):
        await client.create(
            events, {"metadata": {"name": name}, "involvedObject": {"name": name, "namespace": "default"}, **reporter}
        )
    selector = "involvedObject.name=a,source=me,involvedObject.namespace=default"
    assert names(await client.get(events, params={"fieldSelector": selector})) == ["a"]
    assert names(await client.get(events, params={"fieldSelector": "source=me"})) == ["a", "b"]
    assert names(await client.get(events, params={"fieldSelector": "reportingComponent=me"})) == ["b", "c"]


async def test_pages_with_selectors(client: Client) -> None:
    await fill(client, 6)
    first = await client.get(CONFIG_MAPS, params={"limit": "2", "labelSelector": "odd=1"})
    assert names(first) == ["cm001", "cm003"]
    assert "remainingItemCount" not in first["metadata"]
    params = {"limit": "2", "labelSelector": "odd=1", "continue": first["metadata"]["continue"]}
    last = await client.get(CONFIG_MAPS, params=params)
    assert names(last) == ["cm005"]
    assert "continue" not in last["metadata"]


async def test_pages_that_are_forgotten_expire(client: Client, cluster: LocalCluster) -> None:
    made = await fill(client, 3)
    first = await client.get(CONFIG_MAPS, params={"limit": "1"})
    await client.delete(f"{CONFIG_MAPS}/{made[2]}")
    cluster.faults.compact()
    reply = await client.call(
        "GET", CONFIG_MAPS, params={"limit": "1", "continue": first["metadata"]["continue"]}, expected=410
    )
    assert reply.body["reason"] == "Expired"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"resourceVersion": "1", "resourceVersionMatch": "Nosuch"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "Exact"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "1", "continue": "x"}, "resourceVersionMatch"),
        ({"sendInitialEvents": "true"}, "sendInitialEvents"),
        ({"watch": "1", "resourceVersionMatch": "Exact"}, "resourceVersionMatch"),
        ({"watch": "1", "sendInitialEvents": "true"}, "resourceVersionMatch"),
        ({"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}, "sendInitialEvents"),
    ],
)
async def test_options_that_do_not_fit_are_invalid(client: Client, params: dict[str, str], field: str) -> None:
    reply = await client.call("GET", CONFIG_MAPS, params=params)
    assert field in [name for name, _ in causes(reply)]
    assert reply.body["message"].startswith('ListOptions.meta.k8s.io "" is invalid: ')


async def test_negative_limits_are_none(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    assert names(await client.get(CONFIG_MAPS, params={"limit": "-1"})) == ["one"]


async def test_big_answers_are_compressed_for_those_who_want_it(client: Client) -> None:
    for name in ("a", "b"):
        await client.create(CONFIG_MAPS, make_config_map(name, data={"x": "y" * 100_000}))
    for path, accepted, compressed in (
        (CONFIG_MAPS, "gzip", True),
        (CONFIG_MAPS, "identity", False),
        (f"{CONFIG_MAPS}/a", "gzip", False),
    ):
        reply = await client.call("GET", path, headers={"Accept-Encoding": accepted})
        assert (reply.headers.get("Content-Encoding") == "gzip") is compressed
        assert (int(reply.headers["Content-Length"]) < 10_000) is compressed
        assert reply.body["kind"] in ("ConfigMap", "ConfigMapList")


async def test_versions_in_lists(client: Client, cluster: LocalCluster) -> None:
    first = await client.create(CONFIG_MAPS, make_config_map("a"))
    await client.create(CONFIG_MAPS, make_config_map("b"))
    version = first["metadata"]["resourceVersion"]
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    assert names(await client.get(CONFIG_MAPS, params=exact)) == ["a"]
    assert (await client.get(CONFIG_MAPS, params=exact))["metadata"]["resourceVersion"] == version
    assert names(await client.get(CONFIG_MAPS, params={"resourceVersion": version, "limit": "5"})) == ["a"]
    for later in ({"resourceVersionMatch": "NotOlderThan"}, {"resourceVersionMatch": "NotOlderThan", "limit": "5"}):
        assert names(await client.get(CONFIG_MAPS, params={"resourceVersion": version, **later})) == ["a", "b"]
    assert names(await client.get(CONFIG_MAPS, params={"resourceVersion": "0"})) == ["a", "b"]
    cluster.faults.compact()
    assert (await client.call("GET", CONFIG_MAPS, params=exact)).status == 410


@pytest.mark.fastforward
@pytest.mark.parametrize(("timeout", "waited"), [({}, 3.0), ({"timeout": "1s500ms"}, 1.5), ({"timeout": "1m"}, 3.0)])
@pytest.mark.parametrize("path", [CONFIG_MAPS, f"{CONFIG_MAPS}/one"])
async def test_versions_of_the_future_are_waited_for(
    client: Client,
    path: str,
    timeout: dict[str, str],
    waited: float,
) -> None:
    made = await client.create(CONFIG_MAPS, make_config_map())
    current = made["metadata"]["resourceVersion"]
    loop = asyncio.get_running_loop()
    started = loop.time()
    reply = await client.call("GET", path, params={"resourceVersion": "999999", **timeout})
    assert loop.time() - started == pytest.approx(waited, abs=0.1)
    assert (reply.status, reply.body["reason"]) == (504, "Timeout")
    assert reply.body["message"] == f"Timeout: Too large resource version: 999999, current: {current}"
    assert reply.body["details"] == {
        "retryAfterSeconds": 1,
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
    }
    assert reply.headers["Retry-After"] == "1"


async def test_versions_of_the_near_future_are_answered_when_they_come(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, make_config_map())
    version = str(int(made["metadata"]["resourceVersion"]) + 2)
    reading = asyncio.create_task(client.get(CONFIG_MAPS, params={"resourceVersion": version}))
    for name in ("two", "three"):
        await client.create(CONFIG_MAPS, make_config_map(name))
    assert names(await reading) == ["one", "three", "two"]


@pytest.mark.parametrize("timeout", ["soon", "10", "10y", "-", ".s", "1s,"])
async def test_timeouts_that_are_no_durations_are_bad_requests(client: Client, timeout: str) -> None:
    why = f'time: invalid duration "{timeout}"'
    await client.create(CONFIG_MAPS, make_config_map())
    for method, path in (("GET", CONFIG_MAPS), ("DELETE", f"{CONFIG_MAPS}/one"), ("GET", "/api")):
        reply = await client.call(method, path, params={"timeout": timeout}, expected=400)
        assert reply.body["message"] == f"invalid timeout specified in the request URL - {why}"
    for right in ("0", "1h2m3.5s", "+100ms", "-5s", ""):
        assert names(await client.get(CONFIG_MAPS, params={"timeout": right})) == ["one"]


async def test_cluster_wide_kinds_are_not_in_namespaces_and_vice_versa(client: Client) -> None:
    assert (await client.call("GET", "/api/v1/namespaces/default/nodes")).status == 404
    assert (await client.call("GET", "/api/v1/configmaps/one")).status == 404
    await client.call("POST", "/api/v1/configmaps", json=make_config_map(), expected=405)
    await client.call("DELETE", "/api/v1/configmaps", expected=405)
    await client.create(CRDS, make_definition())
    await client.call("GET", "/apis/example.com/v1/kexes", expected=200)
    await client.call("POST", "/apis/example.com/v1/kexes", json=make_kex(), expected=404)
    await client.call("DELETE", "/apis/example.com/v1/kexes", expected=404)


async def test_pages_are_continued_without_versions(client: Client) -> None:
    for name in ("one", "two"):
        await client.create(CONFIG_MAPS, make_config_map(name))
    first = (await client.get(CONFIG_MAPS, params={"limit": "1"}))["metadata"]
    params = {"limit": "1", "continue": first["continue"]}
    for version, expected in (("0", 200), ("", 200), (first["resourceVersion"], 400)):
        await client.call("GET", CONFIG_MAPS, params={**params, "resourceVersion": version}, expected=expected)


@pytest.mark.parametrize(
    "accept",
    [
        "*/*",
        "application/*",
        "",
        "application/cbor,application/json",
        "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
    ],
)
async def test_json_is_what_is_served(client: Client, accept: str) -> None:
    assert (await client.get(CONFIG_MAPS, headers={"Accept": accept}))["kind"] == "ConfigMapList"


@pytest.mark.parametrize("accept", ["text/html", "application/cbor"])
async def test_other_types_are_not_acceptable(client: Client, accept: str) -> None:
    reply = await client.call("GET", CONFIG_MAPS, headers={"Accept": accept}, expected=406)
    assert reply.body["reason"] == "NotAcceptable"
