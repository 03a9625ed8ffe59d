"""
What is empty in Go is not there in JSON: it is left out, and the default comes in its place.
"""

from __future__ import annotations

from typing import Any

import pytest

from kopf_cluster.kinds import resources, structures
from kopf_cluster.kinds.builtin_pruning import prune
from kopf_cluster.kinds.defaults import TABLE
from tests.cluster.conftest import APPLY, CONFIG_MAPS, JSON, MERGE, STRATEGIC, Client, make_config_map, make_kex
from tests.cluster.kinds.strategies import fill_defaults, walk

EMPTY = {"string": "", "boolean": False, "integer": 0, "array": [], "map": {}}


def settle(definition: str, obj: dict[str, Any]) -> Any:
    """Decode as the server does: what is empty is left out, then defaults come."""
    structure = structures.of_definition(f"io.k8s.api.{definition}")
    kept, unknown = prune(obj, structure)
    assert unknown == []
    fill_defaults(kept, structure)
    return kept


@pytest.mark.parametrize("name", TABLE)
def test_the_default_of_each_plain_field_replaces_its_empty_value(name: str) -> None:
    """Pointers in Go can tell an empty value from an absent one; they keep it."""
    structure = structures.of_definition(("io.k8s." if name.startswith("kube-aggregator") else "io.k8s.api.") + name)
    given = {
        field: EMPTY[structure.fields[field].shape] for field in TABLE[name] if structure.fields[field].shape in EMPTY
    }
    kept = dict(prune(given, structure)[0])
    fill_defaults(kept, structure)
    for field, value in given.items():
        assert kept[field] == (value if field in POINTERS.get(name, ()) else TABLE[name][field]), field


_HOOK = ("failurePolicy", "matchPolicy", "timeoutSeconds")
POINTERS = {
    "admissionregistration.v1.MatchResources": ("matchPolicy",),
    "admissionregistration.v1.MutatingAdmissionPolicySpec": ("failurePolicy",),
    "admissionregistration.v1.MutatingWebhook": (*_HOOK, "reinvocationPolicy"),
    "admissionregistration.v1.NamedRuleWithOperations": ("scope",),
    "admissionregistration.v1.RuleWithOperations": ("scope",),
    "admissionregistration.v1.ServiceReference": ("port",),
    "admissionregistration.v1.ValidatingAdmissionPolicySpec": ("failurePolicy",),
    "admissionregistration.v1.ValidatingWebhook": _HOOK,
    "apps.v1.DaemonSetSpec": ("revisionHistoryLimit",),
    "apps.v1.DeploymentSpec": ("replicas", "revisionHistoryLimit", "progressDeadlineSeconds"),
    "apps.v1.ReplicaSetSpec": ("replicas",),
    "apps.v1.StatefulSetSpec": ("replicas", "revisionHistoryLimit"),
    "authentication.v1.TokenRequestSpec": ("expirationSeconds",),
    "autoscaling.v1.HorizontalPodAutoscalerSpec": ("minReplicas",),
    "autoscaling.v2.HorizontalPodAutoscalerSpec": ("minReplicas",),
    "batch.v1.CronJobSpec": ("suspend", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"),
    "core.v1.AzureDiskVolumeSource": ("cachingMode", "kind", "fsType", "readOnly"),
    "core.v1.ConfigMapVolumeSource": ("defaultMode",),
    "core.v1.DownwardAPIVolumeSource": ("defaultMode",),
    "core.v1.GRPCAction": ("service",),
    "core.v1.HostPathVolumeSource": ("type",),
    "core.v1.PersistentVolumeClaimSpec": ("volumeMode",),
    "core.v1.PersistentVolumeSpec": ("volumeMode",),
    "core.v1.PodSpec": ("terminationGracePeriodSeconds",),
    "core.v1.ProjectedVolumeSource": ("defaultMode",),
    "core.v1.ReplicationControllerSpec": ("replicas",),
    "core.v1.SecretVolumeSource": ("defaultMode",),
    "core.v1.ServiceAccountTokenProjection": ("expirationSeconds",),
    "discovery.v1.EndpointPort": ("name", "protocol"),
    "kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference": ("port",),
    "networking.v1.IngressClassParametersReference": ("scope",),
    "networking.v1.NetworkPolicyPort": ("protocol",),
    "scheduling.v1.PriorityClass": ("preemptionPolicy",),
    "storage.v1.CSIDriverSpec": (
        "attachRequired",
        "podInfoOnMount",
        "storageCapacity",
        "requiresRepublish",
        "fsGroupPolicy",
        "seLinuxMount",
    ),
    "storage.v1.StorageClass": ("reclaimPolicy", "volumeBindingMode"),
}


@pytest.mark.parametrize("definition", [one.definition for one in resources.read_resources() if not one.is_preview])
def test_all_structures_know_what_they_leave_out(definition: str) -> None:
    for structure in walk(structures.of_definition(definition)):
        assert structure.omitted <= structure.fields.keys()
        if structure.go_type == "v1.ObjectMeta":
            assert {"name", "labels", "annotations", "finalizers", "generation"} <= structure.omitted


@pytest.mark.parametrize(
    ("definition", "given", "expected"),
    [
        (
            "core.v1.Container",
            {"name": "", "image": "x:1", "imagePullPolicy": "", "args": [], "tty": False},
            {
                "name": "",
                "image": "x:1",
                "imagePullPolicy": "IfNotPresent",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            },
        ),
        (
            "apps.v1.DeploymentStrategy",
            {"type": ""},
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        ),
        (
            "core.v1.ServicePort",
            {"port": 80, "protocol": "", "targetPort": 0, "name": "", "nodePort": 0},
            {"port": 80, "protocol": "TCP", "targetPort": 0},
        ),
        (
            "core.v1.VolumeMount",
            {"name": "v", "mountPath": "/", "subPath": "", "readOnly": False},
            {"name": "v", "mountPath": "/"},
        ),
        (
            "core.v1.PersistentVolumeClaimSpec",
            {"storageClassName": "", "volumeName": "", "accessModes": []},
            {"storageClassName": "", "volumeMode": "Filesystem", "resources": {}},
        ),
        ("rbac.v1.PolicyRule", {"verbs": [], "resources": []}, {"verbs": []}),
        (
            "rbac.v1.RoleRef",
            {"apiGroup": "", "kind": "", "name": ""},
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "", "name": ""},
        ),
        (
            "rbac.v1.Subject",
            {"kind": "User", "name": "x", "apiGroup": ""},
            {"kind": "User", "name": "x", "apiGroup": "rbac.authorization.k8s.io"},
        ),
        (
            "networking.v1.NetworkPolicySpec",
            {"policyTypes": [], "ingress": [], "podSelector": {"matchLabels": {}}},
            {"podSelector": {}, "policyTypes": ["Ingress"]},
        ),
        (
            "flowcontrol.v1.FlowSchemaSpec",
            {"matchingPrecedence": 0, "rules": []},
            {"matchingPrecedence": 1000, "priorityLevelConfiguration": {}},
        ),
    ],
)
def test_what_is_left_out_and_what_is_not(definition: str, given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert settle(definition, given) == expected


async def test_bindings_as_clients_in_go_send_them(client: Client) -> None:
    made = await client.create(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        {
            "metadata": {"name": "one"},
            "roleRef": {"apiGroup": "", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "apiGroup": "", "name": "s", "namespace": "default"}],
        },
    )
    assert made["roleRef"]["apiGroup"] == "rbac.authorization.k8s.io"
    assert made["subjects"] == [{"kind": "ServiceAccount", "name": "s", "namespace": "default"}]


async def test_emptied_fields_go_back_to_their_defaults(client: Client) -> None:
    services = "/api/v1/namespaces/default/services"
    await client.create(
        services,
        {
            "metadata": {"name": "one"},
            "spec": {"type": "", "sessionAffinity": "", "clusterIP": "None", "ports": [{"port": 80, "protocol": ""}]},
        },
    )
    changed = await client.patch(f"{services}/one", {"spec": {"sessionAffinity": "", "selector": {}}}, MERGE)
    assert (changed["spec"]["type"], changed["spec"]["sessionAffinity"]) == ("ClusterIP", "None")
    assert "selector" not in changed["spec"]
    assert changed["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]


async def test_what_is_emptied_is_gone_and_nobody_owns_it(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, make_config_map(data={}, binaryData={}))
    assert made.keys() == {"apiVersion", "kind", "metadata"}
    assert "managedFields" not in made["metadata"]
    assert await client.patch(f"{CONFIG_MAPS}/one", {"data": {}}) == made


@pytest.mark.parametrize("field", ["labels", "annotations"])
async def test_null_in_labels_and_annotations_is_an_empty_text(client: Client, kexes: str, field: str) -> None:
    for path, obj in ((CONFIG_MAPS, make_config_map()), (kexes, make_kex())):
        made = await client.create(path, {**obj, "metadata": {"name": "one", field: {"a": None, "b": "c"}}})
        assert made["metadata"][field] == {"a": "", "b": "c"}
        add = {"op": "add", "path": f"/metadata/{field}/d", "value": None}
        patched = await client.patch(f"{path}/one", [add], JSON)
        assert patched["metadata"][field] == {"a": "", "b": "c", "d": ""}
        replaced = {**patched, "metadata": {**patched["metadata"], field: {"b": None}}}
        reply = await client.call("PUT", f"{path}/one", json=replaced)
        assert (reply.status, reply.body["metadata"][field]) == (200, {"b": ""})
        head = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
        applied = {**head, "metadata": {"name": "two", field: {"a": None}}}
        reply = await client.send_patch(f"{path}/two?fieldManager=me", applied, APPLY)
        assert (reply.status, reply.body["metadata"][field]) == (201, {"a": ""})


async def test_metadata_of_custom_kinds_are_decoded_as_those_of_all_kinds(client: Client, kexes: str) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": "u"}
    given: dict[str, Any] = {
        "generateName": "",
        "labels": {},
        "finalizers": [],
        "creationTimestamp": None,
        "selfLink": "/x",
        "ownerReferences": [{**owner, "controller": None, "blockOwnerDeletion": False, "color": "red"}],
    }
    for path, obj in ((CONFIG_MAPS, make_config_map()), (kexes, make_kex())):
        made = await client.create(path, {**obj, "metadata": {"name": "one", **given}})
        assert made["metadata"]["ownerReferences"] == [{**owner, "blockOwnerDeletion": False}]
        assert not {"generateName", "labels", "finalizers", "selfLink"} & made["metadata"].keys()


async def test_custom_kinds_keep_their_empty_values(client: Client, kexes: str) -> None:
    spec = {"text": "", "list": [], "map": {}, "number": 0, "flag": False, "deep": [{"": ""}]}
    assert (await client.create(kexes, make_kex(spec=spec)))["spec"] == spec
    assert (await client.patch(f"{kexes}/one", {"spec": {"more": {"text": "", "map": {}}}}))["spec"] == {
        **spec,
        "more": {"text": "", "map": {}},
    }
    reply = await client.send_patch(f"{kexes}/two?fieldManager=me", make_kex("two", spec=spec), APPLY)
    assert (reply.status, reply.body["spec"]) == (201, spec)


@pytest.mark.parametrize(
    ("metadata", "status", "why"),
    [
        ({"labels": []}, 400, "cannot unmarshal array into the field "),
        ({"ownerReferences": {}}, 400, "cannot unmarshal object into the field "),
        ({"creationTimestamp": ""}, 400, 'parsing time ""'),
        ({"finalizers": [None]}, 422, "name part must be non-empty"),
        ({"ownerReferences": [None]}, 422, 'metadata.ownerReferences[0].uid: Invalid value: "": must not be empty'),
    ],
)
async def test_metadata_of_wrong_types_are_refused_even_if_empty(
    client: Client,
    kexes: str,
    metadata: dict[str, Any],
    status: int,
    why: str,
) -> None:
    for path, obj in ((CONFIG_MAPS, make_config_map()), (kexes, make_kex())):
        reply = await client.call("POST", path, json={**obj, "metadata": {"name": "one", **metadata}})
        assert (reply.status, why in reply.body["message"]) == (status, True), reply


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        (MERGE, {"spec": {"type": "", "sessionAffinity": "", "selector": {}}}),
        (
            STRATEGIC,
            {"spec": {"type": "", "sessionAffinity": "", "selector": {}, "ports": [{"port": 80, "protocol": ""}]}},
        ),
        (
            APPLY,
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "one", "labels": {}},
                "spec": {"type": "", "sessionAffinity": "", "selector": {}},
            },
        ),
    ],
)
async def test_all_patches_put_defaults_in_the_place_of_empty_values(
    client: Client,
    content_type: str,
    patch: dict[str, Any],
) -> None:
    services = "/api/v1/namespaces/default/services"
    made = await client.create(services, {"metadata": {"name": "one"}, "spec": {"ports": [{"port": 80}]}})
    force = "&force=1" if content_type == APPLY else ""  # against those who have created it
    for _ in range(2):
        reply = await client.send_patch(f"{services}/one?fieldManager=me{force}", patch, content_type)
        assert (reply.status, reply.body["spec"]) == (200, made["spec"])
