"""
The site loads nothing from elsewhere: it has all its scripts itself, so it also works offline and in closed networks.

The build downloads the library that draws diagrams once, checks it against its digest, and keeps it in `build/mermaid`.
Without network, the build succeeds, too: the site then shows the text of each diagram.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import pathlib
import posixpath
import tarfile
import urllib.request

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

VERSION = "11.17.2"
"""The theme needs version 11: later ones draw differently."""

DIGEST = "PmFr1c5cSfNf5AngLLR98DrbvR4U5KeD7I+hQkGqG5w5Veu3QT4dG0qu9f99cpn/sKj2XxRBK0q7EL6hr9NY/A=="
"""SHA-512 of the archive: `npm view @mermaid-js/tiny@VERSION dist.integrity`."""

ARCHIVE = f"https://registry.npmjs.org/@mermaid-js/tiny/-/tiny-{VERSION}.tgz"
CACHE = pathlib.Path(__file__).parent.parent / "build" / "mermaid" / f"{VERSION}.js"
SCRIPT = "assets/javascripts/mermaid.js"

_DIAGRAM = 'class="mermaid"'
_BUNDLE = '<script src="{}assets/javascripts/bundle.'
_WORKER_ELSEWHERE, _WORKER = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker.js"
_FACTS = ' data-md-component="source"'
"""With it, the theme asks GitHub for the stars of the repository."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the library of the diagrams, if it is at hand."""
    library = get_library()
    if library is not None:
        files.append(File.generated(config, SCRIPT, content=library))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Replace what the theme would load from elsewhere."""
    root = posixpath.relpath(".", posixpath.dirname(page.file.dest_uri) or ".")
    root = "" if root == "." else f"{root}/"
    output = replace_foreign(output, root)
    return load_library(output, root) if CACHE.exists() else output.replace(_DIAGRAM, "")


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """Do the same with the page that servers show for missing ones."""
    return replace_foreign(output_content, "/") if template_name == "404.html" else output_content


def replace_foreign(output: str, root: str) -> str:
    """Replace what all pages would load from elsewhere."""
    return output.replace(_WORKER_ELSEWHERE, root + _WORKER).replace(_FACTS, "")


def load_library(output: str, root: str) -> str:
    """Load the library before the theme, which would load it from elsewhere; only pages with diagrams need it."""
    if _DIAGRAM not in output:
        return output
    bundle = _BUNDLE.format(root)
    if bundle not in output:
        raise PluginError("The theme does not load its scripts where the diagrams expect them.")
    return output.replace(bundle, f'<script src="{root}{SCRIPT}"></script>\n{bundle}')


def get_library() -> str | None:
    """Give the library from the cache, or from the registry; None without network."""
    if not CACHE.exists():
        try:
            with urllib.request.urlopen(ARCHIVE, timeout=10) as response:
                archive = response.read()
        except (OSError, http.client.HTTPException) as e:
            click.echo(f"The diagrams are shown as texts: {ARCHIVE} cannot be downloaded: {e}", err=True)
            return None
        script = unpack(archive)
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        part = CACHE.with_suffix(".part")
        part.write_bytes(script)
        part.replace(CACHE)  # a build that is killed leaves no half of it
    return CACHE.read_text(encoding="utf-8")


def unpack(archive: bytes) -> bytes:
    """Give the script in the archive, if the archive is the expected one."""
    if base64.b64encode(hashlib.sha512(archive).digest()).decode() != DIGEST:
        raise PluginError(f"{ARCHIVE} is not the archive that was chosen: its digest differs.")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        script = files.extractfile("package/dist/mermaid.tiny.js")
        assert script is not None
        return script.read()
