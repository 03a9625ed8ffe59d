"""What is in the index, is what is in the cluster: at once, and after restarts."""

import pathlib

import pytest

from kopf.testing import APIStatus

FOLDER = pathlib.Path(__file__).parent
INGRESS = (FOLDER / "obj.yaml").read_text()
OTHER = INGRESS.replace("namespace: default", "namespace: other")
CONFIGURATION = ("validatingwebhookconfigurations", "unique-hosts.example.com")

pytestmark = pytest.mark.simulation(
    FOLDER / "handlers.py", crds="{apiVersion: v1, kind: Namespace, metadata: {name: other}}"
)


@pytest.fixture(autouse=True)
def _guarded(simulation):
    simulation.expect(*CONFIGURATION)
    simulation.apply(INGRESS)
    simulation.advance(seconds=1)


def test_others_are_refused(simulation):
    with pytest.raises(APIStatus, match=r"The host shop.example.org belongs to the namespace 'default'\."):
        simulation.apply(OTHER)


def test_other_hosts_are_free(simulation):
    simulation.apply(OTHER.replace("shop.example.org", "blog.example.org"))


def test_one_namespace_can_have_several_ingresses_of_one_host(simulation):
    simulation.apply(INGRESS.replace("name: shop", "name: shop-static"))


def test_the_host_is_free_when_it_is_not_used_anymore(simulation):
    simulation.edit("ingress", "shop", lambda obj: obj["spec"]["rules"][0].update(host="new.example.org"))
    simulation.advance(seconds=1)
    simulation.apply(OTHER)


def test_it_is_known_after_restarts(simulation):
    simulation.restart()
    simulation.advance(seconds=10)
    with pytest.raises(APIStatus, match="belongs to the namespace"):
        simulation.apply(OTHER)
