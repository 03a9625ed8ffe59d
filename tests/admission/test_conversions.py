"""Conversions between versions: the real server of webhooks, asked by the local cluster over HTTPS."""

from __future__ import annotations

import asyncio
import base64
import copy
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kopf
from tests.admission.configurations import NAME, OWNER
from tests.behaviour.objects import API, MERGE_PATCH, Obj, Refused
from tests.behaviour.running import Logs, Operator
from tests.patience import PATIENCE, wait_until

pytestmark = pytest.mark.fastforward("exit")

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "widgets.example.com"

Start = Callable[..., Awaitable[None]]


def make_definition(*versions: str, stored: str) -> Obj:
    """In v1alpha1 & v1beta1, the size is a number; in others, it is a text with a unit."""

    def make_version(name: str) -> Obj:
        size = {"type": "integer" if "beta" in name or "alpha" in name else "string"}
        properties = {"spec": {"type": "object", "properties": {"size": size, "notes": {"type": "string"}}}}
        return {
            "name": name,
            "served": True,
            "storage": name == stored,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        }

    names = {"kind": "Widget", "plural": "widgets", "singular": "widget"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": WIDGETS},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [*map(make_version, versions)],
        },
    }


def url(version: str, name: str = "") -> str:
    return f"/apis/example.com/{version}/namespaces/default/widgets/{name}".rstrip("/")


def make(size: Any, version: str = "v1beta1", name: str = "one", **spec: Any) -> Obj:
    return {
        "apiVersion": f"example.com/{version}",
        "kind": "Widget",
        "metadata": {"name": name, "labels": {"a": "b"}},
        "spec": {"size": size, **spec},
    }


def declare() -> None:
    @kopf.convert(WIDGETS, "v1beta1", "v1")
    def upgrade(obj: Obj) -> Obj:
        obj["spec"]["size"] = f"{obj['spec']['size']}G"
        obj["metadata"].setdefault("annotations", {})["upgraded"] = "yes"
        return obj

    @kopf.convert(WIDGETS, "v1", "v1beta1")
    async def downgrade(obj: Obj) -> Obj:
        size = int(obj["spec"]["size"].removesuffix("G"))
        return {"metadata": obj["metadata"], "spec": {**obj["spec"], "size": size}}


def configure(settings: kopf.OperatorSettings) -> None:
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", port=0)
    settings.admission.managed = NAME


@pytest.fixture
def start(operator: Operator, api: API) -> Start:
    """Starts the operator, and waits until the API servers would call it."""

    async def start(definition: Obj | None = None) -> None:
        operator.configure = configure
        if definition is not None:
            operator.cluster.apply(definition)
        await operator.launch()
        await wait_definition(
            api,
            lambda obj: (
                obj["spec"]["conversion"]["strategy"] == "Webhook" and OWNER in obj["metadata"].get("annotations", {})
            ),
        )

    return start


@pytest.fixture
async def converting(start: Start) -> None:
    """An operator that converts between both versions."""
    declare()
    await start(make_definition("v1beta1", "v1", stored="v1beta1"))


async def wait_definition(api: API, condition: Callable[[Obj], object]) -> Obj:
    async with asyncio.timeout(PATIENCE):
        while not condition(obj := await api.request("GET", f"{CRDS}/{WIDGETS}")):
            await asyncio.sleep(0.05)
        return obj  # type: ignore[no-any-return]


async def refuse(request: Awaitable[Any]) -> str:
    with pytest.raises(Refused) as info:
        await request
    return str(info.value)


async def test_reads_and_writes(converting: None, api: API) -> None:
    created = await api.request("POST", url("v1beta1"), make(5))
    shown = await api.request("GET", url("v1", "one"))
    assert (shown["apiVersion"], shown["kind"], shown["spec"]) == ("example.com/v1", "Widget", {"size": "5G"})
    assert shown["metadata"].pop("annotations") == {"upgraded": "yes"}
    assert shown["metadata"] == created["metadata"]
    await api.request("PATCH", url("v1", "one"), {"spec": {"size": "7G", "notes": "x"}}, MERGE_PATCH)
    assert (await api.request("GET", url("v1beta1", "one")))["spec"] == {"size": 7, "notes": "x"}
    await api.request("POST", url("v1"), make("9G", "v1", "two"))
    items = (await api.request("GET", url("v1")))["items"]
    assert [item["spec"]["size"] for item in items] == ["7G", "9G"]


async def test_kubectl(start: Start, api: API, operator: Operator, kubectl: str) -> None:
    declare()
    await start(make_definition("v1beta1", "v1", stored="v1"))
    await api.request("POST", url("v1"), make("5G", "v1"))
    process = await asyncio.create_subprocess_exec(
        kubectl,
        f"--kubeconfig={operator.cluster.kubeconfig}",
        "get",
        "widgets.v1beta1.example.com",
        "one",
        "-o",
        "jsonpath={.apiVersion} {.spec.size}",
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert output.decode() == "example.com/v1beta1 5"


async def test_chains(start: Start, api: API) -> None:
    declare()

    @kopf.convert(WIDGETS, "v1alpha1", "v1beta1")
    def upgrade(obj: Obj) -> Obj:
        return obj

    @kopf.convert(WIDGETS, "v1", "v2")
    def upgrade_more(obj: Obj) -> Obj:
        return {**obj, "spec": {"size": f"~{obj['spec']['size']}"}}

    await start(make_definition("v1alpha1", "v1beta1", "v1", "v2", stored="v1alpha1"))
    await api.request("POST", url("v1alpha1"), make(5, "v1alpha1"))
    assert (await api.request("GET", url("v2", "one")))["spec"] == {"size": "~5G"}


async def test_what_is_not_declared_is_named(start: Start, api: API, logs: Logs) -> None:
    declare()
    await start(make_definition("v1beta1", "v1", "v2", stored="v1beta1"))
    await api.request("POST", url("v1beta1"), make(5))
    message = await refuse(api.request("GET", url("v2", "one")))
    text = (
        f"There is no way from v1beta1 to v2 of {WIDGETS}: declare @kopf.convert('{WIDGETS}', 'v1beta1', 'v2'), "
        "or a way through other versions."
    )
    assert text in message
    warnings = [record.getMessage() for record in logs.find("There is no way from.*") if record.levelname == "WARNING"]
    assert len(warnings) == 2
    assert text in warnings
    assert (await api.request("GET", url("v1", "one")))["spec"] == {"size": "5G"}


@pytest.mark.parametrize(
    ("function", "public", "logged"),
    [
        (lambda obj: obj["spec"]["secret"], "see the log of the operator.", "KeyError: 'secret'"),
        (lambda obj: None, "has returned nothing instead of the object.", ""),
        (lambda obj: [obj], "has returned list instead of the object.", ""),
        (lambda obj: obj["metadata"].update(name="x") or obj, "has changed metadata.name; only the labels", ""),
        (lambda obj: obj | {"metadata": {}}, "has changed metadata.creationTimestamp, metadata.generation, ", ""),
        (lambda obj: obj | {"spec": {"x": object()}}, "has no JSON form", ""),
        (lambda obj: kopf, "has returned module instead of the object.", ""),
    ],
)
async def test_failures(
    start: Start,
    api: API,
    logs: Logs,
    function: Callable[[Obj], Any],
    public: str,
    logged: str,
) -> None:
    kopf.convert(WIDGETS, "v1beta1", "v1")(function)
    kopf.convert(WIDGETS, "v1", "v1beta1")(function)
    await start(make_definition("v1beta1", "v1", stored="v1beta1"))
    await api.request("POST", url("v1beta1"), make(5))
    message = await refuse(api.request("GET", url("v1", "one")))
    assert public in message
    assert logged not in message or not logged
    assert logs.find(f".*{logged or public}.*")


async def test_errors_that_are_for_users(start: Start, api: API) -> None:
    @kopf.convert(WIDGETS, "v1beta1", "v1")
    async def upgrade(obj: Obj) -> Obj:
        raise kopf.PermanentError("It is too old.")

    await start(make_definition("v1beta1", "v1", stored="v1beta1"))
    await api.request("POST", url("v1beta1"), make(5))
    message = await refuse(api.request("GET", url("v1", "one")))
    assert "conversion of default/one from v1beta1 to v1 by test_errors_that_are_for_users.<" in message
    assert ".upgrade() has failed: It is too old.'" in message


async def test_own_objects_are_handled_in_other_versions(start: Start, api: API, operator: Operator) -> None:
    """The operator cannot list them until it converts them, and it must not wait for its indices."""
    sizes: list[str] = []
    declare()
    kopf.index("widgets.v1.example.com")(lambda spec, **_: {1: spec["size"]})
    kopf.on.create("widgets.v1.example.com")(lambda spec, **_: sizes.append(spec["size"]))
    kopf.on.validate("widgets.v1.example.com")(lambda **_: None)
    await start(make_definition("v1beta1", "v1", stored="v1beta1"))
    await operator.stop()
    await api.request("POST", url("v1beta1"), make(5))
    await start()
    async with asyncio.timeout(PATIENCE):
        while sizes != ["5G"]:
            await asyncio.sleep(0.05)
        while (await api.request("GET", url("v1beta1", "one")))["metadata"].get("annotations") is None:
            await asyncio.sleep(0.05)


async def test_an_operator_that_is_down_and_comes_back(start: Start, api: API, operator: Operator) -> None:
    sizes: list[str] = []
    declare()
    kopf.on.event("widgets.v1.example.com")(lambda spec, **_: sizes.append(spec["size"]))
    await start(make_definition("v1beta1", "v1", stored="v1beta1"))
    await api.request("POST", url("v1beta1"), make(5))
    await wait_until(lambda: sizes == ["5G"])
    before = await api.request("GET", f"{CRDS}/{WIDGETS}")
    await operator.stop()
    after = await api.request("GET", f"{CRDS}/{WIDGETS}")
    assert after["spec"]["conversion"] == before["spec"]["conversion"]  # otherwise, the fields would be lost
    assert OWNER not in after["metadata"].get("annotations", {})
    await api.request("POST", url("v1beta1"), make(6, name="two"))
    message = await refuse(api.request("GET", url("v1", "two")))
    assert "conversion webhook for example.com/v1beta1, Kind=Widget failed" in message
    assert (await api.request("GET", url("v1beta1", "one")))["spec"] == {"size": 5}
    await start()
    await wait_definition(api, lambda obj: obj["spec"]["conversion"] != before["spec"]["conversion"])
    assert (await api.request("GET", url("v1", "two")))["spec"] == {"size": "6G"}
    await wait_until(lambda: sorted(sizes) == ["5G", "5G", "6G"])  # in threads, for two objects


async def test_definitions_that_come_later_or_anew(start: Start, api: API, operator: Operator) -> None:
    declare()
    operator.cluster.apply(definition := make_definition("v1beta1", "v1", stored="v1beta1"))
    await start()
    await api.request("DELETE", f"{CRDS}/{WIDGETS}")
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await api.request("POST", CRDS, copy.deepcopy(definition))
                break
            except Refused:
                await asyncio.sleep(0.05)
    await wait_definition(api, lambda obj: obj["spec"]["conversion"]["strategy"] == "Webhook")
    nothing = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
    await api.request("PATCH", f"{CRDS}/{WIDGETS}", nothing, MERGE_PATCH)
    await wait_definition(api, lambda obj: obj["spec"]["conversion"]["strategy"] == "Webhook")


async def test_definitions_that_are_applied_again_with_another_address(converting: None, api: API) -> None:
    published = (await api.request("GET", f"{CRDS}/{WIDGETS}"))["spec"]["conversion"]
    address = {"url": "https://127.0.0.1:1/nobody", "caBundle": None}
    applied = {"spec": {"conversion": {"webhook": {"clientConfig": address}}}}
    await api.request("PATCH", f"{CRDS}/{WIDGETS}", applied, MERGE_PATCH)
    await wait_definition(api, lambda obj: obj["spec"]["conversion"] == published)


@pytest.mark.fastforward
async def test_authorities_injected_by_others_are_left_alone(converting: None, api: API) -> None:
    """Otherwise, both would write forever."""
    published = (await api.request("GET", f"{CRDS}/{WIDGETS}"))["spec"]["conversion"]
    authorities = base64.b64encode(2 * base64.b64decode(published["webhook"]["clientConfig"]["caBundle"])).decode()
    injected = {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": authorities}}}}}
    written = await api.request("PATCH", f"{CRDS}/{WIDGETS}", injected, MERGE_PATCH)
    touched = {"metadata": {"labels": {"touched": "yes"}}}
    await api.request("PATCH", f"{CRDS}/{WIDGETS}", touched, MERGE_PATCH)
    await asyncio.sleep(60)
    found = await api.request("GET", f"{CRDS}/{WIDGETS}")
    assert found["spec"] == written["spec"]


async def test_many_objects_at_once(converting: None, api: API, operator: Operator) -> None:
    for number in range(300):
        operator.cluster.create(make(number, name=f"obj{number:03}"))
    items = (await api.request("GET", url("v1")))["items"]
    assert [item["spec"]["size"] for item in items] == [f"{number}G" for number in range(300)]


async def test_huge_objects(converting: None, api: API, operator: Operator, logs: Logs) -> None:
    notes = "x" * 1_000_000
    for number in range(9):
        operator.cluster.create(make(number, name=f"obj{number}", notes=notes))
    assert (await api.request("GET", url("v1", "obj0")))["spec"] == {"size": "0G", "notes": notes}
    message = await refuse(api.request("GET", url("v1")))
    assert "status code 413" in message
    assert logs.find(".*The request is larger than 7340032 bytes; see max_body= of the webhook server.*")


async def test_slow_functions(start: Start, api: API, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kopf._admission.conversions.TIMEOUT", 0.5)

    @kopf.convert(WIDGETS, "v1beta1", "v1")
    async def upgrade(obj: Obj) -> Obj:
        await asyncio.sleep(60)
        return obj

    @kopf.convert(WIDGETS, "v1", "v1beta1")
    def downgrade(obj: Obj) -> Obj:
        time.sleep(1)
        return obj

    await start(make_definition("v1beta1", "v1", stored="v1beta1"))
    await api.request("POST", url("v1beta1"), make(5))
    for request in (api.request("GET", url("v1", "one")), api.request("POST", url("v1"), make("5G", "v1", "two"))):
        assert f"The objects of {WIDGETS} were not converted in 0.5 seconds." in await refuse(request)


@pytest.mark.fastforward
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, "permit the verb 'patch' on 'customresourcedefinitions.apiextensions.k8s.io'"),
        (422, "is not accepted"),
    ],
)
async def test_refused_definitions_end_the_operator(
    start: Start,
    operator: Operator,
    status: int,
    error: str,
) -> None:
    declare()
    operator.cluster.apply(make_definition("v1beta1", "v1", stored="v1beta1"))
    operator.cluster.faults.inject(status, verb="patch", resource="customresourcedefinitions")
    operator.configure = configure
    await operator.launch()
    with pytest.raises(Exception, match=error):
        await operator.wait()


@pytest.mark.fastforward
@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_temporary_errors_are_survived(start: Start, operator: Operator, logs: Logs, status: int) -> None:
    logs.expected.append("publisher of the conversion webhook configuration has failed")
    declare()
    operator.cluster.apply(make_definition("v1beta1", "v1", stored="v1beta1"))
    operator.cluster.faults.inject(status, verb="patch", resource="customresourcedefinitions", times=3)
    await start()


async def test_replicas_take_over(converting: None, api: API, operator: Operator) -> None:
    """Each one has a server of its own, and does not fight for being asked."""
    first = await api.request("GET", f"{CRDS}/{WIDGETS}")
    replica = Operator(operator.cluster, operator.registry)
    replica.configure = configure
    await replica.launch()
    second = await wait_definition(api, lambda obj: obj["spec"]["conversion"] != first["spec"]["conversion"])
    await api.request("POST", url("v1beta1"), make(5))
    assert (await api.request("GET", url("v1", "one")))["spec"] == {"size": "5G"}
    assert (await api.request("GET", f"{CRDS}/{WIDGETS}"))["metadata"]["resourceVersion"] == (
        second["metadata"]["resourceVersion"]
    )
    await replica.stop()
    await wait_definition(api, lambda obj: obj["spec"]["conversion"] == first["spec"]["conversion"])
    await api.request("POST", url("v1beta1"), make(6, name="two"))
    assert (await api.request("GET", url("v1", "two")))["spec"] == {"size": "6G"}


async def test_conversions_need_a_server(operator: Operator) -> None:
    declare()
    await operator.launch()
    with pytest.raises(kopf.OperatorError, match=r"There are conversions .* but no webhook server or tunnel"):
        await operator.wait()


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (
            ("widgets", "v1", "v2"),
            "Name the resource as in 'kubectl get crd', e.g. 'widgets.example.com', got 'widgets'.",
        ),
        (("example.com/widgets", "v1", "v2"), "Name the resource as in"),
        ((WIDGETS, "v1", "v1"), "Name two versions"),
        ((WIDGETS, "example.com/v1", "v2"), "Name two versions"),
        ((WIDGETS, "v1beta1", "v1"), f"The conversion of {WIDGETS} from v1beta1 to v1 is declared twice."),
    ],
)
def test_wrong_declarations(args: Any, problem: str, registry: kopf.OperatorRegistry) -> None:
    declare()
    with pytest.raises(kopf.DeclarationError, match=r"test_conversions\.py:\d+: ") as info:
        kopf.convert(*args)(lambda obj: obj)
    assert problem in str(info.value)


def test_models_name_their_resources(registry: kopf.OperatorRegistry) -> None:
    class Widget(kopf.CustomResource[dict[str, Any], dict[str, Any]], group="example.com", version="v1"): ...

    kopf.convert(Widget, "v1beta1", "v1")(lambda obj: obj)
    [handler] = registry.conversions
    assert handler.definition == WIDGETS
