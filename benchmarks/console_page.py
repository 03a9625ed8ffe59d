"""
Measure what people see of the console, in a real browser: how soon it is there, how soon it shows what has changed, if
it keeps up; and the memory of the operator meanwhile.

    .venv/bin/python -m benchmarks.console_page [--objects 10000] [--changes 2000] [--rate 100] [--minutes 11]

A change is timed from the response to whoever has made it until the frame in which the page has its row. All of it is
on one machine: the cluster, the operator, the browser, and this one; so it is best to have two cores for that.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import tempfile
import time
from typing import Any

from playwright.sync_api import sync_playwright

from benchmarks.console import change, create_widgets, find_port, running_operator, wait_until_handled
from kopf_cluster import LocalCluster

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_OPENINGS = 5
_NOTE_UPDATES = """
window.seen = [];
window.delays = [];
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) { window.delays.push(entry.duration); }
}).observe({type: "longtask"});
const RealSource = window.EventSource;
window.EventSource = class extends RealSource {
    constructor(...args) {
        super(...args);
        this.addEventListener("rows", (event) => requestAnimationFrame(() => {
            const now = Date.now();
            for (const row of JSON.parse(event.data)) { window.seen.push([now, row[3]]); }
        }));
    }
};
"""
"""The page has drawn what it knows when the next frame is due."""
_IS_COMPLETE = "(total) => document.querySelector('#count').textContent.includes(`${total} of ${total} objects`)"


def open_page(browser: Any, url: str, total: int) -> tuple[Any, float, float]:
    """Open the page; get it, and after how many seconds it was painted first, and with all objects."""
    page = browser.new_page(viewport={"width": 1280, "height": 760})
    page.add_init_script(_NOTE_UPDATES)
    page.goto(url)
    page.wait_for_function(_IS_COMPLETE, arg=total, polling="raf", timeout=60_000)
    complete = page.evaluate("performance.now()")
    painted = page.evaluate("performance.getEntriesByType('paint').find(item => item.name === 'first-paint').startTime")
    return page, painted / 1000, complete / 1000


class Latencies:
    """When the objects were changed, and when the page has shown that."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._changed: dict[str, float] = {}
        self.seconds: list[float] = []

    def note(self, name: str) -> None:
        """The object is changed right now."""
        self._changed[name] = time.time()

    def collect(self) -> None:
        """Ask the page what it has shown by now."""
        for at, name in self._page.evaluate("window.seen.splice(0)"):
            changed = self._changed.get(name)
            if changed is not None and at / 1000 >= changed:
                self.seconds.append(at / 1000 - changed)
                del self._changed[name]

    def describe(self) -> str:
        """Tell how they are distributed."""
        known = sorted(self.seconds)
        parts = [f"{name} {known[min(len(known) - 1, int(len(known) * part))] * 1000:.0f} ms"
                 for name, part in (("half", 0.5), ("99 %", 0.99), ("all", 1.0))]  # fmt: skip
        return f"{len(known)} changes are shown within: {', '.join(parts)}; {len(self._changed)} are not shown"


def main() -> None:
    parser = argparse.ArgumentParser(description="What people see of the console.")
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=2_000, help="how many of the objects are changed in turn")
    parser.add_argument("--rate", type=float, default=100.0, help="changes per second")
    parser.add_argument("--minutes", type=int, default=11)
    options = parser.parse_args()
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None:
        raise SystemExit("There is no Chromium.")
    with tempfile.TemporaryDirectory() as folder, LocalCluster() as cluster, sync_playwright() as playwright:
        create_widgets(cluster, options.objects)
        port = find_port()
        with running_operator(cluster, pathlib.Path(folder), port) as meter:
            change(cluster, options.objects - 1)
            wait_until_handled(cluster)
            browser = playwright.chromium.launch(
                executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else []
            )
            for _ in range(_OPENINGS):
                page, painted, complete = open_page(browser, f"http://127.0.0.1:{port}/", options.objects)
                print(f"painted after {painted:.2f} s, with all objects after {complete:.2f} s", flush=True)
                page.close()
            page, *_ = open_page(browser, f"http://127.0.0.1:{port}/", options.objects)
            latencies, count, began = Latencies(page), 0, time.monotonic()
            print(f"{meter.memory / 1024:.1f} MiB at first", flush=True)
            for minute in range(options.minutes):
                while time.monotonic() < began + 60 * (minute + 1):
                    number = count % options.changes
                    change(cluster, number)
                    latencies.note(f"widget-{number}")
                    count += 1
                    if count % options.rate == 0:
                        latencies.collect()
                    time.sleep(max(0.0, began + count / options.rate - time.monotonic()))
                print(f"{meter.memory / 1024:.1f} MiB after {minute + 1} min, {count} changes", flush=True)
            time.sleep(1)
            latencies.collect()
            delays = page.evaluate("window.delays")
            print(latencies.describe())
            print(f"the page was busy for more than 50 ms {len(delays)} times, at most {max(delays, default=0):.0f} ms")
            browser.close()


if __name__ == "__main__":
    main()
