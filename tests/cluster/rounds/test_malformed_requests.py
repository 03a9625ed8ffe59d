"""
Requests that are correct as HTTP, but malformed as requests to the API: they are refused as the API does.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.conftest import APPLY, CONFIG_MAPS, CRDS, DEPLOYMENTS, JSON, MERGE, STRATEGIC
from tests.cluster.rounds import widgets
from tests.cluster.rounds.malformed import CORE, check, check_refusal, distort, encode, mutate
from tests.cluster.rounds.widgets import make_config_map, make_widget
from tests.cluster.rounds.wire import Wire
from tests.hostile.inputs import COUNT

pytestmark = pytest.mark.usefixtures("objects")

REQUESTS: dict[str, tuple[str, str, str, bytes]] = {
    "creation": ("POST", CONFIG_MAPS, "application/json", encode(make_config_map("two", a="1", b="\u00e4"))),
    "creation of custom": (
        "POST",
        widgets.PATH,
        "application/json",
        encode(make_widget("two", labels={"a": "b"}, size=5, color="red", tags=["a", "b"], options={"x": "y"})),
    ),
    "creation in YAML": ("POST", CONFIG_MAPS, "application/yaml", yaml.safe_dump(make_config_map("three")).encode()),
    "creation of definition": (
        "POST",
        CRDS,
        "application/json",
        encode(json.loads(json.dumps(widgets.DEFINITION).replace("widgets", "gadgets").replace("idget", "adget"))),
    ),
    "update": ("PUT", f"{CONFIG_MAPS}/one", "application/json", encode(make_config_map("one", a="2"))),
    "update of definition": ("PUT", f"{CRDS}/widgets.{widgets.GROUP}", "application/json", encode(widgets.DEFINITION)),
    "merge-patch": ("PATCH", f"{widgets.PATH}/one", MERGE, encode({"spec": {"size": 2, "tags": None}})),
    "json-patch": (
        "PATCH",
        f"{widgets.PATH}/one",
        JSON,
        encode(
            [
                {"op": "test", "path": "/spec/size", "value": 1},
                {"op": "add", "path": "/spec/tags/-", "value": "b"},
                {"op": "copy", "from": "/spec/size", "path": "/metadata/generation"},
                {"op": "remove", "path": "/spec/tags/0"},
            ]
        ),
    ),
    "strategic": (
        "PATCH",
        f"{DEPLOYMENTS}/one",
        STRATEGIC,
        encode(
            {
                "spec": {
                    "template": {
                        "spec": {
                            "$setElementOrder/containers": [{"name": "main"}, {"name": "side"}],
                            "$retainKeys": ["containers"],
                            "containers": [{"name": "side", "image": "x"}, {"name": "main", "$patch": "delete"}],
                        }
                    }
                }
            }
        ),
    ),
    "apply": (
        "PATCH",
        f"{widgets.PATH}/one?fieldManager=fuzz&force=true",
        APPLY,
        yaml.safe_dump(make_widget("one", size=3, tags=["x"], options={"a": "b"})).encode(),
    ),
    "status": ("PATCH", f"{widgets.PATH}/one/status", MERGE, encode({"status": {"a": [{"b": None}]}})),
    "deletion": (
        "DELETE",
        f"{CONFIG_MAPS}/two",
        "application/json",
        encode(
            {
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "preconditions": {"uid": "x"},
                "propagationPolicy": "Orphan",
                "gracePeriodSeconds": 5,
                "dryRun": ["All"],
            }
        ),
    ),
    "review": (
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "application/json",
        encode(
            {
                "kind": "SelfSubjectAccessReview",
                "apiVersion": "authorization.k8s.io/v1",
                "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
            }
        ),
    ),
    "token": (
        "POST",
        f"{CORE}/serviceaccounts/default/token",
        "application/json",
        encode({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"expirationSeconds": 700}}),
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_spoiled_bodies(name: str, wire: Wire) -> None:
    method, target, content_type, body = REQUESTS[name]
    rnd = random.Random(name)
    for _ in range(COUNT):
        spoiled = mutate(body, rnd)
        answer = wire.request(method, target, spoiled, content_type)
        check(answer)
        assert answer.status in (200, 201, 400, 403, 404, 409, 422, 500), (spoiled, answer)


@pytest.mark.parametrize("name", [name for name, request in REQUESTS.items() if request[3][:1] in b"{["])
def test_distorted_objects(name: str, wire: Wire) -> None:
    method, target, content_type, body = REQUESTS[name]
    rnd = random.Random(name)
    for _ in range(COUNT):
        distorted = distort(json.loads(body), rnd)
        answer = wire.request(method, target, encode(distorted), content_type)
        check(answer)
        assert answer.status in (200, 201, 400, 403, 404, 409, 422, 500), (distorted, answer)


@pytest.mark.parametrize("name", REQUESTS)
def test_bodies_of_other_types(name: str, wire: Wire) -> None:
    method, target, _, body = REQUESTS[name]
    for content_type in (
        "",
        "text/plain",
        "application/xml",
        "application/json-patch+json",
        "application/yaml",
        MERGE,
        "application/vnd.kubernetes.protobuf",
        "application/cbor",
        "multipart/form-data",
        "a/b; c=",
        "application/json; charset=nosuch",
        STRATEGIC,
        APPLY,
        ";",
        "\u00e4",
    ):
        check(wire.request(method, target, body, content_type))
    check(wire.request(method, target, body, None))
    check(wire.request(method, target, b""))
    check(wire.request(method, target))


@pytest.mark.parametrize(
    ("target", "content_type", "body", "code", "message"),
    [
        (
            CONFIG_MAPS,
            None,
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}},
            400,
            'Secret in version "v1" cannot be handled as a ConfigMap',
        ),
        (
            CONFIG_MAPS,
            None,
            {"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "x"}},
            400,
            "the API version in the data (v2) does not match the expected API version (v1)",
        ),
        (
            CONFIG_MAPS,
            None,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "other"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (CONFIG_MAPS, None, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": "x"}, 400, "cannot unmarshal string"),
        (
            CONFIG_MAPS,
            None,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": 5}},
            400,
            "cannot unmarshal number",
        ),
        (
            CONFIG_MAPS,
            None,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": ["a"], "name": "x"}},
            400,
            "cannot unmarshal array",
        ),
        (
            CONFIG_MAPS,
            None,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}},
            422,
            "name or generateName is required",
        ),
        (
            widgets.PATH,
            None,
            {"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "x"}},
            400,
            "the API version in the data (v1) does not match the expected API version (rounds.example.com/v1)",
        ),
        (
            widgets.PATH,
            None,
            {"apiVersion": widgets.API_VERSION, "kind": "Widgets", "metadata": {"name": "x"}},
            400,
            "Widgets",
        ),
        (widgets.PATH, None, {"kind": "Widget", "metadata": {"name": "x"}}, 400, "apiVersion"),
        (widgets.PATH, None, {"apiVersion": widgets.API_VERSION, "metadata": {"name": "x"}}, 400, "'Kind' is missing"),
        (f"{widgets.PATH}/one", MERGE, [], 400, "error decoding patch"),
        (f"{widgets.PATH}/one", MERGE, {"metadata": {"name": "two"}}, 400, "the name of the object (two)"),
        (f"{widgets.PATH}/one", MERGE, {"spec": 5}, 422, "must be of type object"),
        (f"{widgets.PATH}/one", MERGE, {"kind": "Other"}, 400, "Other"),
        (f"{widgets.PATH}/one", STRATEGIC, {}, 415, "the body of the request was in an unknown format"),
        (f"{widgets.PATH}/one", JSON, {}, 400, "error decoding patch"),
        (
            f"{widgets.PATH}/one",
            JSON,
            [{"op": "test", "path": "/spec/size", "value": "x"}],
            422,
            "the server rejected our request due to an error in our request",
        ),
        (f"{widgets.PATH}/one", JSON, [{"op": "remove", "path": ""}], 422, ""),
        (f"{widgets.PATH}/one", JSON, [{"op": "replace", "path": "", "value": []}], 422, ""),
        (
            f"{DEPLOYMENTS}/one",
            STRATEGIC,
            {"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}},
            400,
            "does not contain declared merge key: name",
        ),
        (f"{DEPLOYMENTS}/one", STRATEGIC, {"spec": {"$patch": "nosuch"}}, 400, "nosuch"),
        (f"{DEPLOYMENTS}/one", STRATEGIC, [], 400, "error decoding patch"),
        (
            f"{widgets.PATH}/one?fieldManager=x",
            APPLY,
            {
                "apiVersion": widgets.API_VERSION,
                "kind": "Widget",
                "metadata": {"name": "one", "managedFields": [{"manager": "x"}]},
            },
            400,
            "metadata.managedFields must be nil",
        ),
        (f"{widgets.PATH}/one", APPLY, make_widget("one"), 422, "fieldManager"),
        (f"{widgets.PATH}/two?fieldManager=x", APPLY, make_widget("one"), 400, "the name of the object (one)"),
    ],
)
def test_misfits(target: str, content_type: str | None, body: Any, code: int, message: str, wire: Wire) -> None:
    method = "PATCH" if content_type is not None else "POST"
    answer = wire.request(method, target, encode(body), content_type or "application/json")
    assert (answer.status, message in answer.json["message"]) == (code, True), answer
    check_refusal(answer)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=x", 400),
        ("limit=1.5", 400),
        ("limit=99999999999999999999", 400),
        ("limit=%00", 400),
        ("resourceVersion=x", 400),
        ("resourceVersion=-1", 400),
        ("resourceVersion=0x10", 400),
        ("resourceVersion=1%20", 400),
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersionMatch=nosuch&resourceVersion=1", 422),
        ("resourceVersionMatch=Exact&resourceVersion=0", 422),
        ("continue=x&resourceVersionMatch=Exact&resourceVersion=1", 422),
        ("continue=x", 400),
        ("continue=%00", 400),
        ("continue=e30", 400),
        ("continue=eyJyZXZpc2lvbiI6LTF9", 400),
        ("continue=" + 5000 * "A", 400),
        ("limit=1&continue=null", 400),
        ("labelSelector=a%20in", 400),
        ("labelSelector==", 400),
        ("labelSelector=a%3D%3D%3Db", 400),
        ("labelSelector=a%3D%00", 400),
        ("labelSelector=a%3D%3Db%2C%2C", 400),
        ("labelSelector=a%20in%20(-)", 400),
        ("labelSelector=a%3D" + 64 * "x", 400),
        ("labelSelector=%2Fa", 400),
        ("labelSelector=a%3Eb", 400),
        ("labelSelector=%C3%A4", 400),
        ("fieldSelector=nosuch%3D1", 400),
        ("fieldSelector=metadata.name", 400),
        ("fieldSelector=metadata.name%3Da%3Db", 400),
        ("fieldSelector=metadata.name%3Da%5C", 400),
        ("watch=1&timeoutSeconds=x", 400),
        ("watch=1&resourceVersion=x", 400),
        ("watch=1&labelSelector=a%20in", 400),
        ("watch=1&sendInitialEvents=true", 422),
        ("watch=1&resourceVersionMatch=NotOlderThan", 422),
        ("sendInitialEvents=true", 422),
    ],
)
def test_wrong_parameters_of_lists(query: str, code: int, wire: Wire) -> None:
    for path in (CONFIG_MAPS, widgets.PATH, "/api/v1/pods"):
        answer = wire.request("GET", f"{path}?{query}")
        assert answer.status == code, (path, answer)
        check_refusal(answer)


@pytest.mark.parametrize(
    ("method", "query", "code"),
    [
        ("POST", "dryRun=Some", 422),
        ("POST", "fieldValidation=Loose", 422),
        ("POST", "fieldManager=" + 200 * "x", 422),
        ("POST", "fieldManager=a%00b", 422),
        ("PATCH", "dryRun=all", 422),
        ("PATCH", "force=true", 422),
        ("PATCH", "fieldManager=%0A", 422),
        ("DELETE", "propagationPolicy=Sometimes", 422),
        ("DELETE", "gracePeriodSeconds=x", 400),
        ("DELETE", "dryRun=Some", 422),
        ("DELETE", "orphanDependents=maybe", 400),
    ],
)
def test_wrong_parameters_of_writes(method: str, query: str, code: int, wire: Wire) -> None:
    target = CONFIG_MAPS if method == "POST" else f"{CONFIG_MAPS}/one"
    body = {"POST": encode(make_config_map("new")), "PATCH": b"{}"}.get(method)
    answer = wire.request(method, f"{target}?{query}", body, MERGE if method == "PATCH" else "application/json")
    assert answer.status == code, answer
    check_refusal(answer)


SEGMENTS = st.sampled_from(
    [
        "api",
        "apis",
        "v1",
        "v9",
        "apps",
        "nosuch",
        "namespaces",
        "default",
        "kube-system",
        "configmaps",
        "pods",
        "widgets",
        "deployments",
        "one",
        "status",
        "scale",
        "log",
        "exec",
        "binding",
        widgets.GROUP,
        "apiextensions.k8s.io",
        "openapi",
        "v3",
        "version",
        "healthz",
        "",
        ".",
        "..",
        "%2e",
        "%2e%2e",
        "%2F",
        "%2f..%2f",
        "%00",
        "%",
        "%zz",
        "%C3%A4",
        "%FF",
        "*",
        "a b".replace(" ", "%20"),
        ";x=1",
        "@",
        "~",
        "x" * 300,
        "_kopf",
        "faults",
        "watch",
        "proxy",
    ]
)
TARGETS = st.lists(SEGMENTS, max_size=9).map(lambda parts: "/" + "/".join(parts))
METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])


def test_odd_paths(wire: Wire) -> None:
    @given(METHODS, TARGETS, st.sampled_from([None, b"", b"{}", b"[]", b"x"]))
    def attempt(method: str, target: str, body: bytes | None) -> None:
        if target.startswith("/_kopf") and method != "GET":
            return  # this is not a part of Kubernetes, and has its own answers; some of them are troublesome
        answer = wire.request(method, target, body)
        if method != "HEAD" and answer.status != 200:
            check_refusal(answer)
        elif method == "HEAD":
            assert answer.status < 500 or answer.status == 501

    attempt()


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (f"{CORE}/configmaps/../configmaps", 404),
        (f"{CORE}/%2e%2e/default/configmaps", 404),
        ("//api/v1/pods", 404),
        ("/api//v1/pods", 404),
        ("/api/v1/namespaces/default%2Fpods", 404),
        (f"{CONFIG_MAPS}/one%00", 404),
        (f"{CONFIG_MAPS}/%FF", 404),
        (f"{CONFIG_MAPS}/..%2fone", 404),
        ("/api/v1/namespaces/default/nosuch/one", 404),
        ("/api/v2/namespaces/default/configmaps", 404),
        ("/apis/apps/v1beta1/deployments", 404),
        ("/apis/nosuch/v1", 404),
        (f"{CONFIG_MAPS}/one/status", 404),
        (f"{widgets.PATH}/one/log", 404),
        (f"{CONFIG_MAPS}/" + "x" * 5000, 404),
    ],
)
def test_wrong_paths(target: str, code: int, wire: Wire) -> None:
    answer = wire.request("GET", target)
    assert answer.status == code, answer
    check_refusal(answer)


def test_odd_parameters(wire: Wire) -> None:
    names = st.sampled_from(
        [
            "limit",
            "continue",
            "resourceVersion",
            "resourceVersionMatch",
            "labelSelector",
            "dryRun",
            "fieldSelector",
            "timeoutSeconds",
            "pretty",
            "fieldManager",
            "fieldValidation",
            "force",
            "propagationPolicy",
            "gracePeriodSeconds",
            "nosuch",
            "",
            "%00",
            "allowWatchBookmarks",
        ]
    )
    values = st.text("a1=!,() %&;+-\\\"'./<>\u00e4~0", max_size=12) | st.sampled_from(
        ["0", "1", "-1", "true", "%", "%0"]
    )
    pairs = st.lists(
        st.tuples(names, values.map(lambda text: text.replace(" ", "+").encode("unicode_escape").decode())), max_size=4
    ).map(lambda pairs: "&".join(f"{name}={value}" for name, value in pairs))

    @given(
        st.sampled_from(
            [
                ("GET", CONFIG_MAPS, None),
                ("GET", widgets.PATH, None),
                ("GET", f"{CONFIG_MAPS}/one", None),
                ("POST", CONFIG_MAPS, encode(make_config_map("x"))),
                ("PATCH", f"{widgets.PATH}/one", b"{}"),
                ("DELETE", f"{CONFIG_MAPS}/x", None),
            ]
        ),
        pairs,
    )
    def attempt(request: tuple[str, str, bytes | None], query: str) -> None:
        method, path, body = request
        answer = wire.request(method, f"{path}?{query}", body, MERGE if method == "PATCH" else "application/json")
        if answer.status == 504:  # the only deliberate one, with an advice to retry
            assert answer.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        else:
            check(answer)

    attempt()


def test_json_patches_of_any_form(wire: Wire) -> None:
    pointers = st.sampled_from(
        [
            "",
            "/",
            "/spec",
            "/spec/size",
            "/spec/tags/0",
            "/spec/tags/-",
            "/spec/tags/99",
            "x",
            "/spec/tags/-1",
            "/spec/tags/01",
            "/metadata/name",
            "/metadata",
            "/spec/~",
            "/spec/~2",
            "/metadata/uid",
            "/kind",
            "/spec/size/x",
            "//",
            "/\u00e4",
            5,
            None,
        ]
    )
    values: st.SearchStrategy[Any] = st.sampled_from([None, 0, -1, 1e300, "x", [], {}, [[]], {"a": None}, True, 10**30])
    operations = st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "nosuch", "", None, 5]),
                "path": pointers,
                "from": pointers,
                "value": values,
                "extra": values,
            },
        ),
        max_size=4,
    )

    @given(operations, st.sampled_from([f"{widgets.PATH}/one", f"{CONFIG_MAPS}/one", f"{DEPLOYMENTS}/one"]))
    def attempt(patch: Any, target: str) -> None:
        answer = wire.request("PATCH", target, encode(patch), JSON)
        assert answer.status in (200, 400, 409, 422), (patch, answer)
        check(answer)

    attempt()


def test_strategic_patches_of_any_form(wire: Wire) -> None:
    scalars = st.sampled_from([None, 0, "x", "main", "delete", "replace", "merge", True])
    keys = st.sampled_from(
        [
            "spec",
            "template",
            "containers",
            "ports",
            "name",
            "containerPort",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "finalizers",
            "metadata",
            "labels",
            "env",
            "$setElementOrder/",
            "$nosuch",
            "strategy",
        ]
    )
    patches = st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
    )
    wrappers: list[Callable[[Any], Any]] = [
        lambda patch: patch,
        lambda patch: {"spec": patch},
        lambda patch: {"spec": {"template": {"spec": patch}}},
        lambda patch: {"spec": {"template": {"spec": {"containers": patch}}}},
        lambda patch: {"metadata": patch},
    ]

    @given(patches, st.sampled_from(wrappers))
    def attempt(patch: Any, wrapper: Callable[[Any], Any]) -> None:
        answer = wire.request("PATCH", f"{DEPLOYMENTS}/one", encode(wrapper(patch)), STRATEGIC)
        assert answer.status in (200, 400, 409, 422), (patch, answer)
        check(answer)

    attempt()


def test_objects_of_any_nesting(wire: Wire) -> None:
    for body in (b"[" * 200_000, b'{"a":' * 100_000, b'{"metadata":' * 10_000 + b"1" + b"}" * 10_000):
        for method, target, content_type in (
            ("POST", CONFIG_MAPS, "application/json"),
            ("POST", CONFIG_MAPS, "application/yaml"),
            ("PATCH", f"{widgets.PATH}/one", MERGE),
            ("PATCH", f"{widgets.PATH}/one", JSON),
            ("PATCH", f"{widgets.PATH}/one?fieldManager=x", APPLY),
        ):
            if "yaml" in content_type:
                body = body[:400]  # it is as broken, but YAML is slow
            answer = wire.request(method, target, body, content_type)
            assert answer.status == 400, answer
            check_refusal(answer)


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        ("Bearer \u00e4", 401),
        ("Bearer", 403),
        ("x" * 5000, 403),
        ("", 403),
        ("Basic eDp5", 403),
    ],
)
def test_wrong_credentials(authorization: str, code: int, wire: Wire) -> None:
    answer = wire.request("GET", CONFIG_MAPS, headers={"Authorization": authorization})
    assert answer.status == code
    check_refusal(answer)


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("application/xml", 406),
        ("text/html", 406),
        ("nosuch", 406),
        ("application/cbor", 406),
        ("application/json;as=Nosuch;g=meta.k8s.io;v=v1", 406),
        ("*/*", 200),
        ("", 200),
        (";;;", 406),
        ("text/html, */*;q=0.1", 200),
        ("application/json;q=x", 200),
    ],
)
def test_wanted_forms(accept: str, code: int, wire: Wire) -> None:
    answer = wire.request("GET", CONFIG_MAPS, headers={"Accept": accept})
    assert answer.status == code, answer
    check(answer)
