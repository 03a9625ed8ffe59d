"""Days of backups."""

import pathlib

import pytest

from kopf.testing import APIStatus

FOLDER = pathlib.Path(__file__).parent
BACKUP = FOLDER / "obj.yaml"

pytestmark = pytest.mark.simulation(FOLDER / "handlers.py", crds=FOLDER / "crd.yaml")


def list_jobs(simulation):
    return [job["metadata"]["name"] for job in simulation.list("jobs")]


def test_there_is_a_job_from_time_to_time(simulation):
    simulation.apply(BACKUP)
    simulation.advance(seconds=1)
    assert list_jobs(simulation) == ["photos-1"]
    simulation.advance(hours=23)
    assert list_jobs(simulation) == ["photos-1", "photos-2", "photos-3"]
    assert simulation.get("backup", "photos")["status"]["count"] == 3


def test_what_is_not_said_has_its_default(simulation):
    simulation.apply(BACKUP)
    simulation.advance(seconds=1)
    job = simulation.get("job", "photos-1")["spec"]
    assert job["backoffLimit"] == 2
    assert job["template"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "100Mi"}


def test_it_can_be_more_often(simulation):
    simulation.apply(BACKUP)
    simulation.advance(seconds=1)
    simulation.patch("backup", "photos", {"spec": {"every": "1h30m"}})
    simulation.advance(hours=2)
    assert list_jobs(simulation) == ["photos-1", "photos-2"]


@pytest.mark.parametrize(("field", "value"), [("every", "often"), ("attempts", 0), ("memory", "much")])
def test_mistakes_are_refused(simulation, field, value):
    simulation.apply(BACKUP)
    with pytest.raises(APIStatus, match=rf"spec\.{field}: Invalid value"):
        simulation.patch("backup", "photos", {"spec": {field: value}})


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("write", [1, 2, 3])
def test_crashes(simulation, write, before):
    simulation.crash_after(write=write, before=before, restart=True)
    simulation.apply(BACKUP)
    simulation.advance(hours=9)
    assert list_jobs(simulation) == ["photos-1", "photos-2"]
    assert simulation.get("backup", "photos")["status"]["count"] == 2
