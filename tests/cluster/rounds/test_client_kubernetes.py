"""The official client against the local cluster: what an operator or a script does with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import kubernetes
import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError

from kopf.testing import LocalCluster
from tests.cluster.conftest import JSON, MERGE, STRATEGIC
from tests.cluster.rounds.widgets import (
    API_VERSION,
    GROUP,
    KIND,
    PLURAL,
    VERSION,
    make_config_map,
    make_deployment,
    make_widget,
)

WHERE = (GROUP, VERSION, "default", PLURAL)


@pytest.fixture
def api(cluster: LocalCluster) -> Iterator[Any]:
    connect: Any = kubernetes.config.new_client_from_config
    with connect(config_file=str(cluster.kubeconfig)) as api:
        yield api
        api.rest_client.pool_manager.clear()


def make_watch() -> Any:
    factory: Any = kubernetes.watch.Watch
    return factory()


def refusal(error: pytest.ExceptionInfo[ApiException]) -> tuple[Any, str, Any]:
    body = json.loads(str(error.value.body))
    return error.value.status, body["reason"], body.get("details", {})


def test_custom_resources(api: Any) -> None:
    customs: Any = kubernetes.client.CustomObjectsApi(api)
    for index in range(5):
        labels = {"parity": "odd" if index % 2 else "even"}
        made = customs.create_namespaced_custom_object(*WHERE, make_widget(f"w{index}", labels=labels))
        assert made["spec"] == {"size": 1}
        assert made["metadata"]["generation"] == 1

    names, token = [], None
    while token != "":
        page = customs.list_namespaced_custom_object(*WHERE, limit=2, _continue=token or "")
        assert len(page["items"]) <= 2
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
    assert names == ["w0", "w1", "w2", "w3", "w4"]
    odd = customs.list_namespaced_custom_object(*WHERE, label_selector="parity=odd")
    assert [item["metadata"]["name"] for item in odd["items"]] == ["w1", "w3"]

    patched = customs.patch_namespaced_custom_object(*WHERE, "w0", {"spec": {"color": "red"}}, _content_type=MERGE)
    assert patched["spec"] == {"size": 1, "color": "red"}
    operations = [{"op": "test", "path": "/spec/color", "value": "red"}, {"op": "remove", "path": "/spec/color"}]
    patched = customs.patch_namespaced_custom_object(*WHERE, "w0", operations, _content_type=JSON)
    assert patched["spec"] == {"size": 1}
    assert patched["metadata"]["generation"] == 3

    patched = customs.patch_namespaced_custom_object_status(
        *WHERE, "w0", {"spec": {"size": 9}, "status": {"phase": "Done"}}, _content_type=MERGE
    )
    assert (patched["spec"], patched["status"]) == ({"size": 1}, {"phase": "Done"})
    assert patched["metadata"]["generation"] == 3
    assert customs.get_namespaced_custom_object_status(*WHERE, "w0")["status"] == {"phase": "Done"}
    patched["spec"]["size"] = 5
    replaced = customs.replace_namespaced_custom_object(*WHERE, "w0", patched)
    assert (replaced["spec"], replaced["status"]) == ({"size": 5}, {"phase": "Done"})

    assert customs.delete_namespaced_custom_object(*WHERE, "w0")["status"] == "Success"
    gone = customs.delete_collection_namespaced_custom_object(*WHERE, label_selector="parity=odd")
    assert [item["metadata"]["name"] for item in gone["items"]] == ["w1", "w3"]
    left = customs.list_cluster_custom_object(GROUP, VERSION, PLURAL)
    assert [item["metadata"]["name"] for item in left["items"]] == ["w2", "w4"]


def test_watching(api: Any) -> None:
    customs: Any = kubernetes.client.CustomObjectsApi(api)
    version = customs.list_namespaced_custom_object(*WHERE)["metadata"]["resourceVersion"]
    customs.create_namespaced_custom_object(*WHERE, make_widget("one"))
    customs.patch_namespaced_custom_object(*WHERE, "one", {"spec": {"size": 2}}, _content_type=MERGE)
    customs.delete_namespaced_custom_object(*WHERE, "one")
    watch = make_watch()
    events = []
    for event in watch.stream(customs.list_namespaced_custom_object, *WHERE, resource_version=version):
        events.append((event["type"], event["object"]["spec"]["size"]))
        if event["type"] == "DELETED":
            watch.stop()
    assert events == [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 2)]


def test_watches_of_expired_versions(api: Any, cluster: LocalCluster) -> None:
    core: Any = kubernetes.client.CoreV1Api(api)
    version = core.list_namespaced_config_map("default").metadata.resource_version
    core.create_namespaced_config_map("default", make_config_map("one"))
    cluster.faults.compact()
    with pytest.raises(ApiException) as error:
        next(
            iter(
                make_watch().stream(
                    core.list_namespaced_config_map, "default", resource_version=version, allow_watch_bookmarks=True
                )
            )
        )
    assert error.value.status == 410


def test_what_is_deleted_is_of_the_type_that_the_client_expects(api: Any) -> None:
    core: Any = kubernetes.client.CoreV1Api(api)
    metadata = {"metadata": {"name": "one"}}
    pod = {"containers": [{"name": "main", "image": "main"}]}
    core.create_namespaced_pod("default", {**metadata, "spec": pod})
    core.create_namespaced_pod_template("default", {**metadata, "template": {"spec": pod}})
    core.create_namespaced_service("default", {**metadata, "spec": {"ports": [{"port": 80}]}})
    core.create_namespaced_service_account("default", metadata)
    core.create_namespaced_resource_quota("default", {**metadata, "spec": {"hard": {"pods": "1"}}})
    for plural in ("pod", "pod_template", "service", "service_account", "resource_quota"):
        assert getattr(core, f"delete_namespaced_{plural}")("one", "default").metadata.name == "one"


def test_builtin_kinds(api: Any) -> None:
    core: Any = kubernetes.client.CoreV1Api(api)
    apps: Any = kubernetes.client.AppsV1Api(api)
    body = kubernetes.client.V1ConfigMap(metadata=kubernetes.client.V1ObjectMeta(generate_name="gen-"), data={"a": "1"})
    made = core.create_namespaced_config_map("default", body)
    assert made.metadata.name.startswith("gen-")
    assert made.metadata.creation_timestamp is not None
    made.data["b"] = "2"
    replaced = core.replace_namespaced_config_map(made.metadata.name, "default", made)
    assert replaced.data == {"a": "1", "b": "2"}

    deployment = apps.create_namespaced_deployment("default", make_deployment("web", "main"))
    assert deployment.spec.strategy.rolling_update.max_surge == "25%"
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "main:2"}]}}}}
    patched = apps.patch_namespaced_deployment("web", "default", patch, _content_type=STRATEGIC)
    (container,) = patched.spec.template.spec.containers
    assert (container.image, container.termination_message_path) == ("main:2", "/dev/termination-log")
    status = {"status": {"replicas": 1, "observedGeneration": 2}}
    assert apps.patch_namespaced_deployment_status("web", "default", status).status.replicas == 1
    scale = apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 3}})
    assert (scale.kind, scale.spec.replicas, scale.status.selector) == ("Scale", 3, "app=web")
    assert apps.read_namespaced_deployment("web", "default").spec.replicas == 3

    options = kubernetes.client.V1DeleteOptions(propagation_policy="Background")
    apps.delete_namespaced_deployment("web", "default", body=options)
    assert apps.list_namespaced_deployment("default").items == []


def test_errors(api: Any) -> None:
    customs: Any = kubernetes.client.CustomObjectsApi(api)
    with pytest.raises(ApiException) as error:
        customs.get_namespaced_custom_object(*WHERE, "nosuch")
    assert refusal(error) == (404, "NotFound", {"name": "nosuch", "group": GROUP, "kind": PLURAL})
    with pytest.raises(ApiException) as error:
        customs.create_namespaced_custom_object(*WHERE, make_widget("two", size=99, color="pink"))
    code, reason, details = refusal(error)
    assert (code, reason, details["kind"]) == (422, "Invalid", KIND)
    assert {(cause["field"], cause["reason"]) for cause in details["causes"]} == {
        ("spec.color", "FieldValueNotSupported"),
        ("spec.size", "FieldValueInvalid"),
    }


def test_the_dynamic_client(api: Any) -> None:
    dynamic: Any = DynamicClient
    resource = dynamic(api).resources.get(api_version=API_VERSION, kind=KIND)
    applied = resource.server_side_apply(
        body=make_widget("one", tags=["a"]), name="one", namespace="default", field_manager="first"
    )
    assert applied.spec.to_dict() == {"size": 1, "tags": ["a"]}
    applied = resource.server_side_apply(
        body=make_widget("one", tags=["b"], size=3), name="one", namespace="default", field_manager="second"
    )
    assert applied.spec.to_dict() == {"size": 3, "tags": ["a", "b"]}
    with pytest.raises(ConflictError) as error:
        resource.server_side_apply(
            body=make_widget("one", size=4), name="one", namespace="default", field_manager="first"
        )
    assert [cause["field"] for cause in json.loads(str(error.value.body))["details"]["causes"]] == [".spec.size"]
    applied = resource.server_side_apply(
        body=make_widget("one", size=4), name="one", namespace="default", field_manager="first", force_conflicts=True
    )
    assert applied.spec.to_dict() == {"size": 4, "tags": ["b"]}
    assert [item.metadata.name for item in resource.get(namespace="default").items] == ["one"]


def test_access(api: Any) -> None:
    core: Any = kubernetes.client.CoreV1Api(api)
    auth: Any = kubernetes.client.AuthorizationV1Api(api)
    core.create_namespaced_service_account("default", {"metadata": {"name": "robot"}})
    request = kubernetes.client.AuthenticationV1TokenRequest(
        spec=kubernetes.client.V1TokenRequestSpec(audiences=["https://kubernetes.default.svc.cluster.local"])
    )
    assert core.create_namespaced_service_account_token("robot", "default", request).status.token
    attributes = kubernetes.client.V1ResourceAttributes(verb="list", resource="pods", namespace="default")
    review = kubernetes.client.V1SelfSubjectAccessReview(
        spec=kubernetes.client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
    )
    assert auth.create_self_subject_access_review(review).status.allowed is True
    assert kubernetes.client.VersionApi(api).get_code().minor == "36"
