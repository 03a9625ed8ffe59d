"""Hours pass in milliseconds."""

import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent
LIFETIME = "example.com/lives-for"

pytestmark = pytest.mark.simulation(FOLDER / "handlers.py")


def test_it_is_deleted_in_time(simulation):
    simulation.apply(FOLDER / "obj.yaml")
    simulation.advance(hours=7, minutes=50)
    assert simulation.get("namespace", "preview")
    simulation.expect("namespace", "preview", absent=True, within=1200)


def test_its_life_can_be_prolonged(simulation):
    simulation.apply(FOLDER / "obj.yaml")
    simulation.advance(hours=7)
    simulation.patch("namespace", "preview", {"metadata": {"annotations": {LIFETIME: "1d"}}})
    simulation.advance(hours=16)
    assert simulation.get("namespace", "preview")
    simulation.advance(hours=2)
    assert simulation.find("namespace", "preview") is None


def test_mistakes_are_told_and_can_be_corrected(simulation):
    simulation.apply(FOLDER / "obj.yaml")
    simulation.patch("namespace", "preview", {"metadata": {"annotations": {LIFETIME: "soon"}}})
    simulation.advance(hours=24)
    assert "minutes, hours, or days: 30m, 8h, 7d; not soon." in simulation.logs
    simulation.patch("namespace", "preview", {"metadata": {"annotations": {LIFETIME: "8h"}}})
    simulation.expect("namespace", "preview", absent=True, within=1200)


def test_other_namespaces_are_left_alone(simulation):
    simulation.apply("{apiVersion: v1, kind: Namespace, metadata: {name: production}}")
    simulation.advance(days=3)
    assert simulation.get("namespace", "production")
