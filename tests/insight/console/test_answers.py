"""What the console answers to its page, over real HTTP: the rows, the changes, the timelines; who may change what."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kopf
from kopf._insight.console.updates import MAX_PAGES
from kopf_cluster import LocalCluster
from tests.behaviour.running import do_nothing
from tests.insight.console.serving import TOKEN, Served, editing, running
from tests.patience import PATIENCE
from tests.testing.kopfexamples import CRD, make

Message = tuple[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        cluster.apply(CRD)
        yield cluster


def declare() -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.event("kopfexamples", id="event_fn", registry=registry)(do_nothing)
    kopf.on.create("secrets", registry=registry)(do_nothing)
    return registry


@contextlib.contextmanager
def serving(cluster: LocalCluster, token: str | None = None) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        with running(cluster, declare(), token=token) as served:
            yield served


@pytest.fixture(scope="module")
def served(cluster: LocalCluster) -> Iterator[Served]:
    """An operator as in production."""
    with serving(cluster) as served:
        yield served


@pytest.fixture(scope="module")
def developed_once(cluster: LocalCluster) -> Iterator[Served]:
    with editing(cluster), serving(cluster, TOKEN) as served:
        yield served


@pytest.fixture
def developed(developed_once: Served) -> Iterator[Served]:
    """An operator as under ``kopf dev``."""
    yield developed_once
    developed_once.cluster.faults.clear()


class Page:
    """Reads the stream of the updates, as a page does."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)
        self._connection.request("GET", "/api/console/updates")
        self.response = self._connection.getresponse()

    def close(self) -> None:
        self.response.close()
        self._connection.close()

    def read(self) -> Message:
        """Read the next message."""
        name = ""
        while True:
            line = self.response.readline().decode()
            assert line, "The stream has ended."
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                return name, json.loads(line[6:])

    def read_until(self, condition: Callable[[Message], bool]) -> list[Message]:
        messages = [self.read()]
        while not condition(messages[-1]):
            messages.append(self.read())
        return messages


@pytest.fixture
def open_page() -> Iterator[Callable[[str], Page]]:
    pages: list[Page] = []

    def open_page(url: str) -> Page:
        pages.append(Page(url))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=PATIENCE) as response:
        return json.loads(response.read())


def post(served: Served, name: str, content: Any, **headers: str) -> tuple[int, Any]:
    everything = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}", **headers}
    url = f"{served.url}/api/console/dev/{name}"
    request = urllib.request.Request(url, json.dumps(content).encode(), everything, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as e:
        with e:
            text = e.read().decode()
            return e.code, json.loads(text) if text.startswith("{") else text


def mentions(name: str) -> Callable[[Message], bool]:
    return lambda message: message[0] == "rows" and any(row[3] == name for row in message[1] if len(row) > 1)


def test_all_rows_come_first_and_then_the_changes(served: Served, open_page: Callable[[str], Page]) -> None:
    served.cluster.create(make("first"))
    began = time.time()
    page = open_page(served.url)
    greeting = page.read_until(lambda message: message[0] == "ready")
    if not any(mentions("first")(message) for message in greeting):  # the operator has just begun
        page.read_until(mentions("first"))
    assert [name for name, _ in greeting][:2] == ["reset", "state"]
    assert began - 0.01 <= greeting[0][1] / 1000 <= time.time()
    assert not greeting[1][1]["dev"]
    served.cluster.create(make("second"))
    [row] = [row for row in page.read_until(mentions("second"))[-1][1] if row[3] == "second"]
    assert row[2] == "default"
    assert get(f"{served.url}/api/console/timeline?id={row[0]}")[0][4].startswith("ADDED")
    served.cluster.delete("kopfexamples", "first")
    page.read_until(lambda message: mentions("first")(message) and "gone" in [row[4] for row in message[1]])


def test_changes_are_told_together(served: Served, open_page: Callable[[str], Page]) -> None:
    page = open_page(served.url)
    page.read_until(lambda message: message[0] == "ready")
    began = time.monotonic()
    for number in range(200):
        served.cluster.create(make(f"many-{number}"))
    messages = page.read_until(mentions("many-199"))
    took = time.monotonic() - began
    assert sum(name == "rows" for name, _ in messages) <= 2 + took * 5


def test_there_are_not_too_many_pages(cluster: LocalCluster, open_page: Callable[[str], Page]) -> None:
    with serving(cluster) as served:
        pages = [open_page(served.url) for _ in range(MAX_PAGES + 1)]
        assert [page.response.status for page in pages] == [200] * MAX_PAGES + [503]
        for page in pages:
            page.close()
        deadline = time.monotonic() + PATIENCE
        while (page := open_page(served.url)).response.status != 200:
            page.close()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert page.read()[0] == "reset"


@pytest.mark.parametrize("name", ["errors", "queues", "background", "indices", "peers"])
def test_panels(served: Served, name: str) -> None:
    assert isinstance(get(f"{served.url}/api/console/panel?name={name}"), dict | list)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/console/panel?name=nosuch", 404),
        ("/api/console/explanation", 400),
        ("/api/console/explanation?resource=kopfexamples&namespace=default&name=nosuch", 404),
        ("/api/explain?name=nosuch", 400),
        ("/api/explain?resource=kopfexamples&name=nosuch", 400),
        ("/api/explain?resource=kopfexamples&namespace=default&name=nosuch", 404),
        ("/api/explain?resource=nosuch&namespace=default&name=nosuch", 404),
        ("/api/console/timeline?id=x", 400),
        ("/api/console/timeline?id=12345", 404),
        ("/../console.py", 404),
        ("/console.py", 404),
        ("/api/console/dev/apply", 404),
    ],
)
def test_what_is_not_there(served: Served, path: str, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as failure:
        get(served.url + path)
    failure.value.close()
    assert failure.value.code == status


def test_explanations_are_told_in_sections(served: Served, open_page: Callable[[str], Page]) -> None:
    page = open_page(served.url)
    page.read_until(lambda message: message[0] == "ready")
    served.cluster.create(make("explained"))
    page.read_until(mentions("explained"))
    url = f"{served.url}/api/console/explanation?resource=kopfexamples&namespace=default&name=explained"
    report = get(url)
    assert report["title"].startswith("KopfExample default/explained (kopfexamples.v1.kopf.dev)")
    [handlers] = [section for section in report["sections"] if section["title"] == "Handlers"]
    [line] = handlers["lines"]
    assert (line["name"], line["mark"]) == ("event event_fn", "yes")


def test_files_of_the_page(served: Served) -> None:
    for path, kind in {"/": "text/html", "/main.js": "text/javascript", "/console.css": "text/css"}.items():
        with urllib.request.urlopen(served.url + path, timeout=PATIENCE) as response:
            assert response.headers["Content-Type"] == f"{kind}; charset=utf-8"
            assert "script-src 'self'" in response.headers["Content-Security-Policy"]
            text = response.read().decode()
            assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
            assert "https://" not in text
            assert "innerHTML" not in text


def test_nothing_can_be_changed_in_production(served: Served) -> None:
    for name in ("get", "apply", "delete", "faults"):
        assert post(served, name, {})[0] in (404, 405)


def test_objects_are_edited_in_development(developed: Served) -> None:
    cluster = developed.cluster
    manifest = "apiVersion: kopf.dev/v1\nkind: KopfExample\nmetadata: {name: edited}\nspec: {size: 1}\n---\n"
    assert post(developed, "apply", {"manifest": manifest}) == (200, {"done": ["kopfexamples/edited is created"]})
    address = {"resource": "kopfexamples.v1.kopf.dev", "namespace": "default", "name": "edited"}
    status, content = post(developed, "get", address)
    assert status == 200
    assert "managedFields" not in content["manifest"]
    edited = content["manifest"].replace("size: 1", "size: 2")
    assert post(developed, "apply", {"manifest": edited}) == (200, {"done": ["kopfexamples/edited is replaced"]})
    assert cluster.get("kopfexamples", "edited")["spec"] == {"size": 2}
    assert post(developed, "apply", {"manifest": edited})[0] == 409  # somebody has changed it meanwhile
    assert post(developed, "apply", {"manifest": manifest})[0] == 200  # it names no version, so it does not matter
    assert cluster.get("kopfexamples", "edited")["spec"] == {"size": 1}
    assert post(developed, "delete", address)[0] == 200
    assert post(developed, "get", address)[0] == 404


@pytest.mark.parametrize(
    "manifest",
    [
        "a: [",
        "just text",
        "- 1",
        "apiVersion: v1",
        "{apiVersion: nosuch/v1, kind: X, metadata: {name: x}}",
        "{apiVersion: v1, kind: Nosuch, metadata: {name: x}}",
        "{apiVersion: v1, kind: [], metadata: {name: x}}",
        "{apiVersion: ../../x, kind: Pod, metadata: {name: x}}",
        "!!python/object:os.system x",
    ],
)
def test_senseless_manifests(developed: Served, manifest: str) -> None:
    status, content = post(developed, "apply", {"manifest": manifest})
    assert status == 400
    assert content["error"]


def test_secrets_cannot_be_read(developed: Served) -> None:
    manifest = "{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {password: c3dvcmRmaXNo}}"
    assert post(developed, "apply", {"manifest": manifest})[0] == 200
    status, content = post(developed, "get", {"resource": "secrets.v1", "namespace": "default", "name": "s"})
    assert status == 400
    assert "c3dvcmRmaXNo" not in repr(content)


def test_faults_are_for_the_operator_only(developed: Served) -> None:
    status, content = post(developed, "faults", {"settings": {"rules": [{"status": 503, "verb": "get"}]}})
    assert status == 200
    assert content["rules"][0]["status"] == 503
    assert post(developed, "get", {"resource": "namespaces.v1", "name": "default"})[0] == 200
    assert post(developed, "faults", {"settings": {"rules": [{"status": 1}]}})[0] == 400
    assert post(developed, "faults", {"action": "cut"})[0] == 200
    status, content = post(developed, "faults", {"action": "clear"})
    assert (status, content["rules"]) == (200, [])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_other_sites_cannot_change_anything(developed: Served, headers: dict[str, str], status: int) -> None:
    manifest = "{apiVersion: kopf.dev/v1, kind: KopfExample, metadata: {name: forged}}"
    assert post(developed, "apply", {"manifest": manifest}, **headers)[0] == status
    assert "forged" not in {item["metadata"]["name"] for item in developed.cluster.list("kopfexamples")}


@pytest.mark.parametrize("content", [[], "x", {"name": 1}, {"resource": "x", "name": "y"}])
def test_senseless_requests(developed: Served, content: Any) -> None:
    assert post(developed, "delete", content)[0] in (400, 404)


def test_huge_requests(developed: Served) -> None:
    """They are not read to the end: whoever still sends when it is refused, sees the connection being reset."""
    manifest = "{apiVersion: kopf.dev/v1, kind: KopfExample, metadata: {name: huge}} #"
    with contextlib.suppress(urllib.error.URLError, ConnectionError):
        assert post(developed, "apply", {"manifest": manifest + "x" * 4 * 2**20})[0] == 400
    assert "huge" not in {item["metadata"]["name"] for item in developed.cluster.list("kopfexamples")}
    assert post(developed, "apply", {"manifest": manifest})[0] == 200
