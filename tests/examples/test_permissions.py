"""The examples work with the permissions that `kopf manifests` gives them."""

from __future__ import annotations

import pytest

from kopf.testing import SyncSimulation
from tests.examples.conftest import EXAMPLES
from tests.forging import Forge

# The objects of each, and what is made for them; and the hours until then, or until they expire.
MADE: dict[str, list[tuple[str, ...]]] = {
    "webapp": [("webapp", "shop"), ("ingress", "shop")],
    "typed": [("backup", "photos"), ("job", "photos-1")],
    "quota": [("team", "shop"), ("resourcequota", "team", "shop-live")],
    "replicator": [("secret", "registry"), ("secret", "registry", "team-a")],
    "expiring-namespaces": [("namespace", "preview")],
    "restart-alarm": [("pod", "shop")],
}
HOURS = {"typed": 9, "expiring-namespaces": 9}


@pytest.mark.parametrize("name", MADE)
def test_they_are_enough(name: str, forge: Forge) -> None:
    folder = EXAMPLES / name
    options = ["--crds", "crd.yaml"] if (folder / "crd.yaml").exists() else []
    made = forge.run("manifests", "handlers.py", *options, "--name", "example", "--image", "example:1", cwd=folder)
    with SyncSimulation(
        folder / "handlers.py",
        crds=made.stdout,
        authorization="rbac",
        user="system:serviceaccount:default:example",
        groups=["system:serviceaccounts", "system:authenticated"],
    ) as simulation:
        simulation.apply(folder / "obj.yaml")
        simulation.advance(hours=HOURS.get(name, 0.1))
        own, *children = MADE[name]
        for kind, child, *rest in children:
            assert simulation.get(kind, child, namespace=rest[0] if rest else "default")
        if simulation.find(own[0], own[1]):  # it has not expired by itself
            simulation.delete(own[0], own[1])
        simulation.advance(minutes=2)
        for kind, child, *rest in MADE[name]:
            assert simulation.find(kind, child, namespace=rest[0] if rest else "default") is None
        assert "forbidden" not in str(simulation.logs).lower()
