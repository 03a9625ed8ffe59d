"""ReplicaSets as their controller makes them: with the annotations of the Deployment, those of operators included."""

from __future__ import annotations

import json
from typing import Any

from tests.behaviour.objects import LAST_HANDLED, PREFIX, Obj, Objects, get_annotations

COPIED = {
    LAST_HANDLED: '{"spec":{"replicas":3}}\n',
    f"{PREFIX}/second": '{"started":"2020-01-01T00:00:00.000000+00:00","purpose":"create","retries":1,"success":true}',
}
OWN = f"{LAST_HANDLED}-ofDRS"


DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def make_spec() -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}


async def create_replica_set(objects: Objects, name: str = "obj") -> None:
    """Create it with its Deployment: without one, it would be deleted as garbage."""
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": make_spec()}
    uid = (await objects.api.request("POST", DEPLOYMENTS, deployment))["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": uid, "controller": True}
    await objects.create(name, spec=make_spec(), annotations=COPIED, ownerReferences=[owner])


def is_handled(obj: Obj) -> bool:
    """Whether all is done, and the marked annotations say so."""
    last, names = get_annotations(obj).get(OWN), {f"{PREFIX}/first-ofDRS", f"{PREFIX}/second-ofDRS"}
    return last is not None and json.loads(last)["spec"] == obj["spec"] and not names & get_annotations(obj).keys()


def get_callers(obj: Obj) -> dict[str, str]:
    """Who has called the handlers of ``migrating_replica_sets``."""
    prefix = "called.example.com/"
    return {key.removeprefix(prefix): who for key, who in get_annotations(obj).items() if key.startswith(prefix)}
