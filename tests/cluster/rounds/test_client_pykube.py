"""``pykube-ng`` against the local cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pykube
import pytest

from kopf.testing import LocalCluster
from tests.cluster.rounds.widgets import API_VERSION, KIND, PLURAL, make_config_map, make_deployment, make_widget


@pytest.fixture
def api(cluster: LocalCluster) -> Iterator[Any]:
    config: Any = pykube.KubeConfig
    api = pykube.HTTPClient(config.from_file(str(cluster.kubeconfig)))
    yield api
    api.session.close()


@pytest.fixture
def widgets(api: Any) -> Any:
    factory: Any = pykube.object_factory
    return factory(api, API_VERSION, KIND)


def test_custom_resources(api: Any, widgets: Any) -> None:
    assert widgets.endpoint == PLURAL
    for index in range(5):
        made = widgets(api, make_widget(f"w{index}", labels={"parity": "odd" if index % 2 else "even"}))
        made.create()
        assert made.obj["spec"] == {"size": 1}
    odd = widgets.objects(api).filter(selector={"parity": "odd"})
    assert [one.name for one in odd] == ["w1", "w3"]
    assert [one.name for one in widgets.objects(api).filter(field_selector={"metadata.name": "w2"})] == ["w2"]

    one = widgets.objects(api).get_by_name("w0")
    one.obj["spec"]["color"] = "red"
    one.update()  # sent as a merge-patch of what is different
    assert one.obj["spec"] == {"size": 1, "color": "red"}
    one.patch({"spec": {"size": 9}, "status": {"phase": "Done"}}, subresource="status")
    one.reload()
    assert (one.obj["spec"]["size"], one.obj["status"]) == (1, {"phase": "Done"})
    one.labels["color"] = "red"
    one.update()
    assert [same.name for same in widgets.objects(api).filter(selector="color=red")] == ["w0"]
    one.delete()
    assert not one.exists()


def test_watching(api: Any, widgets: Any) -> None:
    one = widgets(api, make_widget("one"))
    one.create()
    events = []
    for event in widgets.objects(api).watch():
        events.append((event.type, event.object.obj["spec"]["size"]))
        if len(events) == 1:
            one.patch({"spec": {"size": 2}})
        elif event.type == "MODIFIED":
            one.delete()
        elif event.type == "DELETED":
            break
    assert events == [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 2)]


def test_applying(api: Any, widgets: Any) -> None:
    """The library does not know it by name, but sends it."""

    def apply(obj: Any, manager: str, *, force: bool = False) -> Any:
        params = {"fieldManager": manager, **({"force": "true"} if force else {})}
        reply = api.patch(
            **widgets(api, obj).api_kwargs(
                params=params, headers={"Content-Type": "application/apply-patch+yaml"}, data=json.dumps(obj)
            )
        )
        api.raise_for_status(reply)
        return reply.json()["spec"]

    assert apply(make_widget("one", tags=["a"]), "me") == {"size": 1, "tags": ["a"]}
    assert apply(make_widget("one", tags=["b"], size=3), "other") == {"size": 3, "tags": ["a", "b"]}
    with pytest.raises(pykube.exceptions.HTTPError, match='conflict with "other": .spec.size') as error:
        apply(make_widget("one", size=4), "me")
    assert error.value.code == 409
    assert apply(make_widget("one", size=4), "me", force=True) == {"size": 4, "tags": ["b"]}


def test_builtin_kinds(api: Any) -> None:
    pykube.ConfigMap(api, make_config_map("one", a="1")).create()
    assert pykube.ConfigMap.objects(api).get(name="one").obj["data"] == {"a": "1"}
    deployment = pykube.Deployment(api, make_deployment("web", "main"))
    deployment.create()
    deployment.scale(0)
    assert (deployment.replicas, deployment.obj["spec"]["replicas"]) == (0, 0)
    deployment.delete(propagation_policy="Foreground")


def test_errors(api: Any, widgets: Any) -> None:
    with pytest.raises(pykube.exceptions.ObjectDoesNotExist):
        widgets.objects(api).get(name="nosuch")
    widgets(api, make_widget("one")).create()
    for obj, code, text in (
        (make_widget("one"), 409, "already exists"),
        (make_widget("two", size=99), 422, "should be less than or equal to 10"),
    ):
        with pytest.raises(pykube.exceptions.HTTPError, match=text) as error:
            widgets(api, obj).create()
        assert error.value.code == code
