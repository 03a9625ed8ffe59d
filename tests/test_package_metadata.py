"""What the package index shows: links that lead somewhere, pictures that are pictures, and the addresses."""

from __future__ import annotations

import pathlib
import re

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = pathlib.Path(__file__).parent.parent
REPOSITORY = "https://github.com/OWNER/kopf"


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> ProjectMetadata[PluginManager]:
    monkeypatch.setenv("KOPF_REPOSITORY_URL", f"{REPOSITORY}/")
    monkeypatch.setenv("KOPF_SITE_URL", "https://kopf.example.com/")
    return ProjectMetadata(str(ROOT), PluginManager())


def test_links_of_the_readme_are_absolute(metadata: ProjectMetadata[PluginManager]) -> None:
    links = re.findall(r"(!?)\[[^]]*\]\(([^)]+)\)", metadata.core.readme)
    assert len(links) >= 40
    written = re.findall(r"!?\[[^]]*\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    for (mark, link), path in zip(links, written, strict=True):
        kind = "raw" if mark else "blob"
        assert link == (path if "://" in path else f"{REPOSITORY}/{kind}/HEAD/{path}")
    assert f"]({REPOSITORY}/raw/HEAD/docs/images/demo.svg)" in metadata.core.readme


def test_addresses(metadata: ProjectMetadata[PluginManager]) -> None:
    assert metadata.core.urls == {
        "Changelog": f"{REPOSITORY}/blob/HEAD/CHANGELOG.md",
        "Documentation": "https://kopf.example.com/",
        "Issues": f"{REPOSITORY}/issues",
        "Repository": REPOSITORY,
    }


def test_without_a_repository_it_is_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KOPF_REPOSITORY_URL", raising=False)
    monkeypatch.delenv("KOPF_SITE_URL", raising=False)
    metadata = ProjectMetadata(str(ROOT), PluginManager())
    assert metadata.core.readme == (ROOT / "README.md").read_text()
    assert metadata.core.readme_content_type == "text/markdown"
    assert metadata.core.urls == {}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_releases_name_the_repository() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert re.search(r"run: make wheel sbom\n +env:\n +KOPF_REPOSITORY_URL: ", workflow)
