"""Copies come and go, with no object left that nobody wants."""

import base64
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent
PATTERNS = "example.com/copy-to"

pytestmark = pytest.mark.simulation(FOLDER / "handlers.py")


@pytest.fixture(autouse=True)
def _copied(simulation):
    simulation.apply(FOLDER / "obj.yaml")
    simulation.advance(seconds=1)


def get_token(simulation, namespace):
    """Give the token that is there; nothing if there is no Secret."""
    secret = simulation.find("secret", "registry", namespace=namespace)
    return secret and base64.b64decode(secret["data"]["token"]).decode()


def test_it_is_copied_to_all_namespaces_of_the_pattern(simulation):
    assert get_token(simulation, "team-a") == "one"
    assert get_token(simulation, "team-b") == "one"
    assert get_token(simulation, "kube-system") is None


def test_nothing_is_left_in_the_source(simulation):
    source = simulation.get("secret", "registry")
    assert list(source["metadata"]["annotations"]) == [PATTERNS]
    assert "finalizers" not in source["metadata"]


def test_nothing_is_written_if_nothing_changes(simulation):
    before = simulation.get("secret", "registry", namespace="team-a")
    simulation.advance(hours=1)
    assert simulation.get("secret", "registry", namespace="team-a") == before


def test_copies_change_with_the_source(simulation):
    simulation.patch("secret", "registry", {"stringData": {"token": "two"}})
    simulation.advance(seconds=1)
    assert get_token(simulation, "team-a") == "two"


def test_new_namespaces_get_their_copies(simulation):
    simulation.apply("{apiVersion: v1, kind: Namespace, metadata: {name: team-c}}")
    simulation.advance(minutes=1, seconds=1)
    assert get_token(simulation, "team-c") == "one"


def test_copies_are_restored(simulation):
    simulation.delete("secret", "registry", namespace="team-a")
    simulation.patch("secret", "registry", {"stringData": {"token": "stolen"}}, namespace="team-b")
    simulation.advance(minutes=1, seconds=1)
    assert get_token(simulation, "team-a") == "one"
    assert get_token(simulation, "team-b") == "one"


@pytest.mark.parametrize("patterns", ["team-b", None])
def test_copies_go_where_they_are_not_wanted_anymore(simulation, patterns):
    simulation.patch("secret", "registry", {"metadata": {"annotations": {PATTERNS: patterns}}})
    simulation.advance(minutes=1, seconds=1)
    assert get_token(simulation, "team-a") is None
    assert get_token(simulation, "team-b") == (patterns and "one")


@pytest.mark.parametrize("downtime", [0, 3600])
def test_copies_go_with_the_source(simulation, downtime):
    simulation.stop()
    simulation.delete("secret", "registry")
    simulation.advance(seconds=downtime)
    simulation.restart()
    simulation.advance(minutes=1, seconds=1)
    assert get_token(simulation, "team-a") is None


def test_secrets_of_others_are_not_touched(simulation):
    simulation.apply("{apiVersion: v1, kind: Namespace, metadata: {name: team-0}}")
    simulation.apply(
        "{apiVersion: v1, kind: Secret, metadata: {name: registry, namespace: team-0}, stringData: {token: own}}"
    )
    simulation.advance(minutes=5)
    assert get_token(simulation, "team-0") == "own"
    assert "It is not copied to 'team-0': there is a Secret of that name already." in simulation.logs


@pytest.mark.parametrize("write", [1, 2, 3])
def test_crashes(simulation, write):
    simulation.crash_after(write=write, restart=True)
    simulation.patch("secret", "registry", {"stringData": {"token": "two"}})
    simulation.delete("secret", "registry", namespace="team-b")
    simulation.advance(minutes=2)
    assert get_token(simulation, "team-a") == "two"
    assert get_token(simulation, "team-b") == "two"
