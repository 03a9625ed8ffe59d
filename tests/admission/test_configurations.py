"""What is in the managed webhook configurations."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.admission.configurations import MUTATING, NAME, OWNER, VALIDATING, Configurations, Tunnel
from tests.admission.reviewing import describe
from tests.behaviour.conftest import make_crd
from tests.behaviour.objects import API, Obj
from tests.behaviour.running import Decorator, Operator

pytestmark = pytest.mark.fastforward

decorators = pytest.mark.parametrize(
    ("decorator", "type"),
    [
        (kopf.on.validate, VALIDATING),
        (kopf.on.mutate, MUTATING),
    ],
)


async def publish(
    operator: Operator,
    configurations: Configurations,
    decorator: Decorator = kopf.on.validate,
    resource: Any = "kopfexamples",
    **options: Any,
) -> Obj:
    """Declare a handler, start the operator, and get the only webhook of it."""

    @decorator(resource, **{"id": "check", **options})
    def check(**_: Any) -> None: ...

    await operator.launch()
    type = MUTATING if decorator is kopf.on.mutate else VALIDATING
    obj = await configurations.wait(lambda obj: obj and obj.get("webhooks"), type)
    assert obj is not None
    (webhook,) = obj["webhooks"]
    return dict(webhook)


@decorators
async def test_defaults(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    decorator: Any,
    type: str,
) -> None:
    webhook = await publish(operator, configurations, decorator)
    webhook.pop("reinvocationPolicy", None)
    assert webhook == {
        "name": f"check.{NAME}",
        "clientConfig": {"url": "https://127.0.0.1:1/root/check", "caBundle": "YWJj"},
        "rules": [
            {
                "apiGroups": ["kopf.dev"],
                "apiVersions": ["v1"],
                "resources": ["kopfexamples"],
                "operations": ["CONNECT", "CREATE", "UPDATE"] if decorator is kopf.on.mutate else ["*"],
                "scope": "*",
            }
        ],
        "objectSelector": {},
        "namespaceSelector": {},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": 30,
        "admissionReviewVersions": ["v1", "v1beta1"],
    }
    assert await configurations.get(MUTATING if type == VALIDATING else VALIDATING) is None


@decorators
@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"side_effects": True}, {"sideEffects": "NoneOnDryRun"}),
        ({"ignore_failures": True}, {"failurePolicy": "Ignore"}),
        (
            {"labels": {"l": "v", "p": kopf.PRESENT, "a": kopf.ABSENT, "c": lambda *_, **__: True}},
            {
                "objectSelector": {
                    "matchExpressions": [
                        {"key": "l", "operator": "In", "values": ["v"]},
                        {"key": "p", "operator": "Exists"},
                        {"key": "a", "operator": "DoesNotExist"},
                    ]
                }
            },
        ),
        (
            {"id": "With_Under/Score..x"},
            {
                "name": f"with-under.score.x.{NAME}",
                "clientConfig": {"url": "https://127.0.0.1:1/root/With_Under/Score..x", "caBundle": "YWJj"},
            },
        ),
        (
            {"id": "_ё_"},
            {
                "name": f"handler.{NAME}",
                "clientConfig": {"url": "https://127.0.0.1:1/root/_%D1%91_", "caBundle": "YWJj"},
            },
        ),
        (
            {"field": "spec.field"},
            {
                "name": f"check.spec.field.{NAME}",
                "clientConfig": {"url": "https://127.0.0.1:1/root/check/spec.field", "caBundle": "YWJj"},
            },
        ),
    ],
    ids=describe,
)
async def test_options(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    decorator: Any,
    type: str,
    options: Any,
    fields: Obj,
) -> None:
    webhook = await publish(operator, configurations, decorator, **options)
    assert {key: webhook[key] for key in fields} == fields


@pytest.mark.parametrize(
    ("options", "operations", "resources"),
    [
        ({"operation": "CREATE"}, ["CREATE"], ["kopfexamples"]),
        ({"operations": ["UPDATE", "CREATE"]}, ["CREATE", "UPDATE"], ["kopfexamples"]),
        ({"subresource": "status"}, ["*"], ["kopfexamples/status"]),
        ({"subresource": "*"}, ["*"], ["kopfexamples/*"]),
    ],
    ids=describe,
)
async def test_rules(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    options: Any,
    operations: list[str],
    resources: list[str],
) -> None:
    webhook = await publish(operator, configurations, **options)
    assert webhook["rules"] == [
        {
            "apiGroups": ["kopf.dev"],
            "apiVersions": ["v1"],
            "resources": resources,
            "operations": operations,
            "scope": "*",
        }
    ]


async def test_many_resources(operator: Operator, configurations: Configurations, tunnel: Tunnel) -> None:
    webhook = await publish(operator, configurations, resource=kopf.EVERYTHING, group="kopf.dev")
    assert webhook["rules"] == [
        {
            "apiGroups": ["kopf.dev"],
            "apiVersions": ["v1"],
            "resources": ["kopfexamples", "kopfstatusexamples"],
            "operations": ["*"],
            "scope": "*",
        }
    ]


async def test_match_conditions(operator: Operator, configurations: Configurations, tunnel: Tunnel) -> None:
    webhook = await publish(operator, configurations, annotations={"a": "v"}, field="spec.field")
    assert [condition["name"] for condition in webhook["matchConditions"]] == ["filter-1", "filter-2"]


async def test_one_webhook_for_each_handler(operator: Operator, configurations: Configurations, tunnel: Tunnel) -> None:
    @kopf.on.validate("kopfexamples", operation="CREATE", id="same")
    @kopf.on.validate("kopfexamples", operation="DELETE", id="same")
    def same(**_: Any) -> None: ...

    @kopf.on.validate("kopfexamples", id="both")
    @kopf.on.mutate("kopfexamples", id="both")
    def both(**_: Any) -> None: ...

    @kopf.on.validate("kopfexamples", id="bo_th")
    @kopf.on.validate("kopfexamples", id="bo-th")
    def similar(**_: Any) -> None: ...

    await operator.launch()
    webhooks = await configurations.wait_webhooks("same", "same-2", "both", "bo-th", "bo-th-2")
    assert [webhook["clientConfig"]["url"].rpartition("/")[2] for webhook in webhooks] == [
        "same",
        "same",
        "both:validating",
        "bo-th",
        "bo_th",
    ]
    webhooks = await configurations.wait_webhooks("both", type=MUTATING)
    assert [webhook["clientConfig"]["url"].rpartition("/")[2] for webhook in webhooks] == ["both:mutating"]


@pytest.mark.parametrize(
    ("client_config", "expected"),
    [
        ({"url": "https://host/"}, {"url": "https://host/check"}),
        ({"url": "https://host:123/a/b", "caBundle": None, "service": None}, {"url": "https://host:123/a/b/check"}),
        (
            {"service": {"namespace": "ns", "name": "svc"}, "caBundle": "YWJj"},
            {"service": {"namespace": "ns", "name": "svc", "path": "/check", "port": 443}, "caBundle": "YWJj"},
        ),
        (
            {"service": {"namespace": "ns", "name": "svc", "path": "/root/", "port": 8443}},
            {"service": {"namespace": "ns", "name": "svc", "path": "/root/check", "port": 8443}},
        ),
    ],
    ids=describe,
)
async def test_client_configs(
    operator: Operator,
    configurations: Configurations,
    client_config: kopf.WebhookClientConfig,
    expected: Obj,
) -> None:
    operator.configure = Tunnel(client_config).configure
    webhook = await publish(operator, configurations)
    actual = webhook["clientConfig"]
    if "service" in expected:
        actual["service"].setdefault("port", 443)  # the default of the API
    assert actual == expected


@pytest.mark.parametrize(
    ("ids", "names", "paths"),
    [
        (["check_duration"], ["check-duration"], ["/check-duration"]),
        (["Check/spec.field", "check"], ["check.spec.field", "check"], ["/check/spec.field", "/check"]),
        (["a_b", "a-b", "a.-_b", "_"], ["a-b", "a-b-2", "a.b", "handler"], ["/a-b-2", "/a-b", "/a.b", "/handler"]),
    ],
    ids=describe,
)
async def test_paths_of_services_are_names_of_dns(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    configurations: Configurations,
    ids: list[str],
    names: list[str],
    paths: list[str],
) -> None:
    """The API servers refuse all others; but not so in URLs."""
    for id in ids:

        @kopf.on.validate("kopfexamples", registry=registry, id=id)
        def check(**_: Any) -> None: ...

    operator.configure = Tunnel({"service": {"namespace": "ns", "name": "svc"}}).configure
    await operator.launch()
    webhooks = await configurations.wait_webhooks(*names)
    assert [webhook["clientConfig"]["service"]["path"] for webhook in webhooks] == paths


@pytest.mark.parametrize("namespaces", [["b", "a"], ["a", "b*"], []], ids=describe)
async def test_namespaces(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    namespaces: list[str],
) -> None:
    @kopf.on.validate("kopfexamples", id="check")
    def check(**_: Any) -> None: ...

    await operator.launch(namespaces=namespaces, clusterwide=not namespaces)
    (webhook,) = await configurations.wait_webhooks("check")
    assert webhook["namespaceSelector"] == {}


async def test_resources_that_appear_later(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    api: API,
) -> None:
    @kopf.on.validate("kopfexamples", id="first")
    @kopf.on.validate("latecomers", id="second")
    def check(**_: Any) -> None: ...

    await operator.launch()
    await configurations.wait_webhooks("first")
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await api.request("POST", path, make_crd("Latecomer", "latecomers", status=False))
    await configurations.wait_webhooks("second", "first")
    await api.request("DELETE", f"{path}/latecomers.kopf.dev")
    await configurations.wait_webhooks("first")


async def test_the_owner_is_noted(operator: Operator, configurations: Configurations, tunnel: Tunnel) -> None:
    await publish(operator, configurations)
    obj = await configurations.get()
    assert obj is not None
    assert obj["metadata"]["annotations"][OWNER]
    assert obj["metadata"]["name"] == NAME
