"""The application serves what the operator knows, and both count on one page."""

import pathlib
import time

import pytest

import kopf
from kopf.testing import LocalCluster

FOLDER = pathlib.Path(__file__).parent
PATIENCE = 60

testclient = pytest.importorskip("fastapi.testclient", exc_type=ImportError)


@pytest.fixture
def cluster(monkeypatch):
    with LocalCluster() as cluster:
        cluster.apply(FOLDER / "crd.yaml")
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        yield cluster


@pytest.fixture
def app(monkeypatch):
    """The application is loaded once: so is its counter, which cannot be registered twice."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import app

    return app.app


@pytest.fixture
def client(cluster, app):
    with testclient.TestClient(app) as client:
        yield client


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_orders_are_served_and_counted(cluster, client):
    assert client.get("/orders").json() == []
    cluster.apply(FOLDER / "obj.yaml")
    wait_until(lambda: client.get("/orders").json() == ["tea"])
    wait_until(lambda: 'kopf_handler_duration_seconds_count{handler="accept"' in client.get("/metrics/").text)
    assert 'shop_orders_total{size="large"} 1.0' in client.get("/metrics/").text
    cluster.delete("order", "tea")
    wait_until(lambda: client.get("/orders").json() == [])


def test_it_does_not_start_if_the_operator_cannot(app, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(FOLDER / "absent.yaml"))
    with pytest.raises(kopf.LoginError), testclient.TestClient(app):
        pass
