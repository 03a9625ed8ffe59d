"""The shares always make up the whole, whatever comes, goes, and is changed."""

import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent
TEAM = "example.com/team"

pytestmark = pytest.mark.simulation(FOLDER / "handlers.py", crds=FOLDER / "crd.yaml")


@pytest.fixture(autouse=True)
def _divided(simulation):
    simulation.apply(FOLDER / "obj.yaml")
    simulation.advance(seconds=11)


def get_cores(simulation):
    """Give the shares by their namespaces."""
    quotas = simulation.list("resourcequotas")
    return {quota["metadata"]["namespace"]: quota["spec"]["hard"]["limits.cpu"] for quota in quotas}


def test_the_quota_is_divided(simulation):
    assert get_cores(simulation) == {"shop-live": "6", "shop-test": "6"}
    assert simulation.get("team", "shop")["status"]["namespaces"] == ["shop-live", "shop-test"]


def test_the_quota_is_changed(simulation):
    simulation.edit("team", "shop", lambda team: team["spec"].update(cores=20))
    simulation.advance(seconds=1)
    assert get_cores(simulation) == {"shop-live": "10", "shop-test": "10"}


def test_a_namespace_more(simulation):
    simulation.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev", "labels": {TEAM: "shop"}}})
    simulation.advance(seconds=11)
    assert get_cores(simulation) == {"dev": "4", "shop-live": "4", "shop-test": "4"}


def test_a_namespace_less(simulation):
    simulation.delete("namespace", "shop-test")
    simulation.advance(seconds=11)
    assert get_cores(simulation) == {"shop-live": "12"}


def test_a_namespace_of_another_team(simulation):
    simulation.patch("namespace", "shop-test", {"metadata": {"labels": {TEAM: "blog"}}})
    simulation.advance(seconds=11)
    assert get_cores(simulation) == {"shop-live": "12"}


def test_what_is_changed_or_deleted_by_others_is_restored_at_once(simulation):
    simulation.patch("resourcequota", "team", {"spec": {"hard": {"limits.cpu": "100"}}}, namespace="shop-test")
    simulation.delete("resourcequota", "team", namespace="shop-live")
    simulation.advance(seconds=1)
    assert get_cores(simulation) == {"shop-live": "6", "shop-test": "6"}


def test_nothing_is_written_if_nothing_changes(simulation):
    before = simulation.list("resourcequotas")
    simulation.advance(hours=1)
    assert simulation.list("resourcequotas") == before


def test_the_team_is_deleted(simulation):
    simulation.delete("team", "shop")
    simulation.advance(seconds=1)
    assert get_cores(simulation) == {}
