"""``kopf crd``: the definitions of the custom resources of an operator, made from its models."""

from __future__ import annotations

import pathlib
from typing import Any

import click
import yaml

from kopf._models.crd_changes import CRDChange, compare
from kopf._models.crds import list_models, make_definitions
from kopf._packaging.formats import Dumper
from kopf.cli.loading import LoadingError, exiting_on_refusal, load
from kopf.cli.options import CLIControls, get_registry, refuse_both

_FILE = click.Path(exists=True, dir_okay=False, path_type=pathlib.Path)


@click.command()
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Load this module; can be repeated.")
@click.option("--check", "checked", type=_FILE, metavar="FILE", help="Check that the file is up to date, e.g. in CI.")
@click.option(
    "--diff",
    "compared",
    type=_FILE,
    metavar="FILE",
    help="List the changes since the file, and say which of them are breaking.",
)
@click.argument("paths", nargs=-1)
@click.make_pass_decorator(CLIControls, ensure=True)
def crd(
    controls: CLIControls,
    /,
    paths: tuple[str, ...],
    modules: tuple[str, ...],
    checked: pathlib.Path | None,
    compared: pathlib.Path | None,
) -> None:
    """
    Print the custom resource definitions (CRDs) made from the models in the files (PATHS).

    With --check, the exit code is 1 if the definitions in the file differ. With --diff, it is 1 if any change is
    breaking: the cluster would refuse, drop, or read differently a value that it accepts now.
    """
    if not paths and not modules:
        raise click.UsageError("Nothing to load. Name the files with models, or modules with -m.")
    refuse_both("--check", "--diff", checked, compared)
    with exiting_on_refusal():
        load(paths, modules)
        definitions = make_definitions(list_models(get_registry(controls)))
    if not definitions:
        raise LoadingError(
            f"There are no models in {', '.join((*paths, *modules))}. Declare them, for example:\n\n"
            "    class WebApp(kopf.CustomResource[WebAppSpec, WebAppStatus], group='example.com', version='v1'):\n"
            "        ..."
        )
    if (file := checked or compared) is None:
        click.echo(dump(definitions), nl=False)
        return
    changes = compare(read_definitions(file, "'--check'" if compared is None else "'--diff'"), definitions)
    for change in sorted(changes, reverse=True, key=lambda item: item.is_breaking):
        click.echo(_describe(change) if checked is None else f"{change.path}: {change.text}.")
    if checked is not None and changes:
        click.echo(f"{file} is not up to date. To update it: kopf crd {' '.join(paths)} > {file}", err=True)
    if changes and (checked is not None or any(change.is_breaking for change in changes)):
        raise SystemExit(1)


def dump(definitions: list[dict[str, Any]]) -> str:
    """Write the definitions in YAML: the same models always give the same text."""
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 120, "explicit_start": True}
    text: str = yaml.dump_all(definitions, Dumper=Dumper, **options)
    return text


def _describe(change: CRDChange) -> str:
    return f"{'BREAKING' if change.is_breaking else 'harmless'}  {change.path}: {change.text}."


def read_manifests(path: pathlib.Path, option: str) -> list[dict[str, Any]]:
    """Read the objects of a YAML file. Raises :class:`click.BadParameter` with this name of the option."""
    try:
        documents = [item for item in yaml.safe_load_all(path.read_text(encoding="utf-8")) if item is not None]
    except (OSError, UnicodeError, yaml.YAMLError) as e:
        raise click.BadParameter(f"{str(path)!r} cannot be read: {e}", param_hint=option) from e
    for item in documents:
        if not isinstance(item, dict):
            raise click.BadParameter(f"{str(path)!r} has a document that is no object: {item!r:.50}", param_hint=option)
    return documents


def read_definitions(path: pathlib.Path, option: str) -> list[dict[str, Any]]:
    """Read the definitions of custom resources from a YAML file; raise the same errors."""
    return [item for item in read_manifests(path, option) if item.get("kind") == "CustomResourceDefinition"]
