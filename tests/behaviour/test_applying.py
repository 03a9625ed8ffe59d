"""Applying: children are made what they are to be, by any handler, with no write when nothing changes."""

from __future__ import annotations

import asyncio
from typing import Any

import kubernetes.client
import pytest

import kopf
from kopf._logging.tracebacks import format_traceback
from tests.behaviour.conftest import make_crd
from tests.behaviour.objects import API, MERGE_PATCH, Obj, Objects
from tests.behaviour.running import Calls, Logs, Operator, do_nothing, now

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]

LARGE = {"field": "x" * 2_000_000}
PATH = "/apis/apps/v1/namespaces/default/deployments"


def make_deployment(name: str, *, replicas: int | None = 1, cpu: str = "1000m") -> Obj:
    """Its quantity is written in a form that the server does not keep."""
    container = {"name": "main", "image": "image", "resources": {"limits": {"cpu": cpu}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec: Obj = {"selector": {"matchLabels": {"app": name}}, "template": template}
    spec |= {} if replicas is None else {"replicas": replicas}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


async def test_children_are_created_changed_and_restored(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    api: API,
) -> None:
    """Each change of the child by others is mended once; what others have set is left to them."""

    @kopf.on.create("kopfexamples", owns="deployments")
    @kopf.on.update("kopfexamples", owns="deployments")
    async def fn(name: str, spec: Any, **_: Any) -> None:
        child = await kopf.apply(make_deployment(name, replicas=spec["replicas"]))
        calls.append(child.spec["replicas"])

    await operator.start(watching=("kopfexamples", "deployments"))
    parent = await kex.create_and_wait("web", spec={"replicas": 1})
    child = await api.request("GET", f"{PATH}/web")
    assert [ref["uid"] for ref in child["metadata"]["ownerReferences"]] == [parent["metadata"]["uid"]]
    await asyncio.sleep(10)
    assert len(calls) == 1, "the own write is no reason to be called again"
    await kex.change_and_wait("web", replicas=2)
    await asyncio.sleep(10)
    assert (await api.request("GET", f"{PATH}/web"))["spec"]["replicas"] == 2
    count = len(calls)
    edited = await api.request("PATCH", f"{PATH}/web", {"metadata": {"labels": {"x": "y"}}}, MERGE_PATCH)
    await calls.wait_length(count + 1)
    await asyncio.sleep(10)
    child = await api.request("GET", f"{PATH}/web")
    assert child == edited, "what is not given, is left alone, and nothing is written"

    await api.request("DELETE", f"{PATH}/web")
    await asyncio.sleep(10)
    assert (await api.request("GET", f"{PATH}/web"))["metadata"]["uid"] != child["metadata"]["uid"]
    await operator.stop()
    version = (await api.request("GET", f"{PATH}/web"))["metadata"]["resourceVersion"]
    count = len(calls)
    await operator.start(watching=("kopfexamples", "deployments"))
    await calls.wait_length(count + 1)
    await asyncio.sleep(10)
    assert (await api.request("GET", f"{PATH}/web"))["metadata"]["resourceVersion"] == version
    assert len(calls) == count + 1


async def test_fields_that_are_not_given_anymore_are_removed(operator: Operator, kex: Objects, api: API) -> None:
    @kopf.on.create("kopfexamples", owns="configmaps")
    @kopf.on.update("kopfexamples", owns="configmaps")
    async def fn(name: str, spec: Any, **_: Any) -> None:
        await kopf.apply({"apiVersion": "v1", "kind": "ConfigMap", "data": dict(spec["data"])})

    path = "/api/v1/namespaces/default/configmaps/obj"
    await operator.start(watching=("kopfexamples", "configmaps"))
    await kex.create_and_wait(spec={"data": {"a": "1", "b": "2"}})
    await api.request("PATCH", path, {"data": {"c": "3"}}, MERGE_PATCH)
    await kex.merge({"spec": {"data": {"b": None}}})
    await asyncio.sleep(10)
    assert (await api.request("GET", path))["data"] == {"a": "1", "c": "3"}


async def test_texts_of_secrets_are_restored_and_removed(operator: Operator, kex: Objects, api: API) -> None:
    """The server keeps them as ``data``: what is given as ``stringData``, is compared and owned there."""

    @kopf.on.create("kopfexamples", owns="secrets")
    @kopf.on.update("kopfexamples", owns="secrets")
    async def fn(spec: Any, **_: Any) -> None:
        secret = {"apiVersion": "v1", "kind": "Secret", "stringData": dict(spec["texts"]), "data": {"raw": "AA=="}}
        await kopf.apply(secret, force=True)

    path = "/api/v1/namespaces/default/secrets/obj"
    await operator.start(watching=("kopfexamples", "secrets"))
    await kex.create_and_wait(spec={"texts": {"a": "1", "b": "2"}})
    await api.request("PATCH", path, {"data": {"a": "c3RvbGVu", "mine": "AA=="}}, MERGE_PATCH)
    await asyncio.sleep(10)
    assert (await api.request("GET", path))["data"] == {"a": "MQ==", "b": "Mg==", "raw": "AA==", "mine": "AA=="}
    await kex.merge({"spec": {"texts": {"b": None}}})
    await asyncio.sleep(10)
    assert (await api.request("GET", path))["data"] == {"a": "MQ==", "raw": "AA==", "mine": "AA=="}


async def test_conflicts_are_named(operator: Operator, kex: Objects, api: API, calls: Calls, logs: Logs) -> None:
    @kopf.on.create("kopfexamples", backoff=1000)
    async def fn(retry: int, **_: Any) -> None:
        try:
            await kopf.apply(make_deployment("web", replicas=3), force=retry > 0)
        except kopf.ApplyConflictError as e:
            calls.append((str(e), e.conflicts))
            raise

    await api.request("POST", f"{PATH}?fieldManager=someone", make_deployment("web", replicas=5))
    await operator.start_and_handle(kex)
    text, conflicts = calls[0]
    assert conflicts[".spec.replicas"] == "someone"
    assert "Deployment default/web is not applied: .spec.replicas is managed by 'someone'" in text
    assert (await logs.wait(".*is not applied.*")).exc_info, "it shows the line of the handler"
    assert (await api.request("GET", f"{PATH}/web"))["spec"]["replicas"] == 3


async def test_synchronous_handlers_and_models(operator: Operator, kex: Objects, api: API, calls: Calls) -> None:
    @kopf.on.create("kopfexamples")
    def fn(**_: Any) -> None:
        meta = kubernetes.client.V1ObjectMeta(name="cm")
        child = kubernetes.client.V1ConfigMap(
            api_version="v1",
            kind="ConfigMap",
            metadata=meta,
            data={"key": "value"},
            binary_data=None,
        )
        calls.append(kopf.apply(child)["data"])
        assert meta.owner_references is None

    await operator.start_and_handle(kex)
    assert calls == [{"key": "value"}]
    stored = await api.request("GET", "/api/v1/namespaces/default/configmaps/cm")
    assert stored["metadata"]["ownerReferences"]


IMPOSSIBLE: dict[str, tuple[Any, str]] = {
    "kind": ({"apiVersion": "v1", "kind": "Unknown"}, "The cluster has no 'Unknown' in 'v1'"),
    "version": ({"kind": "Pod"}, "The cluster has no 'Pod' in ''"),
    "type": ({"apiVersion": "v1", "kind": "ConfigMap", "data": 5}, "400 BadRequest"),
    "text": ("text", "str is not supported as a Kubernetes object"),
    "field": (
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {"unknown": 1}},
        "500 .*: failed to create typed patch object .*unknown: field not declared in schema",
    ),
    "size": (
        {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "x"}, "spec": LARGE},
        "500 .*: etcdserver: request is too large",
    ),
}


async def test_impossible_children(operator: Operator, kex: Objects, logs: Logs) -> None:
    """Nothing is repeated, even if the status of the refusal is 500."""

    @kopf.on.create("kopfexamples", errors=kopf.ErrorsMode.PERMANENT)
    async def fn(name: str, **_: Any) -> None:
        await kopf.apply(IMPOSSIBLE[name][0])

    await operator.start()
    await kex.create_all(IMPOSSIBLE)
    for name, (_child, error) in IMPOSSIBLE.items():
        await logs.wait(f".*({error}).*", name=name)
    assert not logs.find(".*will be repeated.*")


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_refusals_by_rules_of_schemas_are_told_in_one_line(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    is_async: bool,
) -> None:
    crd = make_crd("RuledExample", "ruledexamples")
    rule = {"rule": "self.size < 10", "message": "it is too big"}
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}, "x-kubernetes-validations": [rule]}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"spec": spec}}
    operator.cluster.apply(crd)
    child = {"apiVersion": "kopf.dev/v1", "kind": "RuledExample", "spec": {"size": 11}}

    def sync_fn(**_: Any) -> None:
        kopf.apply(child)

    async def async_fn(**_: Any) -> None:
        await kopf.apply(child)

    kopf.on.create("kopfexamples", id="fn")(async_fn if is_async else sync_fn)
    await operator.start_and_create(kex)
    record = await logs.wait("Handler 'fn' failed with an exception and will try again.*it is too big.*")
    assert record.exc_info
    assert "kopf.apply(child)" in format_traceback(record.exc_info, trimming=True)


async def test_objects_of_nobody(operator: Operator, kex: Objects, api: API) -> None:
    @kopf.on.create("kopfexamples")
    async def fn(**_: Any) -> None:
        await kopf.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}, is_owned=False)

    await operator.start_and_handle(kex)
    metadata = (await api.request("GET", "/api/v1/namespaces/new"))["metadata"]
    assert "ownerReferences" not in metadata
    assert "labels" not in metadata or "namespace" not in metadata


async def test_names_cannot_be_random(operator: Operator, kex: Objects, logs: Logs) -> None:
    @kopf.on.create("kopfexamples", errors=kopf.ErrorsMode.PERMANENT)
    async def fn(**_: Any) -> None:
        await kopf.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}})

    await operator.start_and_create(kex)
    await logs.wait(".*has no name: give it one.*")


def make_maker(calls: Calls, is_async: bool) -> Any:
    """Make a handler of the operator itself, which applies an object without an owner."""
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"}}

    def fn(**_: Any) -> None:
        calls.append(kopf.apply(settings, is_owned=False).metadata.name)

    async def async_fn(**_: Any) -> None:
        calls.append((await kopf.apply(settings, is_owned=False)).metadata.name)

    return async_fn if is_async else fn


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_before_the_login(operator: Operator, calls: Calls, is_async: bool) -> None:
    """It is an error after a while: otherwise, the handler would wait for the login, and the login for the handler."""
    operator.registry = kopf.OperatorRegistry()
    kopf.on.startup(registry=operator.registry, errors=kopf.ErrorsMode.PERMANENT)(make_maker(calls, is_async))
    await operator.launch_in_vain(kopf.OperatorError, "the operator logs in after its startup handlers")
    assert not len(calls)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
async def test_during_logins(operator: Operator, calls: Calls, logs: Logs, again: bool, is_async: bool) -> None:
    """It is an error at once, for a similar reason: in the first login, and in the next one."""
    fn = make_maker(calls, is_async)

    def login(**kwargs: Any) -> Any:
        is_due = again is bool(logs.find("Re-authentication has been initiated."))
        return fn() if is_due else kopf.login_with_kubeconfig(**kwargs)

    logs.expected.append("Login handlers cannot make requests")
    operator.registry = kopf.OperatorRegistry()
    kopf.on.event("kopfexamples", registry=operator.registry)(do_nothing)
    kopf.on.login(registry=operator.registry, errors=kopf.ErrorsMode.PERMANENT)(login)
    started = now()
    if again:
        await operator.start()
        started = now()
        operator.cluster.faults.expire_token()
        operator.cluster.faults.cut_watches()
    else:
        await operator.launch()
    with pytest.raises(kopf.LoginError, match="Login handlers cannot make requests as the operator"):
        await operator.wait()
    assert now() - started < 10, "it has not waited"
    assert not len(calls)


async def test_background_tasks_of_login_handlers(operator: Operator, calls: Calls) -> None:
    """They can make requests after the login, and even cause the next one."""
    tasks: list[asyncio.Task[None]] = []
    go = asyncio.Event()

    async def apply_later() -> None:
        await go.wait()
        await make_maker(calls, is_async=True)()

    async def login(**kwargs: Any) -> Any:
        tasks.append(asyncio.create_task(apply_later()))
        return kopf.login_with_kubeconfig(**kwargs)

    operator.registry = kopf.OperatorRegistry()
    kopf.on.event("kopfexamples", registry=operator.registry)(do_nothing)
    kopf.on.login(registry=operator.registry)(login)
    await operator.start()
    operator.cluster.faults.expire_token()
    go.set()
    await calls.wait_length(2)
    await asyncio.gather(*tasks)


async def test_background_tasks_of_startup_handlers(operator: Operator, calls: Calls) -> None:
    """They begin before the login, and get the credentials when they are there."""
    tasks: list[asyncio.Task[None]] = []

    @kopf.on.startup()
    async def fn(**_: Any) -> None:
        tasks.append(asyncio.create_task(make_maker(calls, is_async=True)()))
        await asyncio.sleep(5)

    await operator.launch()
    await calls.wait_length(1)
    await tasks[0]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_after_a_refused_login(operator: Operator, calls: Calls, logs: Logs, is_async: bool) -> None:
    """The exit is not held by cleanup handlers that can only fail."""
    login = kopf.ConnectionInfo(server=operator.cluster.url, token="wrong", insecure=True)
    operator.registry = kopf.OperatorRegistry()
    kopf.on.login(registry=operator.registry)(lambda **_: login)
    kopf.on.cleanup(registry=operator.registry, retries=1)(make_maker(calls, is_async))
    logs.expected.append(".*Ran out of valid credentials.*")
    await operator.launch_in_vain(kopf.OperatorError, "Ran out of valid credentials")
    assert not len(calls)


def test_outside_of_operators() -> None:
    with pytest.raises(LookupError, match="only inside of a running operator"):
        kopf.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}, is_owned=False)
