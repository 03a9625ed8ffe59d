"""The time under ``kopf dev`` is moved by the page: what is due by then, comes at once, whatever it waits by."""

from __future__ import annotations

import datetime
import os
import pathlib
import re
import urllib.error

import pytest

from tests.cli.conftest import EXAMPLE, Starter
from tests.cli.test_dev_console import ask

pytest.importorskip("time_machine")

HANDLERS = """
import asyncio
import datetime
import kopf

@kopf.on.create("kopfexamples")
async def create_fn(retry, logger, **_):
    if not retry:
        raise kopf.TemporaryError("not yet", delay=3000)
    logger.info(f"Retried at {datetime.datetime.now(datetime.UTC).isoformat()}")

@kopf.timer("kopfexamples", interval=3600, initial_delay=3600)
async def timer_fn(logger, **_):
    logger.info("The timer ticks.")

@kopf.daemon("kopfexamples", cancellation_timeout=1)
async def async_daemon(stopped, logger, **_):
    logger.info("The async daemon sleeps.")
    while not await stopped.wait(3500):
        logger.info("The async daemon is awake.")

@kopf.daemon("kopfexamples", cancellation_timeout=1)
def sync_daemon(stopped, logger, **_):
    logger.info("The sync daemon sleeps.")
    while not stopped.wait(3500):
        logger.info("The sync daemon is awake.")

@kopf.on.startup()
async def sleep(logger, **_):
    now = datetime.datetime.now(datetime.UTC)
    logger.info(f"Started at {now.isoformat()}")
"""


def parse(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def test_leaps(start: Starter, tmp_path: pathlib.Path) -> None:
    (tmp_path / "crd.yaml").write_text((EXAMPLE / "crd.yaml").read_text())
    (tmp_path / "handlers.py").write_text(HANDLERS)
    manifest = (EXAMPLE / "obj.yaml").read_text()
    hour = datetime.timedelta(hours=1)
    with start("dev", "handlers.py", "--apply", "crd.yaml") as process:
        url = process.wait_for(r"The console: +(http://127\.0\.0\.1:\d+/\?token=\S+)$")[1]
        process.wait_for("The console is served at")
        began = parse(process.wait_for(r"Started at (\S+)")[1])
        ask(url, "/api/console/dev/apply", {"manifest": manifest})
        process.wait_for("failed temporarily: not yet")
        process.wait_for("The async daemon sleeps.")
        process.wait_for("The sync daemon sleeps.")
        assert ask(url, "/api/console/dev/leap", {"seconds": 3601})["now"] / 1000 > began.timestamp() + 3600
        assert parse(process.wait_for(r"Retried at (\S+)")[1]) - began > hour
        process.wait_for("The timer ticks.")
        process.wait_for("The async daemon is awake.")
        process.wait_for("The sync daemon is awake.")
        ask(url, "/api/console/dev/apply", {"manifest": manifest.replace("kopf-example-1", "later")})
        address = {"resource": "kopfexamples.v1.kopf.dev", "namespace": "default", "name": "later"}
        got = ask(url, "/api/console/dev/get", address)
        created = re.search(r"creationTimestamp: '?([^'\n]+)", got["manifest"])
        assert created is not None
        assert parse(created[1]) - began > hour
        with (tmp_path / "handlers.py").open("a") as file:
            file.write("\n")
        assert parse(process.wait_for(r"Started at (\S+)", times=2)[1]) - began > hour  # the reloaded one, too
        process.wait_for("The console is served at", times=2)
        for nonsense in (-1, 0, "1", 1e10, None):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                ask(url, "/api/console/dev/leap", {"seconds": nonsense})
        process.press_ctrl_c()
        assert process.wait() == 0
    # The leap of an hour is not taken for a blocked loop; busy machines really block it for a moment.
    assert [seconds for seconds in re.findall(r"is blocked for (\S+) s", process.output) if float(seconds) > 600] == []
    assert "Traceback" not in process.output


def test_leaps_in_the_page(start: Starter, tmp_path: pathlib.Path, chromium: str) -> None:
    playwright_api = pytest.importorskip("playwright.sync_api")
    expect = playwright_api.expect
    (tmp_path / "crd.yaml").write_text((EXAMPLE / "crd.yaml").read_text())
    (tmp_path / "obj.yaml").write_text((EXAMPLE / "obj.yaml").read_text())
    (tmp_path / "handlers.py").write_text(HANDLERS)
    with start("dev", "handlers.py", "--apply", "crd.yaml", "--apply", "obj.yaml") as process:
        url = process.wait_for(r"The console: +(http://127\.0\.0\.1:\d+/\?token=\S+)$")[1]
        process.wait_for("failed temporarily: not yet")
        with playwright_api.sync_playwright() as playwright:
            args = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=chromium, args=args)
            page = browser.new_page()
            page.goto(url)
            page.get_by_role("listbox", name="Objects").get_by_role("option").first.click()
            expect(page.locator("#detail .now")).to_contain_text(re.compile(r"again in \d+ min"))
            page.get_by_role("tab", name="Local cluster").click()
            page.get_by_role("combobox", name="Forward by").select_option("1 hour")
            page.get_by_role("button", name="Leap").click()
            expect(page.locator(".result").last).to_contain_text("for the operator and the cluster.")
            process.wait_for("The timer ticks.")
            page.get_by_role("tab", name="Objects").click()
            timeline = page.get_by_role("list", name="Timeline")
            expect(timeline).to_contain_text("create_fn succeeded")
            expect(page.locator("#detail .now")).to_contain_text(re.compile(r"for \d+ s"))  # not minus an hour
            browser.close()
        process.press_ctrl_c()
        assert process.wait() == 0
