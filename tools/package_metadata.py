"""
What the package index shows: the README with links that work there, and the addresses of the project.

The README has relative links, which work in each clone and fork. When the package is built, they lead to the repository
in the environment variable ``KOPF_REPOSITORY_URL``, e.g. ``https://github.com/OWNER/kopf``; releases set it. So do
the addresses of the project; that of the docs is ``KOPF_SITE_URL``, as for the site.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[[^]]*\]\()(?!\w+:|#)([^)\s]+)(?=\))")


class PackageMetadata(MetadataHookInterface):
    """Fills in the dynamic fields of ``pyproject.toml``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the text of the README, and the addresses, if there are any."""
        repository = os.environ.get("KOPF_REPOSITORY_URL", "").rstrip("/")
        text = pathlib.Path(self.root, "README.md").read_text(encoding="utf-8")
        text = make_links_absolute(text, repository) if repository else text
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = list_addresses(repository, os.environ.get("KOPF_SITE_URL", ""))


def make_links_absolute(text: str, repository: str) -> str:
    """Let the relative links of Markdown lead to the repository; and pictures to their files, not to pages of them."""
    return _LINK.sub(lambda m: f"{m[1]}{m[2]}{repository}/{'raw' if m[1] else 'blob'}/HEAD/{m[3]}", text)


def list_addresses(repository: str, site: str) -> dict[str, str]:
    """Give what the index lists beside the description."""
    addresses = {"Documentation": site or (repository and f"{repository}/blob/HEAD/docs/index.md")}
    if repository:
        addresses["Repository"] = repository
        addresses["Issues"] = f"{repository}/issues"
        addresses["Changelog"] = f"{repository}/blob/HEAD/CHANGELOG.md"
    return {name: url for name, url in addresses.items() if url}
