from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_cluster import LocalCluster
from kopf_cluster.access.gate import Authorization
from tests.cluster.conftest import CONFIG_MAPS, Client, connect, connect_in_memory, make_config_map


async def test_wrong_tokens_are_unauthorized(client: Client) -> None:
    for method, path in [
        ("GET", CONFIG_MAPS),
        ("GET", "/nosuch"),
        ("POST", "/_kopf/compact"),
        ("GET", "/api"),
        ("GET", "/readyz"),
    ]:
        reply = await client.call(method, path, headers={"Authorization": "Bearer wrong"}, expected=401)
        assert reply.body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Unauthorized",
            "reason": "Unauthorized",
            "code": 401,
        }


@pytest.mark.parametrize("authorization", ["always-allow", "rbac"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": ""},
        {"Authorization": "Basic eDp5"},
        {"Authorization": "Bearer "},
    ],
)
async def test_strangers_are_anonymous(headers: dict[str, str], authorization: Authorization) -> None:
    """A real server knows the anonymous user, who may do nothing but look whether it lives."""
    who = 'User "system:anonymous" cannot'
    async with LocalCluster(authorization=authorization) as cluster, connect(cluster) as client:
        reply = await client.call("GET", CONFIG_MAPS, headers=headers, expected=403)
        assert reply.body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "reason": "Forbidden",
            "message": f'configmaps is forbidden: {who} list resource "configmaps" in API group "" '
            'in the namespace "default"',
            "details": {"kind": "configmaps"},
            "code": 403,
        }
        for path in ("/", "/api", "/nosuch"):
            reply = await client.call("GET", path, headers=headers)
            assert (reply.status, reply.body["message"]) == (403, f'forbidden: {who} get path "{path}"')
        reply = await client.call("GET", "/api", headers={**headers, "Impersonate-User": "root"})
        assert (reply.status, reply.body["message"]) == (
            403,
            f'users "root" is forbidden: {who} impersonate resource "users" in API group "" at the cluster scope',
        )
        assert (await client.call("POST", "/_kopf/compact", headers=headers)).status == 403
        for path in ("/readyz", "/livez", "/healthz", "/version"):
            assert (await client.call("GET", path, headers=headers)).status == 200


async def test_metrics(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    await client.call("GET", f"{CONFIG_MAPS}/nosuch")
    reply = await client.call("GET", "/metrics")
    assert (reply.status, reply.headers["Content-Type"].partition(";")[0]) == (200, "text/plain")
    lines = reply.body.decode().splitlines()
    assert "# TYPE apiserver_request_total counter" in lines
    for code, verb in ((201, "POST"), (404, "GET")):
        assert (
            f'apiserver_request_total{{code="{code}",component="apiserver",resource="configmaps",subresource="",'
            f'verb="{verb}"}} 1'
        ) in lines
    assert 'apiserver_storage_objects{resource="configmaps"} 1' in lines


@pytest.mark.parametrize(
    ("path", "agent", "indented"),
    [
        (CONFIG_MAPS, "curl/8.5.0", True),
        (CONFIG_MAPS, "Wget/1.21", True),
        (CONFIG_MAPS, "Mozilla/5.0 (X11)", True),
        (CONFIG_MAPS, "kubectl/v1.36.0", False),
        (f"{CONFIG_MAPS}?pretty=true", "kubectl/v1.36.0", True),
        (f"{CONFIG_MAPS}?pretty=false", "curl/8.5.0", False),
        (f"{CONFIG_MAPS}?pretty=x", "curl/8.5.0", False),
        (f"{CONFIG_MAPS}/nosuch", "curl/8.5.0", True),
        ("/version", "kubectl/v1.36.0", True),
        ("/apis", "curl/8.5.0", True),
        ("/openapi/v3", "curl/8.5.0", False),
    ],
)
async def test_answers_are_indented_for_people(client: Client, path: str, agent: str, indented: bool) -> None:
    async with client.session.get(path, headers={"User-Agent": agent}) as response:
        text = await response.text()
    assert text.startswith('{\n  "') is indented
    if indented:
        assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False)


@pytest.mark.parametrize(
    "path",
    [
        "/apis/nosuch",
        "/apis/nosuch/v1",
        "/apis/nosuch/v1/things",
        "/apis/nosuch/v1/namespaces/default/things/one",
        "/apis/example.com/v1/things",
        "/apis/example.com/v9",
        "/apis/example.com/v9/namespaces/default/kexes",
    ],
)
async def test_unknown_groups_are_not_found_in_plain_text(client: Client, kexes: str, path: str) -> None:
    """There is nobody who would know how to tell it otherwise; so, too, of whatever definitions do not define."""
    for method in ("GET", "POST", "DELETE"):
        reply = await client.call(method, path)
        assert (reply.status, reply.body) == (404, b"404 page not found\n")
        assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    "path",
    [
        "/nosuch",
        "/api/v9",
        "/api/v1/nosuch",
        "/apis/apps/v9/deployments",
        "/apis/apps",
        "/api/v1/namespaces/default/configmaps/one/nosuch",
        "/api/v1/namespaces/default/configmaps/one/a/b/c",
        "/api//v1",
        "/api/v1/namespaces//configmaps",
        "/apis//v1/pods",
        "/api/v1/namespaces/default/nosuch",
    ],
)
async def test_unknown_paths_are_not_found(client: Client, path: str) -> None:
    reply = await client.call("POST", path, json={}) if path == "/apis/apps" else await client.call("GET", path)
    assert reply.status in (404, 405)
    assert reply.body["kind"] == "Status"
    if reply.status == 404:
        assert reply.body["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{CONFIG_MAPS}/one"),
        ("PUT", CONFIG_MAPS),
        ("PATCH", CONFIG_MAPS),
        ("OPTIONS", CONFIG_MAPS),
        ("TRACE", CONFIG_MAPS),
        ("DELETE", "/version"),
        ("POST", "/apis"),
        ("DELETE", "/api/v1/namespaces/default/pods/one/status"),
        ("QUERY", CONFIG_MAPS),
        ("GET", "/api/v1/namespaces/default/serviceaccounts/one/token"),
        ("GET", "/api/v1/namespaces/default/pods/one/eviction"),
        ("GET", "/api/v1/namespaces/default/bindings"),
        ("POST", "/api/v1/componentstatuses"),
        ("GET", "/api/v1/componentstatuses?watch=1"),
        ("DELETE", "/api/v1/namespaces"),
        ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
        ("POST", "/apis/apps/v1/namespaces/default/deployments/one/scale"),
        ("GET", "/api/v1/namespaces/default/finalize"),
    ],
)
async def test_other_methods_are_not_allowed(client: Client, method: str, path: str) -> None:
    reply = await client.call(method, path, json=make_config_map(), expected=405)
    assert reply.body["reason"] == "MethodNotAllowed"


@pytest.mark.parametrize(
    "path",
    [
        "pods/one/log",
        "pods/one/exec",
        "pods/one/attach",
        "pods/one/proxy/a/b",
        "pods/one/portforward",
        "services/one/proxy",
    ],
)
async def test_what_is_not_supported_is_said_so(client: Client, path: str) -> None:
    reply = await client.call("GET", f"/api/v1/namespaces/default/{path}", expected=501)
    assert reply.body["reason"] == "NotImplemented"
    assert "is not supported by the local cluster" in reply.body["message"]


BODIES = (
    b"",
    b"{",
    b"[]",
    b"5",
    b"null",
    b"\xff\xfe",
    b'{"a":1}',
    b"[" * 100_000,
    b'{"kind": 5, "apiVersion": []}',
    b'{"metadata":"x"}',
    b"{}}",
)


@pytest.mark.parametrize(
    ("method", "path", "content_type"),
    [
        ("POST", CONFIG_MAPS, "application/json"),
        ("POST", CONFIG_MAPS, "application/yaml"),
        ("POST", CONFIG_MAPS, "application/vnd.kubernetes.protobuf"),
        ("PUT", f"{CONFIG_MAPS}/one", "application/json"),
        ("PATCH", f"{CONFIG_MAPS}/one", "application/merge-patch+json"),
        ("PATCH", f"{CONFIG_MAPS}/one", "application/json-patch+json"),
        ("PATCH", f"{CONFIG_MAPS}/one", "application/strategic-merge-patch+json"),
        ("DELETE", f"{CONFIG_MAPS}/two", "application/json"),
    ],
)
async def test_malformed_bodies_are_refused(
    client: Client,
    cluster: LocalCluster,
    method: str,
    path: str,
    content_type: str,
) -> None:
    cluster.apply(make_config_map("one"))
    for body in BODIES:
        reply = await client.call(method, path, data=body, headers={"Content-Type": content_type})
        assert reply.status in (200, 400, 404, 422), body
        if reply.status == 200:
            assert method == "PATCH", body  # some of them are patches that change nothing
            assert reply.body["metadata"]["name"] == "one", body
        else:
            assert reply.body["kind"] == "Status", body
            assert reply.body["message"], body


async def test_bad_json_is_told_as_by_the_api_server(client: Client) -> None:
    reply = await client.call(
        "POST", CONFIG_MAPS, data=b"{nope", headers={"Content-Type": "application/json"}, expected=400
    )
    assert reply.body["reason"] == "BadRequest"
    assert reply.body["message"].startswith(
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: "
    )
    assert reply.body["message"].endswith("(7b6e6f7065)")


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "application/cbor"])
async def test_unknown_content_types_are_refused(client: Client, content_type: str) -> None:
    reply = await client.call("POST", CONFIG_MAPS, data=b"{}", headers={"Content-Type": content_type}, expected=415)
    assert reply.body["reason"] == "UnsupportedMediaType"


@pytest.fixture(scope="module")
def lasting() -> Iterator[tuple[asyncio.Runner, Client]]:
    """A loop with a cluster for all examples of a test, and a client of it."""

    async def enter() -> Client:
        cluster = await stack.enter_async_context(LocalCluster())
        return await stack.enter_async_context(connect_in_memory(cluster))

    stack = contextlib.AsyncExitStack()
    with asyncio.Runner() as runner:
        yield runner, runner.run(enter())
        runner.run(stack.aclose())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "spec",
                    "status",
                    "data",
                    "name",
                    "labels",
                    "finalizers",
                    "names",
                    "versions",
                    "ownerReferences",
                    "containers",
                    "uid",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


NUMBERS = itertools.count()
EXPECTED = {"resourceVersion should not be set on objects to be created"}


@given(
    json_values,
    st.sampled_from(["spec", "data", "metadata", "rules", "status"]),
    st.sampled_from(
        [
            ("ConfigMap", "v1", CONFIG_MAPS),
            ("Secret", "v1", "/api/v1/namespaces/default/secrets"),
            ("Pod", "v1", "/api/v1/namespaces/default/pods"),
            ("Namespace", "v1", "/api/v1/namespaces"),
            ("Event", "v1", "/api/v1/namespaces/default/events"),
            ("Deployment", "apps/v1", "/apis/apps/v1/namespaces/default/deployments"),
            (
                "CustomResourceDefinition",
                "apiextensions.k8s.io/v1",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            ),
        ]
    ),
)
def test_whatever_is_in_objects_they_are_accepted_or_refused(
    lasting: tuple[asyncio.Runner, Client],
    value: Any,
    field: str,
    kind: tuple[str, str, str],
) -> None:
    async def attempt() -> None:
        name = f"one-{next(NUMBERS)}"
        obj = {"apiVersion": kind[1], "kind": kind[0], "metadata": {"name": name}, field: value}
        reply = await client.call("POST", kind[2], json=obj)
        assert reply.status in (201, 400, 403, 404, 409, 422) or reply.body["message"] in EXPECTED, reply
        table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        assert (await client.call("GET", kind[2], headers=table)).status == 200
        name = reply.body["metadata"]["name"] if reply.status == 201 else name
        reply = await client.send_patch(
            f"{kind[2]}/{name}",
            {field: value, "metadata": {"labels": {"a": "b"}}},
            "application/strategic-merge-patch+json",
        )
        assert reply.status in (200, 400, 404, 422), reply
        reply = await client.call("DELETE", f"{kind[2]}/{name}")
        assert reply.status in (200, 404), reply

    runner, client = lasting
    runner.run(attempt())
