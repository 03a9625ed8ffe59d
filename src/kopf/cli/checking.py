"""``kopf check``: find wrong or dangerous code in an operator, without a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import sys
import tokenize
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from kopf._checking import asynchrony, declaring, repeating
from kopf._checking.definitions import (
    Definitions,
    check_fields,
    check_permissions,
    check_selectors,
    check_versions,
    read_definitions,
)
from kopf._checking.findings import Finding, drop_exempted
from kopf._checking.refusals import collecting_refusals, list_refusals, make_finding
from kopf._checking.sources import Source
from kopf._handlers.declarations import DeclarationError
from kopf._handlers.registry import OperatorRegistry
from kopf._logging.tracebacks import is_library
from kopf._models.crds import list_models, make_definitions
from kopf._settings.settings import OperatorSettings
from kopf.cli.crd import read_manifests
from kopf.cli.loading import LoadingError, load_anew
from kopf.cli.packaging import configure, list_builtins


@click.command()
@click.option(
    "-m", "--module", "modules", multiple=True, metavar="MODULE", help="Check this importable module; can be repeated."
)
@click.option(
    "--crds",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="A file with custom resource definitions (CRDs); can be repeated.",
)
@click.option(
    "--roles",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="A file with the roles of the operator, to report missing permissions; can be repeated.",
)
@click.option("--json", "is_json", is_flag=True, envvar="KOPF_CHECK_JSON", help="Print JSON, for programs.")
@click.argument("paths", nargs=-1)
def check(
    paths: tuple[str, ...], modules: tuple[str, ...], crds: tuple[str, ...], roles: tuple[str, ...], is_json: bool
) -> None:
    """Find mistakes and risks in an operator, without a cluster: in its files (PATHS) and modules.

    The command loads the code, but calls no handlers. It also checks your own files that this code imports.
    Silence a line with a comment: "# kopf: ignore[rule]".

    The exit code is 0 without findings, and 1 with any error or warning.
    """
    if not paths and not modules:
        raise click.UsageError("Name the files of the operator, or its modules: kopf check handlers.py")
    # The output of the files is not a part of the answer.
    with contextlib.redirect_stdout(sys.stderr):
        granted = {path: read_manifests(pathlib.Path(path), "'--roles'") for path in roles}
        documents = [item for path in crds for item in read_manifests(pathlib.Path(path), "'--crds'")]
        try:
            definitions = read_definitions(documents)
        except (LookupError, TypeError, AttributeError) as e:
            raise click.BadParameter(f"A definition is incomplete: {e!r}", param_hint="'--crds'") from e
        findings = find_all(paths, modules, definitions, granted)
    if is_json:
        click.echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            click.echo(str(finding))
    if findings:
        raise SystemExit(1)


def find_all(
    paths: Sequence[str], modules: Sequence[str], given: Definitions, roles: Mapping[str, Sequence[Any]]
) -> Sequence[Finding]:
    """Find all problems of the operator; with the definitions of its resources, and its roles by their files."""
    registry, findings, known = OperatorRegistry(), [], {*sys.modules}
    with collecting_refusals() as problems:
        for kind, name in (*((0, path) for path in paths), *((1, module) for module in modules)):
            try:
                load_anew([] if kind else [name], [name] if kind else [], registry)
            except LoadingError as e:
                if isinstance(e.__cause__, DeclarationError):
                    problems.extend(e.__cause__.problems)
                else:
                    findings.append(_explain_failure(e.__cause__, e.message, name))
            except SystemExit as e:  # it is the code that exits
                findings.append(_explain_failure(e, "", name))
    models: Definitions = {}
    try:
        models = read_definitions(make_definitions(list_models(registry)))
    except DeclarationError as e:
        problems.extend(e.problems)
    first = paths[0] if paths else modules[0]
    findings += [make_finding(problem, first) for problem in (*problems, *list_refusals(registry))]
    sources = []
    for path, text in _read_texts(paths, {*sys.modules} - known):
        with contextlib.suppress(SyntaxError):  # the loading reports it
            sources.append(Source(path, text))
    findings += [finding for source in sources for finding in check_code(source)]
    definitions = {**given, **models}
    resources = [*definitions, *list_builtins()]
    findings += check_fields(registry, definitions, sources)
    findings += check_selectors(registry, resources) if given else ()
    findings += check_versions(registry)
    if roles and not findings:  # otherwise, the needs are unknown
        settings = OperatorSettings()
        asyncio.run(configure(registry, settings))
        findings += check_permissions(registry, settings, resources, roles)
    texts = {source.path: source.text for source in sources}
    return sorted(dict.fromkeys(drop_exempted(findings, texts)))


def check_code(source: Source) -> Iterator[Finding]:
    """Check the handlers of the file by the rules for code. A function is reported for each handler that calls it."""
    for handler in source.handlers:
        for rules in (asynchrony, declaring, repeating):
            yield from rules.find_problems(source, handler)


def _explain_failure(cause: BaseException | None, message: str, path: str) -> Finding:
    if isinstance(cause, SyntaxError) and os.path.isfile(cause.filename or ""):  # it can be of an imported file
        return Finding(
            os.path.relpath(cause.filename or path),
            cause.lineno or 0,
            "load",
            f"There is a syntax error: {cause.msg}.",
            "Correct the line, or the one before it.",
        )
    frames = traceback.extract_tb(cause.__traceback__ if cause is not None else None)
    own = [frame for frame in frames if not is_library(frame.filename)]
    place, line = (os.path.relpath(own[-1].filename), own[-1].lineno or 0) if own else (path, 0)
    text = f"The file cannot be loaded: {type(cause).__name__}: {cause}" if own else message
    cure = "Correct the code, or install the missing packages beside kopf."
    if "relative import with no known parent package" in text:
        cure = f"Load the file as a module of its package: -m {os.path.splitext(place)[0].replace(os.sep, '.')}"
    return Finding(place, line, "load", text, cure)


def _read_texts(paths: Sequence[str], modules: set[str]) -> Iterator[tuple[str, str]]:
    """Read the files, and the files that they have imported, except for libraries."""
    imported = [getattr(sys.modules[name], "__file__", None) or "" for name in modules]
    own = [path for path in imported if path.endswith(".py") and not is_library(path)]
    for path in {os.path.realpath(path): os.path.relpath(path) for path in (*own, *paths) if path}.values():
        with contextlib.suppress(OSError, UnicodeError, SyntaxError), tokenize.open(path) as file:
            yield path, file.read()
