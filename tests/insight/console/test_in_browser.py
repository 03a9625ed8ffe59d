"""The page in a real browser: what people see of it, by mouse, by keyboard, in the dark; and hostile names."""

from __future__ import annotations

import asyncio
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

import kopf
from kopf.cli.dev.console_access import REDIRECTION
from kopf_cluster import LocalCluster
from tests.insight.console.serving import TOKEN, Served, editing, running
from tests.patience import PATIENCE
from tests.ports import find_free_port
from tests.testing.kopfexamples import CRD, make

playwright_api = pytest.importorskip("playwright.sync_api")
expect = playwright_api.expect
expect.set_options(timeout=PATIENCE * 1000)

HOSTILE = "<img src=x onerror=document.title='hacked'>"
OBJECTS = 130

Page = Any
"""A page of the browser, see the class in the library: it is not there for all platforms."""


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    with playwright_api.sync_playwright() as playwright:
        # There are no sandboxes for root, who runs the tests in containers.
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=args)
        yield browser
        browser.close()


def declare_handlers(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.create("kopfexamples", id="create_fn", registry=registry)
    async def create_fn(spec: kopf.Spec, name: str, logger: kopf.Logger, patch: kopf.Patch, **_: Any) -> None:
        logger.warning("Creating %s %s", name, HOSTILE)
        if spec.get("fail"):
            raise kopf.TemporaryError(f"not yet {HOSTILE}", delay=300)
        patch.status[HOSTILE] = HOSTILE

    @kopf.on.update("kopfexamples", id="update_fn", registry=registry)
    async def update_fn(**_: Any) -> None:
        pass

    @kopf.daemon("kopfexamples", id="daemon_fn", cancellation_timeout=0.1, labels={"daemon": "yes"}, registry=registry)
    async def daemon_fn(**_: Any) -> None:
        await asyncio.Event().wait()

    @kopf.index("kopfexamples", id="by_size", registry=registry)
    def by_size(spec: kopf.Spec, name: str, **_: Any) -> Any:
        return {str(spec.get("size")) + HOSTILE: name}


@pytest.fixture(scope="module")
def served(browser: Any) -> Iterator[Served]:
    """An operator with hundreds of objects, as under ``kopf dev``."""
    registry = declare()
    with LocalCluster() as cluster, pytest.MonkeyPatch.context() as patch:
        cluster.apply(CRD)
        for number in range(OBJECTS):
            cluster.create(make(f"obj-{number:03d}", size=number % 3, **({"fail": True} if number == 7 else {})))
        patch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        with editing(cluster), running(cluster, registry, token=TOKEN) as served:
            yield served


class Watched:
    """The page, and what goes wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: set[str] = set()
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda message: self.problems.append(message.text))
        page.on("request", lambda request: self.requests.add(request.url))


@pytest.fixture(scope="module")
def watched(browser: Any, served: Served) -> Iterator[Watched]:
    """The page, as it is opened by the address that ``kopf dev`` prints."""
    context = browser.new_context(viewport={"width": 1280, "height": 760})
    watched = Watched(context.new_page())
    watched.page.goto(f"{served.url}/?token={TOKEN}")
    assert watched.page.url == f"{served.url}/"
    yield watched
    context.close()


@pytest.fixture
def page(watched: Watched, served: Served) -> Iterator[Page]:
    """The page in its initial state; nothing in it may fail, whatever names there are."""
    page = watched.page
    page.goto(served.url)
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#count")).to_contain_text(re.compile(r"\d{3} of \d{3} objects"))
    watched.problems.clear()
    yield page
    title, images = page.title(), page.locator("img[src=x]").count()
    page.goto("about:blank")  # it ends the stream
    assert (title, images) == ("Kopf console", 0)
    assert {url for url in watched.requests if not url.startswith((served.url, "about:"))} == set()
    assert [text for text in watched.problems if not re.search(r"status of (400|409) ", text)] == []


def get_rows(page: Page, **kwargs: Any) -> Any:
    return page.get_by_role("listbox", name="Objects").get_by_role("option", **kwargs)


def choose(page: Page, name: str) -> None:
    page.fill("#search", name)
    expect(get_rows(page).first).to_contain_text(name)
    get_rows(page).first.click()
    page.fill("#search", "")
    expect(page.locator("#detail h2")).to_have_text(name)


def test_only_visible_rows_are_in_the_page(page: Page) -> None:
    expect(get_rows(page).first).to_have_attribute("aria-setsize", str(OBJECTS))
    assert get_rows(page).count() < 60
    page.locator("#list").evaluate("element => { element.scrollTop = element.scrollHeight }")
    expect(get_rows(page).filter(has_text=f"obj-{OBJECTS - 1:03d}")).to_be_visible()


def test_search_and_filters(page: Page) -> None:
    assert page.get_by_role("searchbox", name="Search objects").bounding_box()["width"] >= 150
    page.get_by_role("searchbox", name="Search objects").fill("OBJ-11")
    expect(page.locator("#count")).to_have_text(f"10 of {OBJECTS} objects are listed")
    page.get_by_role("searchbox", name="Search objects").fill("not yet")  # it is in the note
    expect(page.locator("#count")).to_have_text(f"1 of {OBJECTS} objects are listed")
    page.fill("#search", "")
    page.get_by_role("button", name="idle").click()
    expect(page.locator("#count")).to_have_text(f"1 of {OBJECTS} objects are listed")
    row = get_rows(page).first
    expect(row).to_contain_text("retrying")
    expect(row).to_contain_text(HOSTILE)


def test_those_in_trouble_come_first(page: Page) -> None:
    expect(page.get_by_role("combobox", name="Order")).to_have_value("state")
    expect(get_rows(page).first).to_contain_text("obj-007")
    expect(get_rows(page).first).to_contain_text("retrying")
    page.get_by_role("combobox", name="Order").select_option("by name")
    expect(get_rows(page).first).to_contain_text("obj-000")


def test_timeline_of_an_object(page: Page, served: Served) -> None:
    choose(page, "obj-007")
    timeline = page.get_by_role("list", name="Timeline")
    expect(timeline).to_contain_text("creation: calls create_fn")
    expect(timeline).to_contain_text(f"again in 300 s: TemporaryError: not yet {HOSTILE}")
    choose(page, "obj-008")
    expect(timeline).to_contain_text(f"Creating obj-008 {HOSTILE}")
    expect(timeline.locator(".lines").filter(has_text="+ status")).to_contain_text(HOSTILE)
    page.get_by_role("button", name="log", exact=True).click()
    expect(timeline.locator("[data-sort=log]").first).to_be_hidden()
    served.cluster.patch("kopfexamples", "obj-008", {"spec": {"size": 100}})  # the news come by themselves
    expect(timeline).to_contain_text("~ spec.size: 2 → 100")


def test_explanation(page: Page) -> None:
    choose(page, "obj-007")
    page.get_by_role("button", name="Explain").click()
    dialog = page.get_by_role("dialog", name="Explanation of obj-007")
    expect(dialog).to_contain_text("the object is new")
    expect(dialog.get_by_role("heading", name="Handlers")).to_be_visible()
    handler = dialog.get_by_role("list", name="Handlers").locator("> li").filter(has_text="create create_fn")
    expect(handler.locator(".mark")).to_have_text("yes")
    error = f"the last error: TemporaryError: not yet {HOSTILE}"
    expect(handler.locator("li[data-state=retrying]")).to_contain_text(error)
    other = dialog.get_by_role("list", name="Handlers").locator("> li").filter(has_text="daemon daemon_fn")
    expect(other.locator(".mark")).to_have_text("no")
    expect(dialog.locator("pre")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_only_with_the_keyboard(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("obj-01")
    page.keyboard.press("Enter")
    expect(page.locator("#list")).to_be_focused()
    expect(page.locator("#count")).to_contain_text("10 of")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(get_rows(page, selected=True)).to_contain_text("obj-011")
    page.keyboard.press("End")
    expect(get_rows(page, selected=True)).to_contain_text("obj-019")
    expect(page.locator("#detail h2")).to_have_text("obj-019")
    page.keyboard.press("Enter")
    expect(page.locator("#detail")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#list")).to_be_focused()
    page.get_by_role("tab", name="Objects").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Errors")).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Errors")).to_be_visible()


def test_other_views(page: Page) -> None:
    for tab, text in {
        "Errors": f"TemporaryError: not yet {HOSTILE}",
        "Queues & streams": "kopfexamples.v1.kopf.dev",
        "Daemons & timers": "No daemons or timers run.",
        "Indices": HOSTILE,
        "Peers": "standalone",
        "Operator": "_login succeeded",
    }.items():
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel", name=tab)).to_contain_text(text)


def test_objects_are_reached_from_their_errors(page: Page) -> None:
    page.get_by_role("tab", name="Errors").click()
    page.get_by_role("button", name="default/obj-007").click()
    expect(page.locator("#detail h2")).to_have_text("obj-007")


def test_addresses_of_objects_remain(page: Page) -> None:
    choose(page, "obj-123")
    page.reload()
    expect(page.locator("#detail h2")).to_have_text("obj-123")


def test_editing(page: Page, served: Served) -> None:
    page.get_by_role("tab", name="Local cluster").click()
    page.get_by_role("button", name="Apply manifests").click()
    text = page.get_by_role("textbox", name="The manifest")
    text.fill("nonsense")
    page.get_by_role("button", name="Apply (Ctrl+Enter)").click()
    expect(page.locator("dialog .result")).to_contain_text("Every manifest must have")
    text.fill("{apiVersion: kopf.dev/v1, kind: KopfExample, metadata: {name: new, labels: {daemon: 'yes'}}}")
    page.keyboard.press("Control+Enter")
    expect(page.locator("dialog")).to_be_hidden()
    page.get_by_role("tab", name="Daemons & timers").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("daemon_fn")
    page.get_by_role("button", name="default/new").click()
    page.get_by_role("button", name="Edit").click()
    text.fill(text.input_value().replace("daemon: 'yes'", "daemon: 'no'"))
    served.cluster.patch("kopfexamples", "new", {"metadata": {"labels": {"meanwhile": "yes"}}})
    page.get_by_role("button", name="Apply (Ctrl+Enter)").click()
    expect(page.locator("dialog .result")).to_contain_text("has been modified")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Delete").click()
    page.locator("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("#detail .state")).to_have_text("gone")


def test_faults(page: Page, served: Served) -> None:
    page.get_by_role("tab", name="Local cluster").click()
    expect(page.get_by_label("The current faults")).to_contain_text('"rules": []')
    page.get_by_role("combobox", name="Fault").select_option("Refuse requests")
    page.get_by_role("combobox", name="Status").select_option("429")
    page.get_by_role("combobox", name="Requests").select_option("patch")
    page.get_by_role("button", name="Inject").click()
    expect(page.get_by_label("The current faults")).to_contain_text("429")
    assert [(rule.status, rule.verb) for rule in served.cluster.faults.rules] == [(429, "patch")]
    page.get_by_role("button", name="End all faults").click()
    expect(page.get_by_label("The current faults")).to_contain_text('"rules": []')


def test_the_page_does_not_grow(page: Page, served: Served) -> None:
    choose(page, "obj-100")
    session = page.context.new_cdp_session(page)

    def change(times: int, size: int) -> tuple[int, float]:
        for number in range(times):
            served.cluster.patch("kopfexamples", "obj-100", {"spec": {"size": size + number}})
        expect(page.get_by_role("list", name="Timeline")).to_contain_text(f"→ {size + times - 1}")
        session.send("HeapProfiler.collectGarbage")
        heap = session.send("Runtime.getHeapUsage")["usedSize"]
        return page.locator("*").count(), heap

    elements, heap = change(80, 1000)
    more_elements, more_heap = change(80, 2000)
    session.detach()
    assert page.get_by_role("list", name="Timeline").get_by_role("listitem").count() == 100
    assert more_elements < elements * 1.3
    assert more_heap < heap * 1.3


def test_light_and_dark(page: Page) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(245, 246, 249)", "rgb(18, 21, 28)"]


def test_phones(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    try:
        assert page.locator("header").bounding_box()["height"] <= 90
        shown = page.locator("#list").bounding_box()
        bottoms = [row.bounding_box()["y"] + row.bounding_box()["height"] for row in get_rows(page).all()]
        assert sum(bottom <= shown["y"] + shown["height"] for bottom in bottoms) >= 10
        expect(get_rows(page).first.locator(".note")).to_be_visible()
        get_rows(page).first.click()
        expect(page.locator("#detail h2")).to_have_text("obj-007")
        expect(page.get_by_role("listbox", name="Objects")).to_be_hidden()
        page.get_by_role("button", name="← Objects").click()
        expect(page.get_by_role("listbox", name="Objects")).to_be_focused()
        page.keyboard.press("ArrowDown")
        expect(page.locator("#detail h2")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("listbox", name="Objects")).to_be_focused()
        for tab in page.get_by_role("tab").all():
            tab.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
    finally:
        page.set_viewport_size({"width": 1280, "height": 760})


def test_everything_has_an_accessible_name(page: Page) -> None:
    choose(page, "obj-001")
    unnamed = page.evaluate("""() => [...document.querySelectorAll("button, input, select, [role=listbox], ol")]
        .filter((element) => !element.closest("[hidden]"))
        .filter((element) => !(element.getAttribute("aria-label") || element.textContent.trim()))
        .map((element) => element.outerHTML)""")
    assert unnamed == []


def test_time_is_not_to_be_moved_in_other_event_loops(page: Page) -> None:
    page.get_by_role("tab", name="Local cluster").click()
    expect(page.get_by_role("heading", name="Faults")).to_be_visible()
    expect(page.get_by_role("heading", name="Time")).to_have_count(0)


def test_pages_survive_restarts(browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port is the same; the token is, or is not."""
    port = find_free_port()
    monkeypatch.setattr("tests.insight.console.serving.find_free_port", lambda: port)
    context = browser.new_context(viewport={"width": 1280, "height": 760})
    page = context.new_page()
    with LocalCluster() as cluster:
        cluster.apply(CRD)
        cluster.create(make("obj-007", fail=True))
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        check_restarts(cluster, page)
    context.close()


def check_restarts(cluster: LocalCluster, page: Page) -> None:
    notice = page.locator("#notice")
    with running(cluster, declare(), token=TOKEN) as other:
        page.goto(f"{other.url}/?token={TOKEN}")
        choose(page, "obj-007")
        header = page.locator("header").bounding_box()
        expect(notice).to_be_hidden()
    expect(notice).to_contain_text("The operator does not answer.")
    assert page.locator("header").bounding_box() == header  # nothing jumps
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("dialog")).to_contain_text("the operator does not answer")
    page.keyboard.press("Escape")
    trouble = cluster.faults.inject(503, verb="list", resource="kopfexamples")
    with running(cluster, declare(), token=TOKEN):
        expect(page.locator("#connection")).to_have_text("live")
        expect(notice).to_be_hidden()
        cluster.faults.remove(trouble)  # what was selected, comes later
        expect(page.locator("#detail h2")).to_have_text("obj-007")
        note = get_rows(page).first.locator(".note")
        expect(note).to_have_text(re.compile(r"^in \d+ (min|s)$"))  # its handlers have not failed in this operator
    with running(cluster, declare(), token=f"another-{TOKEN}"):
        expect(notice).to_contain_text("The operator has a new token")


def declare() -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    declare_handlers(registry)
    return registry


def test_strangers_see_nothing(browser: Any, served: Served) -> None:
    context = browser.new_context()
    page = context.new_page()
    assert page.goto(served.url).status == 401
    assert page.goto(f"{served.url}/api/console/timeline?id=1").status == 401
    context.close()


def test_the_console_is_opened_by_a_page_of_the_disk(browser: Any, served: Served, tmp_path: pathlib.Path) -> None:
    """As ``kopf dev`` does it: browsers send no strict cookies where the pages of others lead to."""
    (tmp_path / "console.html").write_text(REDIRECTION.format(url=f"{served.url}/?token={TOKEN}"))
    context = browser.new_context()
    page = context.new_page()
    page.goto((tmp_path / "console.html").as_uri())
    expect(page.locator("#connection")).to_have_text("live")
    assert "token" not in page.url
    context.close()
