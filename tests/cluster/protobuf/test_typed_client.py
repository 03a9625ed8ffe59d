"""
Rounds of a typed client whose encoding is protobuf both ways, by messages that Google's library encodes and decodes.
"""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from kopf_cluster import LocalCluster
from kopf_cluster.builtin_kinds import read_kinds
from tests.patience import PATIENCE

from ..conftest import CONFIG_MAPS, CRDS, DEPLOYMENTS, KEXES, PODS, Client, connect, make_definition, make_request
from .samples import decode_object, without_empty
from .typed import ACCEPT, CORE, META, PROTOBUF, Typed, TypedClient, make

APPS = "io.k8s.api.apps.v1"
METADATA = "g=meta.k8s.io;v=v1;as=PartialObjectMetadata"


@pytest.fixture
def typed(client: Client) -> TypedClient:
    return TypedClient(client)


def make_deployment() -> Typed:
    made = make("apps/v1", APPS, "Deployment", name="web", labels={"a": "b"})
    made.message.spec.replicas = 2
    made.message.spec.selector.matchLabels["app"] = "web"
    made.message.spec.template.metadata.labels["app"] = "web"
    container = made.message.spec.template.spec.containers.add(name="c", image="busybox")
    container.ports.add(containerPort=80)
    container.resources.requests["cpu"].string = "100m"
    container.readinessProbe.handler.httpGet.port.type = 1
    container.readinessProbe.handler.httpGet.port.strVal = "http"
    return made


def make_pod(name: str = "one") -> Typed:
    made = make("v1", CORE, "Pod", name=name)
    made.message.spec.containers.add(name="c", image="busybox")
    return made


def make_config_map(name: str, **data: str) -> Typed:
    made = make("v1", CORE, "ConfigMap", name=name)
    made.message.data.update(data)
    return made


async def test_creation_update_status_and_deletion(typed: TypedClient, client: Client) -> None:
    created = await typed.do("POST", DEPLOYMENTS, APPS, make_deployment())
    assert created.message.metadata.uid
    assert created.message.metadata.creationTimestamp.seconds > 1_700_000_000
    container = created.message.spec.template.spec.containers[0]
    assert (container.ports[0].protocol, container.imagePullPolicy) == ("TCP", "Always")
    assert container.resources.requests["cpu"].string == "100m"
    assert container.readinessProbe.handler.httpGet.port.strVal == "http"
    assert created.message.spec.strategy.rollingUpdate.maxSurge.strVal == "25%"

    created.message.spec.replicas = 0
    updated = await typed.do("PUT", f"{DEPLOYMENTS}/web", APPS, created)
    assert (updated.message.spec.replicas, updated.message.metadata.generation) == (0, 2)
    assert (await client.get(f"{DEPLOYMENTS}/web"))["spec"]["replicas"] == 0
    stale = await typed.fail("PUT", f"{DEPLOYMENTS}/web", created)
    assert (stale.reason, stale.details.name) == ("Conflict", "web")

    updated.message.status.observedGeneration = 2
    shown = await typed.do("PUT", f"{DEPLOYMENTS}/web/status", APPS, updated)
    assert shown.message.status.observedGeneration == 2

    listed = await typed.do("GET", DEPLOYMENTS, APPS)
    assert (listed.kind, listed.message.items[0].metadata.name) == ("DeploymentList", "web")
    assert listed.message.metadata.resourceVersion == shown.message.metadata.resourceVersion
    options = make("apps/v1", META, "DeleteOptions")
    options.message.preconditions.uid = "another"
    assert (await typed.fail("DELETE", f"{DEPLOYMENTS}/web", options)).reason == "Conflict"
    options.message.preconditions.uid = shown.message.metadata.uid
    deleted = await typed.do("DELETE", f"{DEPLOYMENTS}/web", APPS, options)
    assert (deleted.kind, deleted.message.status) == ("Status", "Success")
    missing = await typed.fail("GET", f"{DEPLOYMENTS}/web")
    assert (missing.reason, missing.details.kind) == ("NotFound", "deployments")
    assert missing.message == 'deployments.apps "web" not found'


async def test_invalid_objects_are_refused_with_causes(typed: TypedClient) -> None:
    status = await typed.fail("POST", PODS, make("v1", CORE, "Pod", name="one"))
    assert (status.reason, status.details.causes[0].field) == ("Invalid", "spec.containers")


async def test_applied_configurations(typed: TypedClient) -> None:
    def manifest(**data: str) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data}

    headers = {"Content-Type": "application/apply-patch+yaml"}
    query = {"fieldManager": "me", "force": "true"}
    await typed.do("PATCH", f"{CONFIG_MAPS}/one", CORE, json=manifest(a="1", b="2"), headers=headers, params=query)
    applied = await typed.do("PATCH", f"{CONFIG_MAPS}/one", CORE, json=manifest(a="3"), headers=headers, params=query)
    assert dict(applied.message.data) == {"a": "3"}
    [entry] = applied.message.metadata.managedFields
    assert (entry.manager, entry.operation) == ("me", "Apply")
    assert json.loads(entry.fieldsV1.Raw) == {"f:data": {"f:a": {}}}
    applied.message.data["c"] = "4"  # and it is kept through an update by the other encoding
    updated = await typed.do("PUT", f"{CONFIG_MAPS}/one", CORE, applied)
    assert [item.operation for item in updated.message.metadata.managedFields] == ["Apply", "Update"]


async def test_watches(typed: TypedClient, client: Client) -> None:
    first = await typed.do("POST", CONFIG_MAPS, CORE, make_config_map("one"))
    version = first.message.metadata.resourceVersion
    async with asyncio.timeout(PATIENCE), typed.watch(CONFIG_MAPS, ACCEPT, resourceVersion="0") as events:
        type_, shown = await events.next(CORE)
        assert (type_, shown.kind, shown.message.metadata.name) == ("ADDED", "ConfigMap", "one")
        first.message.data["a"] = "b"
        await typed.do("PUT", f"{CONFIG_MAPS}/one", CORE, first)
        type_, shown = await events.next(CORE)
        assert (type_, dict(shown.message.data)) == ("MODIFIED", {"a": "b"})
        await client.delete(f"{CONFIG_MAPS}/one")
        type_, shown = await events.next(CORE)
        assert (type_, shown.message.metadata.name) == ("DELETED", "one")
    marked = {"allowWatchBookmarks": "1", "sendInitialEvents": "1", "resourceVersionMatch": "NotOlderThan"}
    async with asyncio.timeout(PATIENCE), typed.watch(CONFIG_MAPS, **marked) as events:
        type_, shown = await events.next(CORE)
        assert (type_, shown.kind) == ("BOOKMARK", "ConfigMap")
        assert int(shown.message.metadata.resourceVersion) > int(version)
        assert shown.message.metadata.annotations["k8s.io/initial-events-end"] == "true"


async def test_expired_watches(typed: TypedClient, cluster: LocalCluster) -> None:
    created = await typed.do("POST", CONFIG_MAPS, CORE, make_config_map("one"))
    await typed.do("DELETE", f"{CONFIG_MAPS}/one", CORE)
    cluster.faults.compact()
    version = created.message.metadata.resourceVersion
    async with asyncio.timeout(PATIENCE), typed.watch(CONFIG_MAPS, resourceVersion=version) as events:
        type_, status = await events.next(CORE)
        assert (type_, status.kind) == ("ERROR", "Status")
        assert (status.message.code, status.message.reason) == (410, "Expired")


async def test_subresources_and_reviews(typed: TypedClient) -> None:
    scaling, policy = "io.k8s.api.autoscaling.v1", "io.k8s.api.policy.v1"
    authentication, authorization = "io.k8s.api.authentication.v1", "io.k8s.api.authorization.v1"
    await typed.do("POST", DEPLOYMENTS, APPS, make_deployment())
    scale = await typed.do("GET", f"{DEPLOYMENTS}/web/scale", scaling)
    assert (scale.api_version, scale.kind, scale.message.spec.replicas) == ("autoscaling/v1", "Scale", 2)
    scale.message.spec.replicas = 5
    assert (await typed.do("PUT", f"{DEPLOYMENTS}/web/scale", scaling, scale)).message.spec.replicas == 5

    await typed.do("POST", PODS, CORE, make_pod())
    binding = make("v1", CORE, "Binding", name="one")
    binding.message.target.kind, binding.message.target.name = "Node", "n"
    assert (await typed.do("POST", f"{PODS}/one/binding", CORE, binding)).message.status == "Success"
    assert (await typed.do("GET", f"{PODS}/one", CORE)).message.spec.nodeName == "n"
    pod = await typed.do("GET", f"{PODS}/one", CORE)
    extra = pod.message.spec.ephemeralContainers.add().ephemeralContainerCommon
    extra.name, extra.image = "debugger", "busybox"
    pod = await typed.do("PUT", f"{PODS}/one/ephemeralcontainers", CORE, pod)
    [shown] = pod.message.spec.ephemeralContainers
    assert shown.ephemeralContainerCommon.name == "debugger"
    eviction = make("policy/v1", policy, "Eviction", name="one")
    eviction.message.deleteOptions.gracePeriodSeconds = 0
    assert (await typed.do("POST", f"{PODS}/one/eviction", CORE, eviction)).message.status == "Success"

    await typed.do(
        "POST", "/api/v1/namespaces/default/serviceaccounts", CORE, make("v1", CORE, "ServiceAccount", name="sa")
    )
    request = make("authentication.k8s.io/v1", authentication, "TokenRequest")
    request.message.spec.expirationSeconds = 600
    token = await typed.do("POST", "/api/v1/namespaces/default/serviceaccounts/sa/token", authentication, request)
    review = make("authentication.k8s.io/v1", authentication, "TokenReview")
    review.message.spec.token = token.message.status.token
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    reviewed = await typed.do("POST", path, authentication, review)
    assert reviewed.message.status.user.username == "system:serviceaccount:default:sa"
    assert "system:serviceaccounts" in reviewed.message.status.user.groups
    access = make("authorization.k8s.io/v1", authorization, "SelfSubjectAccessReview")
    access.message.spec.resourceAttributes.verb, access.message.spec.resourceAttributes.resource = "get", "pods"
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await typed.do("POST", path, authorization, access)).message.status.allowed is True


async def test_approval_of_certificate_requests(typed: TypedClient) -> None:
    package, path = "io.k8s.api.certificates.v1", "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    request = make("certificates.k8s.io/v1", package, "CertificateSigningRequest", name="one")
    request.message.spec.request = base64.b64decode(make_request())
    request.message.spec.signerName = "example.com/signer"
    request.message.spec.usages.append("client auth")
    created = await typed.do("POST", path, package, request)
    assert created.message.spec.request == request.message.spec.request
    condition = created.message.status.conditions.add(type="Approved", status="True", reason="x", message="y")
    condition.lastUpdateTime.seconds = 1_700_000_000
    approved = await typed.do("PUT", f"{path}/one/approval", package, created)
    [condition] = approved.message.status.conditions
    assert (condition.type, condition.lastUpdateTime.seconds) == ("Approved", 1_700_000_000)


async def test_definitions_and_metadata_of_custom_resources(typed: TypedClient, client: Client) -> None:
    await client.create(
        CRDS,
        make_definition(
            spec={
                "type": "object",
                "properties": {"n": {"default": 3, "maximum": 5, "x-kubernetes-int-or-string": True}},
            }
        ),
    )
    definitions = await client.call("GET", CRDS, headers={"Accept": ACCEPT})
    decoded = decode_object(definitions.body)
    in_json = await client.get(CRDS)
    assert without_empty(decoded["items"]) == without_empty(in_json["items"])
    await client.create(KEXES, {"apiVersion": "example.com/v1", "kind": "Kex", "metadata": {"name": "one"}})
    partial = await typed.do("GET", f"{KEXES}/one", META, headers={"Accept": f"{PROTOBUF};{METADATA}"})
    assert (partial.api_version, partial.kind) == ("meta.k8s.io/v1", "PartialObjectMetadata")
    assert partial.message.metadata.name == "one"
    listed = await typed.do("GET", KEXES, META, headers={"Accept": f"{PROTOBUF};{METADATA}List"})
    assert [item.metadata.name for item in listed.message.items] == ["one"]
    stream = f"{PROTOBUF};stream=watch;{METADATA}"
    async with asyncio.timeout(PATIENCE), typed.watch(KEXES, stream, resourceVersion="0") as events:
        type_, partial = await events.next(META)
        assert (type_, partial.kind, partial.message.metadata.name) == ("ADDED", "PartialObjectMetadata", "one")


async def test_everything_is_the_same_in_both_encodings() -> None:
    """All lists of all kinds, with whatever the control loops of a full cluster have put there."""
    async with LocalCluster(simulate=True) as cluster, connect(cluster) as client:
        typed = TypedClient(client)
        await typed.do("POST", DEPLOYMENTS, APPS, make_deployment())
        await typed.do("POST", PODS, CORE, make_pod())
        compared = 0
        for kind in read_kinds():
            if "list" in kind.verbs:
                prefix = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
                reply = await typed.call("GET", f"{prefix}/{kind.plural}")
                decoded = decode_object(reply.body)
                assert (decoded["apiVersion"], decoded["kind"]) == (kind.api_version, f"{kind.kind}List")
                version = decoded["metadata"]["resourceVersion"]
                exactly = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
                in_json = await client.get(f"{prefix}/{kind.plural}", params=exactly)
                assert without_empty(decoded["items"] or []) == without_empty(in_json["items"])
                compared += len(decoded["items"] or [])
        assert compared > 40
