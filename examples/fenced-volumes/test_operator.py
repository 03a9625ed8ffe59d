"""The volumes are as large as the objects say, whichever replica works, and whatever comes late."""

import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent
VOLUME = FOLDER / "obj.yaml"
OPTIONS = {"crds": FOLDER / "crd.yaml"}

pytestmark = pytest.mark.simulation(FOLDER / "handlers.py", **OPTIONS)


async def test_sizes_are_kept(simulation, fake):
    await simulation.apply(VOLUME)
    await simulation.until(lambda: fake.sizes == {"photos": 10})
    fake.sizes["photos"] = 1  # somebody else has changed it
    await simulation.advance(minutes=2)
    assert fake.sizes == {"photos": 10}
    await simulation.patch("volume", "photos", {"spec": {"size": 20}})
    await simulation.advance(minutes=2)
    assert fake.sizes == {"photos": 20}


async def test_volumes_are_removed(simulation, fake):
    await simulation.apply(VOLUME)
    await simulation.settle()
    await simulation.delete("volume", "photos")
    await simulation.expect("volume", "photos", absent=True, within=10)
    assert fake.sizes == {}


@pytest.mark.simulation(FOLDER / "handlers.py", operator=False, **OPTIONS)
async def test_late_requests_of_the_former_owner_are_refused(simulation, fake):
    replicas = await simulation.replicas(2, mode="leader")
    await simulation.apply(VOLUME)
    await simulation.until(lambda: fake.sizes == {"photos": 10})
    leader = (await simulation.get("lease", "kopf"))["spec"]["holderIdentity"].partition("_")[0]

    fake.is_cut_off = True
    await simulation.patch("volume", "photos", {"spec": {"size": 20}})
    await simulation.until(lambda: fake.late)
    replicas[leader].freeze()
    fake.is_cut_off = False
    await simulation.patch("volume", "photos", {"spec": {"size": 30}})
    await simulation.until(lambda: fake.sizes == {"photos": 30})  # the other replica has taken over

    fake.deliver()
    assert len(fake.refusals) == 1
    replicas[leader].thaw()
    await simulation.advance(minutes=10)
    assert fake.sizes == {"photos": 30}
    replicas.assert_one_owner()
