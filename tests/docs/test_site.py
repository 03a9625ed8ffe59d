"""The site: it loads nothing from elsewhere, draws its diagrams, and has the addresses that its build is told."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import io
import os
import pathlib
import re
import tarfile
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort

from tests.patience import PATIENCE

ROOT = pathlib.Path(__file__).parent.parent.parent
HOOK, PAGES_HOOK = "tools/docs_offline.py", "tools/docs_site.py"
TEXTS = {
    "index.md": "# Home\n\n[deeper](how-to/page.md)\n\n```mermaid\nflowchart LR\n  three --> four\n```\n",
    "how-to/page.md": "# A page\n\n```mermaid\nflowchart LR\n  one --> two\n```\n",
    "plain.md": "# No diagrams\n",
}
LIBRARY = """globalThis.drawn = "";
globalThis.mermaid = {
  initialize() {},
  async render(id, text) { globalThis.drawn += text; return {svg: "<svg></svg>"}; },
}"""
REPOSITORY, ADDRESS = "https://github.com/OWNER/kopf", "https://kopf.example.com/"


def configure(monkeypatch: pytest.MonkeyPatch, *, repository: str = "", address: str = "", **options: Any) -> Any:
    """Load the configuration of the site, for these addresses and with other options."""
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    for name, value in (("KOPF_REPOSITORY_URL", repository), ("KOPF_SITE_URL", address)):
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    return load_config(str(ROOT / "mkdocs.yml"), **options)


@pytest.fixture
def config(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MkDocsConfig:
    """A small site, which is built without any network."""
    for name, text in TEXTS.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text)
    assets = tmp_path / "docs" / "assets"
    assets.symlink_to(ROOT / "docs" / "assets")
    options: dict[str, Any] = {"docs_dir": str(tmp_path / "docs"), "site_dir": str(tmp_path / "site")}
    options |= {"nav": list(TEXTS), "hooks": [HOOK], "plugins": ["search", "offline"]}
    config: MkDocsConfig = configure(monkeypatch, repository=REPOSITORY, **options)
    archive = pack("package/dist/mermaid.tiny.js", LIBRARY.encode())
    (tmp_path / "archive.tgz").write_bytes(archive)
    digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    changes = {"ARCHIVE": (tmp_path / "archive.tgz").as_uri(), "DIGEST": digest, "CACHE": tmp_path / "cache" / "it.js"}
    for name, value in changes.items():
        monkeypatch.setattr(config["hooks"][HOOK], name, value)
    return config


def pack(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def read(config: MkDocsConfig, name: str) -> str:
    return (pathlib.Path(config.site_dir) / name).read_text()


def list_foreign(text: str) -> list[str]:
    """List all that a browser would load from elsewhere when it shows the page."""
    loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?([^\s\">]+)", text)
    loaded += re.findall(r"<link\b[^>]*\brel=\"?(?:stylesheet|icon|preconnect|preload)[^>]*\bhref=\"?([^\s\">]+)", text)
    return [address for address in loaded if re.match(r"(?:\w+:)?//", address)]


def test_pages_load_nothing_from_elsewhere_and_only_those_with_diagrams_the_library(config: MkDocsConfig) -> None:
    build(config)
    pages = list(pathlib.Path(config.site_dir).rglob("*.html"))
    assert len(pages) == len(TEXTS) + 1  # and the one for missing pages
    assert [(page.name, found) for page in pages if (found := list_foreign(page.read_text()))] == []
    assert 'data-md-component="source"' not in read(config, "index.html")
    assert f'href="{REPOSITORY}"' in read(config, "index.html")
    for name, script in (("index.html", "assets/"), ("how-to/page.html", "../assets/")):
        text = read(config, name)
        assert text.index(f'src="{script}javascripts/mermaid.js"') < text.index(f'src="{script}javascripts/bundle.')
    assert "mermaid.js" not in read(config, "plain.html")


def test_the_library_is_downloaded_once(config: MkDocsConfig, tmp_path: pathlib.Path) -> None:
    build(config)
    (tmp_path / "archive.tgz").unlink()
    build(config)
    assert read(config, "assets/javascripts/mermaid.js") == LIBRARY


def test_without_network_the_diagrams_are_texts(
    config: MkDocsConfig, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "archive.tgz").unlink()
    build(config)
    assert "The diagrams are shown as texts: " in capsys.readouterr().err
    assert "mermaid" not in read(config, "how-to/page.html")  # else the theme would look for it elsewhere
    assert "one --&gt; two" in read(config, "how-to/page.html")


def test_another_archive_is_refused(
    config: MkDocsConfig, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "archive.tgz").write_bytes(pack("package/dist/mermaid.tiny.js", b"alert('hello')"))
    with pytest.raises(Abort):
        build(config)
    assert "its digest differs" in caplog.text
    assert not (tmp_path / "cache").exists()


@pytest.fixture
def site_addresses(config: MkDocsConfig) -> Iterator[list[str]]:
    """Where the site is, as files and on a server."""
    build(config)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=config.site_dir)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield [pathlib.Path(config.site_dir).as_uri(), f"http://127.0.0.1:{server.server_port}"]
        server.shutdown()
        thread.join()


def test_in_a_browser_without_network(site_addresses: list[str], chromium: str) -> None:
    playwright_api = pytest.importorskip("playwright.sync_api")
    with playwright_api.sync_playwright() as playwright:
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=args)
        foreign = [url for address in site_addresses for url in visit(browser, address)]
        browser.close()
    assert foreign == []


def visit(browser: Any, address: str) -> list[str]:
    """Look at the pages with diagrams until they are drawn; give what was requested from elsewhere."""
    requested: list[str] = []
    page = browser.new_context(offline=address.startswith("file:")).new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.on("request", lambda request: requested.append(request.url))
    for name, text in (("index", "three --> four"), ("how-to/page", "one --> two")):
        page.goto(f"{address}/{name}.html")
        page.wait_for_function("text => globalThis.drawn.includes(text)", arg=text)
    return [url for url in requested if url.startswith("http") and not url.startswith(address)]


def list_pages(items: Any) -> list[str]:
    children = items.values() if isinstance(items, dict) else [] if isinstance(items, str) else items
    return [items] if isinstance(items, str) else [page for child in children for page in list_pages(child)]


def test_pages_for_machines_are_those_of_the_navigation(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure(monkeypatch)
    config["hooks"][PAGES_HOOK].on_config(config)
    sections = config.plugins["llmstxt"].config.sections
    assert [page for section in list(sections)[:-1] for page in sections[section]] == list_pages(config.nav)
    assert {"How-to", "Reference", "Decisions"} <= set(sections)


def test_with_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    config = configure(monkeypatch, repository=REPOSITORY, address=ADDRESS, site_dir=str(tmp_path))
    config["hooks"][PAGES_HOOK].on_config(config)
    (tmp_path / "llms.txt").write_text(f"[Home]({ADDRESS}index.md)")
    config["hooks"][PAGES_HOOK].on_post_build(config)
    assert (tmp_path / "llms.txt").read_text() == f"[Home]({ADDRESS}index.md)"
    assert (config.site_url, config.repo_url, config.edit_uri) == (ADDRESS, REPOSITORY, "edit/main/docs/")


def test_without_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    config = configure(monkeypatch, site_dir=str(tmp_path))
    config["hooks"][PAGES_HOOK].on_config(config)
    (tmp_path / "how-to").mkdir()
    (tmp_path / "llms.txt").write_text("[Home](/index.md)")
    (tmp_path / "how-to" / "page.md").write_text("[Home](/index.md), [elsewhere](https://example.com/)")
    config["hooks"][PAGES_HOOK].on_post_build(config)
    assert (tmp_path / "llms.txt").read_text() == "[Home](index.md)"
    assert (tmp_path / "how-to" / "page.md").read_text() == "[Home](../index.md), [elsewhere](https://example.com/)"
    assert config.edit_uri is None  # a path alone would be refused
