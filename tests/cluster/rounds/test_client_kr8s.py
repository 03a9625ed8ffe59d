"""``kr8s`` against the local cluster, in its asynchronous form."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import kr8s
import pytest
from kr8s.asyncio.objects import ConfigMap, Deployment, new_class

from kopf.testing import LocalCluster
from tests.cluster.rounds.widgets import API_VERSION, KIND, PLURAL, make_config_map, make_deployment, make_widget
from tests.patience import PATIENCE

Widget = new_class(KIND, API_VERSION, namespaced=True, plural=PLURAL)


def status(error: pytest.ExceptionInfo[kr8s.ServerError]) -> Any:
    return error.value.status


# The library warns of servers that are newer than itself, whatever they do.
pytestmark = pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported:UserWarning")


@pytest.fixture
async def api(cluster: LocalCluster) -> AsyncIterator[Any]:
    api = await kr8s.asyncio.api(kubeconfig=str(cluster.kubeconfig))
    yield api
    session: Any = api._session
    await session.aclose()  # the library has no public way to let the connections go


async def test_custom_resources(api: Any) -> None:
    for index in range(5):
        labels = {"parity": "odd" if index % 2 else "even"}
        widget = await Widget(make_widget(f"w{index}", labels=labels), api=api)
        await widget.create()
        assert widget.spec.to_dict() == {"size": 1}
    assert [one.name async for one in api.get(Widget)] == ["w0", "w1", "w2", "w3", "w4"]
    assert [one.name async for one in api.get(Widget, label_selector={"parity": "odd"})] == ["w1", "w3"]
    assert [one.name async for one in api.get(Widget, field_selector="metadata.name=w2")] == ["w2"]

    widget = await Widget.get("w0", api=api)
    await widget.patch({"spec": {"color": "red"}})
    assert widget.spec.to_dict() == {"size": 1, "color": "red"}
    await widget.patch([{"op": "replace", "path": "/spec/size", "value": 2}], type="json")
    assert widget.spec.size == 2
    await widget.patch({"spec": {"size": 9}, "status": {"phase": "Done"}}, subresource="status")
    await widget.refresh()
    assert (widget.spec.size, widget.status.phase, widget.metadata.generation) == (2, "Done", 3)
    await widget.label({"a": "b"})
    await widget.annotate({"note": "text"})
    assert (widget.labels["a"], widget.annotations["note"]) == ("b", "text")
    await widget.wait("jsonpath='{.status.phase}'=Done", timeout=int(PATIENCE))
    await widget.delete()
    assert not await widget.exists()


async def test_watching(api: Any) -> None:
    widget = await Widget(make_widget("one"), api=api)
    await widget.create()
    events = []
    async for kind, seen in api.watch(Widget):
        events.append((kind, seen.spec.size))
        if len(events) == 1:
            await widget.patch({"spec": {"size": 2}})
        elif kind == "MODIFIED":
            await widget.delete()
        elif kind == "DELETED":
            break
    assert events == [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 2)]


async def test_builtin_kinds(api: Any) -> None:
    settings = await ConfigMap(make_config_map("settings", a="1"), api=api)
    await settings.create()
    assert settings.data.a == "1"
    await settings.patch({"data": {"b": "2"}})
    assert settings.data.to_dict() == {"a": "1", "b": "2"}
    deployment = await Deployment(make_deployment("web", "main"), api=api)
    await deployment.create()
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
    await deployment.patch(patch)  # a merge-patch always, i.e. the list is replaced
    assert [one.name for one in deployment.spec.template.spec.containers] == ["side"]
    await deployment.scale(3)
    assert deployment.replicas == 3
    await deployment.delete(propagation_policy="Foreground")
    assert [one.name async for one in api.get("namespaces")] == [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]
    assert (await api.version())["minor"] == "36"
    assert (await api.whoami()) == "kubernetes-admin"


async def test_dependents(api: Any) -> None:
    parent, child = await Widget(make_widget("parent"), api=api), await ConfigMap(make_config_map("child"), api=api)
    await parent.create()
    await child.create()
    await parent.adopt(child)
    await parent.delete()
    await child.wait("delete", timeout=int(PATIENCE))
    assert not await child.exists()


async def test_errors(api: Any) -> None:
    with pytest.raises(kr8s.NotFoundError):
        await (await Widget(make_widget("nosuch"), api=api)).refresh()  # `get` would wait for two seconds
    with pytest.raises(kr8s.ServerError) as error:
        await (await Widget(make_widget("two", size=99), api=api)).create()
    assert (status(error)["code"], status(error)["reason"]) == (422, "Invalid")
    assert [cause["field"] for cause in status(error)["details"]["causes"]] == ["spec.size"]
