"""``kopf init``: a new project of an operator: its model, handlers, tests, image, CI, manifests."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import json
import keyword
import pathlib
import re
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable

import click

from kopf._models.custom_resources import pluralise
from kopf._settings.coordination import is_label

_SUFFIX = ".tmpl"
"""The suffix of templates, so that tools do not take them for the code of this project."""
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,49}[a-z0-9])?")
"""A label by RFC 1123; the kind of the objects and the names of all manifests are made from it."""

_FOR_IMAGES = re.compile(r">=| @ https?://")
"""Sources that the build of an image can use: it has neither git nor the files of this machine."""
_ARCHIVE = "https://github.com/OWNER/kopf/archive/COMMIT.tar.gz"

_TAKEN = frozenset({*keyword.kwlist, "Any", "Spec", "Status"})
"""The names that cannot be kinds, as the templates use them."""


def _check_name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not _NAME.fullmatch(value):
        rule = "use at most 51 lowercase letters, digits, and dashes, with a letter first and no dash last"
        raise click.BadParameter(f"{value!r} is not a valid name in Kubernetes: {rule}.", ctx, param)
    if _make_kind(value) in _TAKEN:
        raise click.BadParameter(f"{value!r} cannot be the name: it has another meaning in the code.", ctx, param)
    return value


def _check_group(ctx: click.Context, param: click.Parameter, value: str) -> str:
    labels = value.split(".")
    if len(labels) < 2 or not all(map(is_label, labels)):
        raise click.BadParameter(f"{value!r} is not a domain, for example: example.com", ctx, param)
    return value


@click.command()
@click.option(
    "--group", default="example.com", show_default=True, metavar="DOMAIN", callback=_check_group, help="The API group."
)
@click.argument("name", callback=_check_name)
def init(name: str, group: str) -> None:
    """Create a new project in the folder NAME: an operator with tests, image, CI, and manifests.

    The tests pass at once. The folder must be new or empty: nothing is overwritten.
    """
    folder = pathlib.Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.ClickException(f"{name!r} already exists, and is not overwritten. Choose another name.")
    kind = _make_kind(name)
    words = {"name": name, "group": group, "kind": kind, "singular": kind.lower(), "plural": pluralise(kind.lower())}
    words["source"] = _find_source()
    for path, text in _read_templates(importlib.resources.files("kopf") / "_project_templates"):
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_fill(text, words), encoding="utf-8")
        except OSError as e:
            raise click.ClickException(f"Cannot write {name!r}: {e.strerror}.") from e
    if not _FOR_IMAGES.match(words["source"]):
        click.echo(
            f"The image cannot install Kopf from {words['source'].removeprefix(' @ ')}. Before you build the image, "
            f"write the address of an archive into both requirements files, e.g. {_ARCHIVE}.\n",
            err=True,
        )
    click.echo(f"The operator is in {name}/. Try it:\n\n  cd {name} && make test && kopf dev")


def _make_kind(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))


def _find_source() -> str:
    """Return the end of the requirement of Kopf: a version in the index, or where this Kopf was installed from."""
    try:
        record = importlib.metadata.distribution("kopf").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        record = None
    if record is None:
        return ">=2"
    origin = json.loads(record)
    url: str = origin["url"]
    if (vcs := origin.get("vcs_info")) is not None:
        # No archive, even of GitHub: that of a private repository needs other credentials than git.
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f" @ {url}"


def _read_templates(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Read the templates, with the paths of the files to make: ``dot-`` is for hidden files."""
    for item in folder.iterdir():
        path = prefix + item.name.removesuffix(_SUFFIX).replace("dot-", ".", 1)
        if item.is_dir():
            yield from _read_templates(item, f"{path}/")
        elif item.name.endswith(_SUFFIX):
            yield path, item.read_text(encoding="utf-8")


def _fill(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: words[match[1]], text)
