"""Restarts are what the kubelet notes in the status, so that is what the tests do."""

import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent

pytestmark = pytest.mark.simulation(FOLDER / "handlers.py")


def restart(simulation, count):
    status = {"name": "main", "image": "busybox", "imageID": "", "ready": False, "restartCount": count}
    simulation.patch("pod", "shop", {"status": {"containerStatuses": [status]}}, subresource="status")


def get_alarms(simulation):
    return [event["message"] for event in simulation.events("shop") if event["reason"] == "RestartsTooOften"]


@pytest.mark.parametrize(
    ("minutes", "alarms"),
    [
        ([0, 1, 2, 3], ["3 restarts in 120 seconds."]),
        ([0, 1, 2, 2 + 9], ["3 restarts in 600 seconds."]),
        ([0, 1, 2, 12, 22, 23], []),
        ([0, 1, 2, 3, 4, 5], ["3 restarts in 120 seconds."]),
        ([0, 1, 2, 3, 4, 5, 7], ["3 restarts in 120 seconds.", "3 restarts in 180 seconds."]),
    ],
)
def test_alarms(simulation, minutes, alarms):
    simulation.apply(FOLDER / "obj.yaml")
    for count, (before, now) in enumerate(zip([0, *minutes], minutes, strict=False)):
        simulation.advance(minutes=now - before)
        restart(simulation, count)
    simulation.advance(seconds=10)
    assert get_alarms(simulation) == alarms


def test_what_was_before_the_operator_does_not_count(simulation):
    simulation.stop()
    simulation.apply(FOLDER / "obj.yaml")
    restart(simulation, 100)
    simulation.restart()
    simulation.advance(seconds=10)
    assert get_alarms(simulation) == []
