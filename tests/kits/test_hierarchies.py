from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from typing import Any

import kubernetes.client
import kubernetes_asyncio.client
import pykube
import pytest

from kopf._kits.hierarchies import (
    adjust_namespace,
    adopt,
    append_owner_reference,
    harmonize_naming,
    label,
    remove_owner_reference,
)
from kopf._values.bodies import Body
from kopf._values.patches import thaw
from kopf._values.references import build_object_reference
from tests.handlers.builders import executing

OWNER = Body(
    {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "metadata": {"name": "owner1", "namespace": "ns1", "uid": "uid1", "labels": {"somelabel": "somevalue"}},
    }
)
OWNER2 = Body(
    {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "metadata": {"name": "owner2", "namespace": "ns1", "uid": "uid2"},
    }
)
CLUSTER_OWNER = Body(
    {
        "apiVersion": "kopf.dev/v1",
        "kind": "ClusterExample",
        "metadata": {"name": "owner3", "uid": "uid3"},
    }
)
REF: dict[str, Any] = {
    "controller": True,
    "blockOwnerDeletion": True,
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "name": "owner1",
    "uid": "uid1",
}


@pytest.fixture
def handler() -> Iterator[None]:
    """As if a handler of the owner is being executed."""
    with executing(OWNER):
        yield


# ------------------------------------------------------------------------------------------------ dicts

LABELS = {"somelabel": "somevalue"}
A, B = {"metadata": {"labels": {"a": "b"}}}, {"metadata": {"labels": {"a": "c"}}}
REF2 = {**REF, "name": "owner2", "uid": "uid2", "controller": False, "blockOwnerDeletion": False}
REF3 = {
    "apiVersion": "kopf.dev/v1",
    "kind": "ClusterExample",
    "name": "owner3",
    "uid": "uid3",
    "controller": True,
    "blockOwnerDeletion": True,
}
OTHER = {"name": "other", "namespace": "other", "labels": {"somelabel": "other"}}
ADOPTED = {"name": "owner1", "namespace": "ns1", "labels": LABELS, "ownerReferences": [REF]}
TEMPLATE: dict[str, Any] = {"spec": {"template": {}}}


def named(**meta: Any) -> dict[str, Any]:
    return {"metadata": meta}


def templated(labels: dict[str, str]) -> dict[str, Any]:
    return {"spec": {"template": named(labels=labels)}}


@pytest.mark.parametrize(
    ("fn", "obj", "args", "options", "expected"),
    [
        (label, {"kind": "X"}, [{"a": "b", "c": "d"}], {}, {"kind": "X", **named(labels={"a": "b", "c": "d"})}),
        (label, {}, [], {}, named(labels=LABELS)),
        (label, {}, [None], {}, named(labels=LABELS)),
        (label, {}, [{}], {}, {}),
        (label, B, [{"a": "b", "d": "e"}], {}, named(labels={"a": "c", "d": "e"})),
        (label, B, [{"a": "b", "d": "e"}], {"forced": True}, named(labels={"a": "b", "d": "e"})),
        (label, {"metadata": None}, [{"a": "b"}], {}, A),
        (label, {"metadata": {"labels": None}}, [{"a": "b"}], {}, A),
        *(
            (label, obj, [{"a": "b"}], {"nested": nested}, expected)
            for nested in (
                "spec.template",
                ["spec.template"],
                [("spec", "template")],
                [["spec", "template"], "spec.unexistent", None],
            )
            for obj, expected in (({"kind": "Job"}, {"kind": "Job", **A}), (TEMPLATE, {**A, **templated({"a": "b"})}))
        ),
        (
            label,
            {"spec": {"claims": [named(name="x"), {}]}},
            [{"a": "b"}],
            {"nested": "spec.claims"},
            {**A, "spec": {"claims": [named(name="x", labels={"a": "b"}), A]}},
        ),
        (harmonize_naming, {}, ["x"], {}, named(generateName="x-")),
        (harmonize_naming, {}, ["x"], {"strict": True}, named(name="x")),
        (harmonize_naming, named(name="a"), ["x"], {}, named(name="a")),
        (harmonize_naming, named(name="a"), ["x"], {"strict": True}, named(name="a")),
        (harmonize_naming, named(name="a"), ["x"], {"forced": True}, named(generateName="x-")),
        (harmonize_naming, named(name="a"), ["x"], {"forced": True, "strict": True}, named(name="x")),
        (harmonize_naming, named(generateName="a-"), ["x"], {}, named(generateName="a-")),
        (harmonize_naming, named(generateName="a-"), ["x"], {"strict": True}, named(generateName="a-")),
        (harmonize_naming, named(generateName="a-"), ["x"], {"forced": True}, named(generateName="x-")),
        (harmonize_naming, named(generateName="a-"), ["x"], {"forced": True, "strict": True}, named(name="x")),
        (harmonize_naming, {}, [], {}, named(generateName="owner1-")),
        (adjust_namespace, {}, ["x"], {}, named(namespace="x")),
        (adjust_namespace, named(namespace=None), ["x"], {}, named(namespace="x")),
        (adjust_namespace, named(namespace="a"), ["x"], {}, named(namespace="a")),
        (adjust_namespace, named(namespace="a"), ["x"], {"forced": True}, named(namespace="x")),
        (adjust_namespace, {}, [], {}, named(namespace="ns1")),
        (append_owner_reference, {}, [], {}, named(ownerReferences=[REF])),
        (append_owner_reference, {}, [OWNER], {}, named(ownerReferences=[REF])),
        (
            append_owner_reference,
            named(ownerReferences=[REF]),
            [OWNER],
            {"controller": False},
            named(ownerReferences=[REF]),
        ),
        (
            append_owner_reference,
            named(ownerReferences=[REF]),
            [OWNER2],
            {"controller": False, "block_owner_deletion": False},
            named(ownerReferences=[REF, REF2]),
        ),
        *(
            (
                append_owner_reference,
                child,
                [CLUSTER_OWNER],
                {},
                {**child, "metadata": {**child.get("metadata", {}), "ownerReferences": [REF3]}},
            )
            for child in [dict[str, Any](), named(namespace="any"), {"kind": "Namespace"}]
        ),
        (remove_owner_reference, {}, [], {}, {}),
        (remove_owner_reference, named(ownerReferences=[REF]), [], {}, named(ownerReferences=[])),
        (remove_owner_reference, named(ownerReferences=[REF2, REF]), [OWNER2], {}, named(ownerReferences=[REF])),
        (remove_owner_reference, named(ownerReferences=[REF]), [OWNER2], {}, named(ownerReferences=[REF])),
        (adopt, named(**OTHER), [], {"strict": True, "forced": True, "nested": "spec.template"}, named(**ADOPTED)),
        (adopt, TEMPLATE, [], {"strict": True, "nested": "spec.template"}, {**named(**ADOPTED), **templated(LABELS)}),
        (
            adopt,
            named(name="x", namespace="ns1", labels={"somelabel": "mine"}),
            [OWNER],
            {},
            named(name="x", namespace="ns1", labels={"somelabel": "mine"}, ownerReferences=[REF]),
        ),
        (
            adopt,
            {"apiVersion": "v1", "kind": "Namespace"},
            [CLUSTER_OWNER],
            {},
            {"apiVersion": "v1", "kind": "Namespace", **named(generateName="owner3-", ownerReferences=[REF3])},
        ),
        (adopt, {}, [dict(CLUSTER_OWNER)], {}, named(generateName="owner3-", ownerReferences=[REF3])),
    ],
)
def test_dicts_and_objects_of_pykube(
    handler: None, fn: Any, obj: dict[str, Any], args: Any, options: Any, expected: dict[str, Any]
) -> None:
    objs = [thaw(obj), thaw(obj)]
    fn(objs, *args, **options)
    fn(single := thaw(obj), *args, **options)
    fn(pod := pykube.Pod(None, thaw(obj)), *args, **options)
    assert [*objs, single, pod.obj] == [expected] * 4


def test_references_to_owners_are_not_shared() -> None:
    objs: list[dict[str, Any]] = [{}, {}]
    append_owner_reference(objs, OWNER)
    assert objs[0]["metadata"]["ownerReferences"][0] is not objs[1]["metadata"]["ownerReferences"][0]


def test_the_former_name_of_forced_still_works_with_a_warning() -> None:
    obj = {"metadata": {"labels": {"a": "old"}}}
    with pytest.warns(DeprecationWarning, match="use forced="):
        label(obj, {"a": "new"}, force=True)
    assert obj == {"metadata": {"labels": {"a": "new"}}}


def test_nested_structures_alone_are_labelled_as_objects() -> None:
    obj: dict[str, Any] = {"kind": "Deployment", "spec": {"template": {}}}
    label(obj["spec"]["template"], {"a": "b"})
    assert obj == {"kind": "Deployment", **templated({"a": "b"})}


def test_nested_scalars_are_an_error() -> None:
    with pytest.raises(TypeError, match="'template' is possible inside of str"):
        label({"spec": "text"}, {"a": "b"}, nested="spec.template")


@pytest.mark.parametrize(("forced", "expected"), [(False, {"namespace": "a"}), (True, {})])
def test_no_namespace_of_a_cluster_scoped_object(forced: bool, expected: dict[str, str]) -> None:
    objs: list[dict[str, Any]] = [{}, {"metadata": {"namespace": "a"}}]
    with executing(CLUSTER_OWNER):
        adjust_namespace(objs, forced=forced)
    assert objs == [{}, {"metadata": expected}]


@pytest.mark.parametrize(
    "child",
    [
        {"kind": "Pod", "metadata": {"name": "child", "namespace": "other"}},
        {"kind": "Namespace", "metadata": {"name": "child"}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "child"}},
    ],
)
@pytest.mark.parametrize("fn", [adopt, append_owner_reference])
def test_namespaced_owners_of_children_out_of_their_namespace(
    fn: Any, child: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    namespace = child["metadata"].get("namespace")
    fn(child, OWNER)
    assert child["metadata"]["ownerReferences"] == [REF]
    assert child["metadata"].get("namespace") == namespace
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    expected = rf"KopfExample 'owner1' in the namespace 'ns1' cannot own {child['kind']} 'child', which is "
    assert record.getMessage().startswith(expected)


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_any_iterables_of_objects(kind: Any) -> None:
    objs: list[dict[str, Any]] = [{}, {}]
    adopt(kind(objs), OWNER)
    for obj in objs:
        assert obj["metadata"].keys() == {"generateName", "namespace", "labels", "ownerReferences"}


# -------------------------------------------------------------------------------------- wrong usage


@pytest.mark.parametrize(
    "fn",
    [
        adopt,
        label,
        harmonize_naming,
        adjust_namespace,
        append_owner_reference,
        remove_owner_reference,
    ],
)
def test_outside_of_handlers_the_owner_is_required(fn: Any) -> None:
    with pytest.raises(LookupError, match=r"No handler is being executed.*kopf.adopt\(obj, owner=body\)"):
        fn({})


def test_threads_of_handlers_do_not_know_the_owner_unless_in_its_context(handler: None) -> None:
    with concurrent.futures.ThreadPoolExecutor() as executor, pytest.raises(LookupError):
        executor.submit(adopt, {}).result()


@pytest.mark.parametrize("obj", ["text", b"bytes", 123, None, object()])
def test_unsupported_objects(obj: Any) -> None:
    with pytest.raises(TypeError, match="is not supported as a Kubernetes object"):
        label(obj, {"a": "b"})
    with pytest.raises(TypeError, match="is not supported as a Kubernetes object"):
        label([obj], {"a": "b"})


def test_read_only_objects() -> None:
    with pytest.raises(TypeError, match=r"Body is read-only .* use the `patch` argument"):
        label(OWNER, {"a": "b"})  # type: ignore[arg-type]  # this is what is tested


# ----------------------------------------------------------------------------- models of other libraries

# Some versions of the libraries are typed, some are not; the tests are for all of them.
clients = pytest.mark.parametrize(
    "client",
    [
        pytest.param(kubernetes.client, id="kubernetes"),
        pytest.param(kubernetes_asyncio.client, id="kubernetes_asyncio"),
    ],
)


def serialize(model: Any) -> Any:
    """Convert to what is sent to the API, as both libraries do (one of them needs an event loop for that)."""
    if isinstance(model, list):
        return [serialize(item) for item in model]
    if isinstance(model, dict):
        return {key: serialize(value) for key, value in model.items()}
    if hasattr(model, "attribute_map"):
        values = {name: getattr(model, attribute) for attribute, name in model.attribute_map.items()}
        return {name: serialize(value) for name, value in values.items() if value is not None}
    return model


def test_the_serialization_of_the_tests_is_the_same_as_of_the_library() -> None:
    client: Any = kubernetes.client
    pod = client.V1Pod(
        metadata=client.V1ObjectMeta(
            labels={"a": "b"}, owner_references=[client.V1OwnerReference(api_version="v1", kind="X", name="x", uid="u")]
        )
    )
    assert serialize(pod) == client.ApiClient(client.Configuration()).sanitize_for_serialization(pod)


@clients
def test_models_of_the_official_clients(handler: None, client: Any) -> None:
    pod = client.V1Pod()
    adopt(pod)
    assert serialize(pod) == {
        "metadata": {
            "generateName": "owner1-",
            "namespace": "ns1",
            "labels": {"somelabel": "somevalue"},
            "ownerReferences": [REF],
        }
    }


@clients
def test_models_are_the_same_as_dicts_in_all_operations(client: Any) -> None:
    def make_model() -> Any:
        template = client.V1PodTemplateSpec()
        selector = client.V1LabelSelector()
        return client.V1Deployment(
            api_version="apps/v1",
            kind="Deployment",
            metadata=client.V1ObjectMeta(name="n", labels={"a": "b"}),
            spec=client.V1DeploymentSpec(selector=selector, template=template),
        )

    def transform(obj: Any) -> None:
        harmonize_naming(obj, "x", forced=True)
        adjust_namespace(obj, "ns1")
        label(obj, {"a": "c", "d": "e"}, forced=True, nested="spec.template")
        append_owner_reference(obj, OWNER)
        append_owner_reference(obj, OWNER)
        append_owner_reference(obj, OWNER2, controller=None)
        remove_owner_reference(obj, OWNER)

    plain, model = serialize(make_model()), make_model()
    transform(plain)
    transform(model)
    assert serialize(model) == plain
    assert plain["spec"]["template"]["metadata"]["labels"] == {"a": "c", "d": "e"}


@clients
def test_models_in_the_nested_names_of_the_api(client: Any) -> None:
    job = client.V1JobTemplateSpec(spec=client.V1JobSpec(template=client.V1PodTemplateSpec()))
    cron = client.V1CronJob(spec=client.V1CronJobSpec(schedule="* * * * *", job_template=job))
    label(cron, {"a": "b"}, nested=["spec.jobTemplate", "spec.jobTemplate.spec.template"])
    for meta in (cron.metadata, job.metadata, job.spec.template.metadata):
        assert meta.labels == {"a": "b"}


@clients
def test_derived_models(client: Any) -> None:
    class MyPod(client.V1Pod):  # type: ignore[misc]  # made at runtime
        pass

    pod = MyPod()
    adopt([pod], OWNER)
    assert pod.metadata.owner_references[0].uid == "uid1"


@clients
def test_references_to_models_as_dicts(client: Any) -> None:
    """As they are passed to the functions that post events."""
    meta = client.V1ObjectMeta(name="pod1", namespace="ns1", uid="uid1")
    pod = client.V1Pod(api_version="v1", kind="Pod", metadata=meta)
    assert build_object_reference(pod.to_dict()) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "pod1",
        "namespace": "ns1",
        "uid": "uid1",
    }


@clients
def test_models_that_are_not_objects(client: Any) -> None:
    with pytest.raises(TypeError, match="V1Container has no field 'metadata'"):
        label(client.V1Container(name="x"), {"a": "b"})


@clients
def test_nested_models_in_lists(client: Any) -> None:
    spec = client.V1StatefulSetSpec(
        service_name="x",
        selector=client.V1LabelSelector(),
        template=client.V1PodTemplateSpec(),
        volume_claim_templates=[client.V1PersistentVolumeClaim(), client.V1PersistentVolumeClaim()],
    )
    stateful_set = client.V1StatefulSet(spec=spec)
    label(stateful_set, {"a": "b"}, nested=["spec.volumeClaimTemplates", "spec.template"])
    for obj in [*spec.volume_claim_templates, spec.template, stateful_set]:
        assert obj.metadata.labels == {"a": "b"}


def test_mixed_collections(handler: None) -> None:
    pod: Any = pykube.objects.Pod(None, {})
    objs: list[Any] = [{}, kubernetes.client.V1Pod(), kubernetes_asyncio.client.V1Pod(), pod]
    adopt(objs, strict=True)
    expected = {"name": "owner1", "namespace": "ns1", "labels": {"somelabel": "somevalue"}, "ownerReferences": [REF]}
    assert [obj["metadata"] for obj in [objs[0], serialize(objs[1]), serialize(objs[2]), pod.obj]] == [expected] * 4


# --- pykube-ng: the objects keep their content as dicts ---


class CustomObject(pykube.objects.NamespacedAPIObject):  # type: ignore[misc]  # the library is not typed
    """A custom resource, as users define it."""

    version = "kopf.dev/v1"
    endpoint = "kopfexamples"
    kind = "KopfExample"


@pytest.mark.parametrize(
    "cls",
    [
        pykube.Pod,
        pykube.Deployment,
        pykube.Job,
        CustomObject,
        pykube.objects.APIObject,
    ],
    ids=lambda cls: cls.__name__,
)
def test_objects_of_pykube(cls: Any) -> None:
    first, second = cls(None, {}), cls(None, {"spec": {"template": {}}})
    adopt([first, second], OWNER, nested="spec.template", strict=True)
    assert first.obj == {
        "metadata": {
            "name": "owner1",
            "namespace": "ns1",
            "labels": {"somelabel": "somevalue"},
            "ownerReferences": [REF],
        }
    }
    assert second.obj["spec"]["template"]["metadata"]["labels"] == {"somelabel": "somevalue"}
    assert first.name == "owner1"
    assert first.labels == {"somelabel": "somevalue"}
