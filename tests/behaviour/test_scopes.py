"""Scopes: which namespaces the operator serves, and objects of no namespace."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.behaviour.conftest import make_crd
from tests.behaviour.objects import API, MERGE_PATCH, Obj, get_annotations, is_handled
from tests.behaviour.resources import create_in, define_namespaces
from tests.behaviour.running import Calls, Operator

NAMESPACES = ("default", "ns1", "ns2")


@pytest.fixture(autouse=True)
def _handlers(operator: Operator, calls: Calls) -> None:
    define_namespaces(operator.cluster, *NAMESPACES)
    fn = calls.noting(lambda namespace, reason, **_: (namespace, reason.value))
    kopf.on.delete("kopfexamples")(fn)
    kopf.on.create("kopfexamples")(fn)


def get_path(namespace: str) -> str:
    return f"/apis/kopf.dev/v1/namespaces/{namespace}/kopfexamples/obj"


@pytest.mark.parametrize(
    ("options", "served"),
    [
        ({"clusterwide": True}, {"default", "ns1", "ns2"}),
        ({"clusterwide": False, "namespaces": ["ns1"]}, {"ns1"}),
        ({"clusterwide": False, "namespace": "ns1"}, {"ns1"}),
        ({"clusterwide": False, "namespaces": ["ns1", "ns2"]}, {"ns1", "ns2"}),
    ],
    ids=["clusterwide", "list", "single", "several"],
)
async def test_only_the_served_namespaces_are_touched(
    operator: Operator,
    api: API,
    calls: Calls,
    options: dict[str, Any],
    served: set[str],
) -> None:
    await operator.start(**options)
    for namespace in NAMESPACES:
        await create_in(api, namespace)
    await calls.wait_length(len(served))
    for namespace in served:
        await api.request("PATCH", get_path(namespace), {"metadata": {"labels": {"l": "v"}}}, MERGE_PATCH)
        await api.request("DELETE", get_path(namespace))
    await calls.wait_length(2 * len(served))
    await operator.stop()
    assert sorted(calls) == sorted((namespace, reason) for namespace in served for reason in ("create", "delete"))
    for namespace in set(NAMESPACES) - served:
        obj = await api.request("GET", get_path(namespace))
        assert not get_annotations(obj)
        assert not obj["metadata"].get("finalizers")


async def test_both_clusterwide_and_namespaces_are_refused(operator: Operator) -> None:
    await operator.launch(clusterwide=True, namespaces=["ns1"])
    with pytest.raises(ValueError, match="cluster-wide"):
        await operator.wait()


@pytest.mark.parametrize("options", [{"clusterwide": True}, {"clusterwide": False, "namespaces": ["ns1"]}], ids=str)
async def test_objects_of_no_namespace(operator: Operator, api: API, calls: Calls, options: dict[str, Any]) -> None:
    """They are served by all operators; Kubernetes events about them go to the default namespace."""
    crd = make_crd("ClusterExample", "clusterexamples", status=True)
    crd["spec"]["scope"] = "Cluster"
    operator.cluster.apply(crd)

    @kopf.on.create("clusterexamples", id="create_fn")
    async def create_fn(namespace: str | None, name: str, body: kopf.Body, **_: Any) -> str:
        calls.append((namespace, name))
        kopf.info(body, reason="Explicit", message="m")
        return "done"

    operator.set("posting.enabled", True)
    await operator.start(watching=("clusterexamples",), **options)
    path = "/apis/kopf.dev/v1/clusterexamples"
    await api.request(
        "POST",
        path,
        {
            "apiVersion": "kopf.dev/v1",
            "kind": "ClusterExample",
            "metadata": {"name": "global"},
            "spec": {"field": "value"},
        },
    )
    await calls.wait_length(1)
    await operator.stop()
    assert calls == [(None, "global")]
    obj: Obj = await api.request("GET", f"{path}/global")
    assert is_handled(obj)
    assert obj["status"] == {"create_fn": "done"}
    (event,) = [event for event in await api.list_events() if event["reason"] == "Explicit"]
    assert event["involvedObject"]["name"] == "global"
