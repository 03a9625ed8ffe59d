"""The life of a user, with all that can go wrong on the way."""

import base64
import pathlib

import pytest

from kopf.testing import explore

FOLDER = pathlib.Path(__file__).parent
USER = FOLDER / "obj.yaml"
STRANGER = "{apiVersion: v1, kind: Secret, metadata: {name: shop}, stringData: {password: stranger}}"

pytestmark = pytest.mark.simulation(FOLDER / "handlers.py", crds=FOLDER / "crd.yaml")


@pytest.fixture(autouse=True)
def _server(server):
    """In all tests."""


def read_password(secret):
    return base64.b64decode(secret["data"]["password"]).decode()


async def test_the_user_can_log_in(simulation, server):
    await simulation.apply(USER)
    await simulation.expect("postgresuser", "shop", field="status.role", value="default_shop", within=5)
    assert server.groups == {"default_shop": ["readers", "writers"]}
    assert server.passwords == {"default_shop": read_password(await simulation.get("secret", "shop"))}


async def test_groups_are_changed(simulation, server):
    await simulation.apply(USER)
    await simulation.settle()
    await simulation.edit("postgresuser", "shop", lambda obj: obj["spec"].update(memberOf=["readers"]))
    await simulation.settle()
    assert server.groups == {"default_shop": ["readers"]}


async def test_unknown_groups_are_not_retried_but_can_be_corrected(simulation, server):
    await simulation.apply(USER)
    await simulation.settle()
    await simulation.edit("postgresuser", "shop", lambda obj: obj["spec"].update(memberOf=["wrtiers"]))
    await simulation.settle()
    assert simulation.journal.get_calls()[-1].outcome == "failed"
    await simulation.edit("postgresuser", "shop", lambda obj: obj["spec"].update(memberOf=["writers"]))
    await simulation.settle()
    assert server.groups == {"default_shop": ["writers"]}


async def test_the_password_is_changed_with_the_secret(simulation, server):
    await simulation.apply(USER)
    await simulation.settle()
    await simulation.patch("secret", "shop", {"stringData": {"password": "mine"}})
    await simulation.until(lambda: server.passwords == {"default_shop": "mine"})

    await simulation.delete("secret", "shop")
    await simulation.until(lambda: server.passwords != {"default_shop": "mine"})
    assert server.passwords == {"default_shop": read_password(await simulation.get("secret", "shop"))}


async def test_secrets_of_others_are_not_touched(simulation, server):
    await simulation.apply(STRANGER)
    await simulation.apply(USER)
    await simulation.advance(minutes=5)
    assert server.passwords == {}
    assert read_password(await simulation.get("secret", "shop")) == "stranger"
    await simulation.delete("secret", "shop")
    await simulation.expect("postgresuser", "shop", field="status.role", within=90)


async def test_the_server_is_down_for_an_hour(simulation, server):
    server.is_down = True
    await simulation.apply(USER)
    await simulation.advance(hours=1)
    password = read_password(await simulation.get("secret", "shop"))
    server.is_down = False
    await simulation.expect("postgresuser", "shop", field="status.role", within=20)
    assert server.passwords == {"default_shop": password}


async def test_the_user_is_there_until_the_role_is_dropped(simulation, server):
    await simulation.apply(USER)
    await simulation.settle()
    server.is_down = True
    await simulation.delete("postgresuser", "shop")
    await simulation.advance(hours=1)
    assert await simulation.get("postgresuser", "shop")
    server.is_down = False
    await simulation.expect("postgresuser", "shop", absent=True, within=20)
    assert server.passwords == {}


@explore(ignore=["data.password"], troubles=["crash", "refusal", "lost answer", "deletion"])
async def test_whatever_happens(simulation, server):
    server.passwords.clear()
    server.groups.clear()
    await simulation.apply(USER)
    await simulation.settle()
    assert server.passwords == {"default_shop": read_password(await simulation.get("secret", "shop"))}
    await simulation.delete("postgresuser", "shop")
    await simulation.settle()
    assert server.passwords == {}
