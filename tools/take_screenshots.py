"""
Take the screenshots of the console that are in `docs/images`: an operator of databases, with some trouble in it.

It needs Chromium. Run it from the root of the project: .venv/bin/python -m tools.take_screenshots
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import random
import shutil
import sys
import time
from typing import Any

from playwright.sync_api import sync_playwright

import kopf
from kopf_cluster import LocalCluster
from tests.insight.console.serving import editing, running

IMAGES = pathlib.Path("docs/images")
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "databases.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "databases", "singular": "database", "kind": "Database"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
TEAMS = ("billing", "catalog", "identity", "orders", "search", "shipping")
TROUBLED, RESIZED = "orders-db-03", "billing-db-04"


def declare_handlers(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.create("databases", id="provision", registry=registry)
    async def provision(name: str, spec: kopf.Spec, logger: kopf.Logger, patch: kopf.Patch, **_: Any) -> None:
        if name == TROUBLED:
            raise kopf.TemporaryError("the volume 'orders-3' is not bound yet", delay=45)
        if spec["size"] == 77:
            raise kopf.PermanentError("there is no storage class 'fast'")
        await asyncio.sleep(random.random() / 50)
        patch.status["phase"] = "Ready"
        patch.status["endpoint"] = f"{name}.svc:5432"

    @kopf.on.update("databases", id="resize", field="spec.size", registry=registry)
    async def resize(old: int, new: int, body: kopf.Body, logger: kopf.Logger, patch: kopf.Patch, **_: Any) -> None:
        logger.warning("It is %s GB on the disk, so this will take a while", old)
        await asyncio.sleep(0.3)
        kopf.info(body, reason="Resized", message=f"from {old} to {new} GB")
        patch.status["size"] = new

    @kopf.timer("databases", id="check_backup", interval=30, registry=registry)
    async def check_backup(**_: Any) -> None:
        pass


def main() -> int:
    random.seed(1)
    chromium = shutil.which("chromium")
    registry = kopf.OperatorRegistry()
    declare_handlers(registry)
    with LocalCluster() as cluster:
        cluster.apply(CRD)
        for team in TEAMS:
            for number in range(1, 31):
                size = 77 if (team, number) == ("identity", 2) else random.choice((10, 50, 100))
                cluster.create(
                    {
                        "apiVersion": "example.com/v1",
                        "kind": "Database",
                        "metadata": {"name": f"{team}-db-{number:02d}"},
                        "spec": {"size": size},
                    }
                )
        os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
        with editing(cluster), running(cluster, registry) as served, sync_playwright() as playwright:
            time.sleep(3)
            cluster.patch("databases", RESIZED, {"spec": {"size": 200}})
            time.sleep(1)
            args = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=chromium, args=args)
            for scheme in ("light", "dark"):
                page = browser.new_page(color_scheme=scheme, viewport={"width": 1120, "height": 560})  # type: ignore[arg-type]
                page.goto(served.url)
                page.wait_for_selector("#connection[data-state=live]")
                take(page, f"console-list-{scheme}", TROUBLED, "state")
                take(page, f"console-timeline-{scheme}", RESIZED, "name")
                if scheme == "light":
                    take_explanation(page, "console-explanation-light", TROUBLED)
                    page.set_viewport_size({"width": 390, "height": 720})
                    take_phone(page, "console-phone-light")
                page.close()
            browser.close()
    return 0


def take(page: Any, name: str, selected: str, order: str) -> None:
    page.select_option("#order", order)
    page.fill("#search", selected)
    page.get_by_role("listbox", name="Objects").get_by_role("option").first.click()
    page.wait_for_selector(".timeline li")
    page.fill("#search", "")
    page.locator("#search").blur()
    page.mouse.move(0, 0)
    page.wait_for_timeout(400)
    page.screenshot(path=IMAGES / f"{name}.png")


def take_explanation(page: Any, name: str, selected: str) -> None:
    page.fill("#search", selected)
    page.get_by_role("listbox", name="Objects").get_by_role("option").first.click()
    page.get_by_role("button", name="Explain").click()
    page.wait_for_selector(".report h3")
    page.screenshot(path=IMAGES / f"{name}.png")
    page.keyboard.press("Escape")
    page.fill("#search", "")


def take_phone(page: Any, name: str) -> None:
    page.get_by_role("button", name="← Objects").click()
    page.select_option("#order", "state")
    page.wait_for_timeout(400)
    page.screenshot(path=IMAGES / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
