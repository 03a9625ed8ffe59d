"""``kopf rbac`` & ``kopf manifests``: the needs of an operator in the cluster, found out from its code."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import click

from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.registry import OperatorRegistry
from kopf._handlers.signatures import check_registry
from kopf._models.crds import list_models, make_definitions
from kopf._operator.activities import Activities
from kopf._operator.namespace_patterns import get_exact
from kopf._packaging.formats import NAMES, RELEASE_NAMESPACE, dump, render
from kopf._packaging.manifests import EXTRAS, NAMESPACE_VARIABLE, Package, make_objects, make_roles
from kopf._packaging.rules import Situation, find_resources, infer_rules, list_defined, merge_observed
from kopf._settings.coordination import is_label, set_coordination
from kopf._settings.settings import OperatorSettings, set_peering, settle_coordination
from kopf._values import records
from kopf._values.operator_error import OperatorError
from kopf._values.reasons import Activity
from kopf._values.resources import Resource
from kopf.cli.crd import read_definitions
from kopf.cli.loading import exiting_on_refusal, load
from kopf.cli.options import CLIControls, check_namespaces, get_registry, get_settings, refuse_both

_STARTUP_TIMEOUT = 10.0
"""How long the startup handlers may take to change the settings, in seconds."""

_REPLICAS = {None: 1, "leader": 2, "shards": 3}
"""The default number of pods: the smallest that survives the loss of one pod."""

_IMAGE = re.compile(r"[^\s{}]+")

Obj = dict[str, Any]


def _check_name(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not is_label(value):  # it is also the value of a label
        rule = "use at most 63 lowercase letters, digits, and dashes, with no dash at the ends"
        raise click.BadParameter(f"{value!r} is not a valid name in Kubernetes: {rule}.", ctx, param)
    return value


def _check_image(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not _IMAGE.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not a valid image name.", ctx, param)
    return value


_OPTIONS = (
    click.option(
        "-A",
        "--all-namespaces",
        "clusterwide",
        is_flag=True,
        help="The operator serves the whole cluster; this is the default.",
    ),
    click.option(
        "-n",
        "--namespace",
        "namespaces",
        multiple=True,
        metavar="PATTERN",
        callback=check_namespaces,
        help='The operator serves this namespace or pattern, as in "kopf run"; can be repeated.',
    ),
    click.option(
        "--into",
        metavar="NAME",
        callback=_check_name,
        help="The namespace in which the operator runs.  [default: default, or the only one of -n]",
    ),
    click.option(
        "-P", "--peering", "peering_name", metavar="NAME", help="The peering object of the operator.  [default: none]"
    ),
    click.option("--leader-election", is_flag=True, help="The operator has several replicas; one works."),
    click.option("--shards", is_flag=True, help="The operator has several replicas; they share the objects."),
    click.option(
        "-m", "--module", "modules", multiple=True, metavar="MODULE", help="Load this module; can be repeated."
    ),
    click.option(
        "--crds",
        "crds",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path),
        metavar="FILE",
        help="A YAML file with custom resource definitions (CRDs); can be repeated.",
    ),
    click.option(
        "--observed",
        "observed",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path),
        metavar="FILE",
        help='Also permit the requests in this file, from "kopf dev --audit FILE" or LocalCluster.write_audit(); '
        "can be repeated.",
    ),
    click.option(
        "--no-startup",
        is_flag=True,
        help="Call no startup handlers; by default, those that take the settings are called.",
    ),
    click.argument("paths", nargs=-1),
)


def _packaging_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        fn = option(fn)
    return fn


@click.command()
@_packaging_options
@click.option("--name", default="operator", show_default=True, metavar="NAME", help="The name of the roles.")
@click.option("--json", "is_json", is_flag=True, envvar="KOPF_RBAC_JSON", help="Print JSON, for programs.")
@click.make_pass_decorator(CLIControls, ensure=True)
def rbac(controls: CLIControls, /, name: str, is_json: bool, **options: Any) -> None:
    """Print the roles that an operator needs, and no other rules, inferred from its files (PATHS)."""
    roles = make_roles(_find_out(controls, **options).rules, name)
    click.echo(json.dumps(roles, indent=2) if is_json else dump(roles), nl=is_json)


@click.command()
@_packaging_options
@click.option(
    "--name",
    required=True,
    metavar="NAME",
    callback=_check_name,
    help="The name of the operator, its service account, its deployment, and so on.",
)
@click.option(
    "--image",
    required=True,
    metavar="IMAGE",
    callback=_check_image,
    help="The container image, with kopf, and with the files in --directory.",
)
@click.option(
    "--directory",
    default="/src",
    show_default=True,
    metavar="DIR",
    help="The directory of the files (PATHS) in the image.",
)
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of pods.  [default: 1; with --leader-election 2, with --shards 3]",
)
@click.option(
    "--format",
    "format",
    type=click.Choice(NAMES),
    default="plain",
    show_default=True,
    help="The tool that deploys the manifests.",
)
@click.option(
    "--with", "extras", multiple=True, type=click.Choice(EXTRAS), help="Add this kind of manifests; can be repeated."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    metavar="DIR",
    help="Write files to this directory, and print nothing.",
)
@click.option(
    "--check",
    type=click.Path(exists=True, file_okay=False, path_type=pathlib.Path),
    metavar="DIR",
    help="Write nothing; name the files in this directory that differ, and exit with 1 if there are any.",
)
@click.make_pass_decorator(CLIControls, ensure=True)
def manifests(
    controls: CLIControls,
    /,
    name: str,
    image: str,
    directory: str,
    replicas: int | None,
    format: str,
    extras: tuple[str, ...],
    output: pathlib.Path | None,
    check: pathlib.Path | None,
    **options: Any,
) -> None:
    """Generate the manifests to deploy an operator: its definitions, permissions, deployment, services.

    PATHS are the files of the operator. Without --output, the command prints all manifests, e.g. for
    "kubectl apply -f -".
    """
    if format != "plain" and output is None and check is None:
        raise click.UsageError(f"The format {format!r} has several files: name the directory for them with --output.")
    package = _find_out(controls, name=name, is_chart=format == "helm", **options)
    mode = package.settings.coordination.mode
    if replicas is not None and replicas > 1 and mode is None:
        raise click.UsageError(
            "Several pods would handle everything several times. With --replicas, also use --leader-election or "
            "--shards, or set settings.coordination.mode in the code."
        )
    package = records.replace(
        package,
        image=image,
        sources=_list_sources(directory, **options),
        extras=frozenset(extras),
        replicas=_REPLICAS[mode] if replicas is None else replicas,
    )
    files = render(make_objects(package), format, name=name, image=image)
    if check is not None:
        _check(check, files)
    elif output is not None:
        for path, text in files.items():
            if text:
                (output / path).parent.mkdir(parents=True, exist_ok=True)
                (output / path).write_bytes(text.encode())
            elif (output / path).exists():
                click.echo(f"Not needed: {output / path}. Delete the file; or, if you wrote it, rename it.", err=True)
    else:
        click.echo("---\n".join(filter(None, files.values())), nl=False)


def _find_out(
    controls: CLIControls,
    *,
    paths: tuple[str, ...],
    modules: tuple[str, ...],
    namespaces: tuple[str, ...],
    clusterwide: bool,
    into: str | None,
    peering_name: str | None,
    crds: tuple[pathlib.Path, ...],
    observed: tuple[pathlib.Path, ...],
    no_startup: bool,
    leader_election: bool,
    shards: bool,
    name: str = "operator",
    is_chart: bool = False,
) -> Package:
    """
    Load the operator, and infer its needs, without a cluster: all that does not depend on the image.

    Large because these are the options of the commands.
    """
    refuse_both("--all-namespaces", "--namespace", clusterwide, namespaces)
    exact = get_exact(namespaces)
    own = into or (namespaces[0] if exact == {*namespaces} and len(exact) == 1 else "default")
    names = {own: RELEASE_NAMESPACE} if is_chart else {}
    os.environ[NAMESPACE_VARIABLE] = names.get(own, own)  # the settings can depend on that
    settings = get_settings(controls)
    set_peering(settings, standalone=None, priority=None, name=peering_name)
    refuse_both("--leader-election", "--shards", leader_election, shards)
    set_coordination(settings.coordination, leader_election=leader_election and name, shards=shards and name)
    # The output of the files is not a part of the answer.
    with contextlib.redirect_stdout(sys.stderr), exiting_on_refusal():
        load(paths, modules)
        registry = get_registry(controls)
        if not registry:
            raise click.UsageError("There are no handlers. Name the files of the operator, or modules with -m.")
        check_registry(registry)
        if not no_startup:
            asyncio.run(configure(registry, settings))
        models = make_definitions(list_models(registry))
    try:
        settle_coordination(settings)
    except OperatorError as e:
        raise click.ClickException(str(e)) from e
    is_exact = bool(namespaces) and exact == {*namespaces}
    situation = Situation(
        scopes=frozenset(names.get(item, item) for item in exact) if is_exact else frozenset({None}),
        has_namespaces=bool(namespaces),
        has_patterns=not is_exact,
        own_namespace=names.get(own, own),
    )
    names_of_models = {item["metadata"]["name"] for item in models}
    others = [item for path in crds for item in read_definitions(path, "'--crds'")]
    definitions = [*models, *[item for item in others if item.get("metadata", {}).get("name") not in names_of_models]]
    resources, unknown = find_resources(registry, [*list_builtins(), *_list_defined(definitions)])
    if unknown:
        raise click.ClickException(
            f"Unknown resources: {', '.join(map(str, unknown))}. Name the files with their definitions: "
            "--crds crd.yaml; or name the group in the code: @kopf.on.create('example.com', 'kopfexamples'). "
            "The kinds of Kubernetes itself are known only if the local cluster is installed: "
            "pip install 'kopf[dev]'"
        )
    rules = infer_rules(registry, settings, resources, situation)
    rules = merge_observed(rules, [request for path in observed for request in _read_audit(path)], situation)
    scope = [f"--namespace={names.get(item, item)}" for item in namespaces] or ["--all-namespaces"]
    is_alone = not settings.peering.mandatory
    peering = ["--standalone"] if is_alone else [f"--peering={peering_name}"] if peering_name else []
    option = [f"--leader-election={name}"] if leader_election else [f"--shards={name}"] if shards else []
    arguments = [*scope, *(peering if not (is_alone and option) else []), *option, "--log-format=json"]
    return Package(
        name=name,
        namespace=names.get(own, own),
        arguments=arguments,
        rules=rules,
        definitions=definitions,
        registry=registry,
        settings=settings,
    )


def _list_sources(directory: str, *, paths: Sequence[str], modules: Sequence[str], **_: Any) -> list[str]:
    files = [f"{directory.rstrip('/')}/{pathlib.Path(path).name}" for path in paths]
    for path, file in zip(paths, files, strict=True):
        if files.count(file) > 1:
            raise click.UsageError(f"{path!r} and another file are both {file!r} in the image: rename one, or use -m.")
    return [*files, *[f"--module={module}" for module in modules]]


async def configure(registry: OperatorRegistry, settings: OperatorSettings) -> None:
    """Call the startup handlers that take the settings; all others are for running operators."""
    handlers = registry.get_activities(Activity.STARTUP)
    handlers = [item for item in handlers if item.reads is None or "settings" in item.reads]
    executor = HandlerExecutor(settings.execution)
    try:
        async with asyncio.timeout(_STARTUP_TIMEOUT):
            outcomes = await Activities(settings, executor).attempt(Activity.STARTUP, handlers, is_quiet=True)
    except TimeoutError as e:
        text = f"The startup handlers did not succeed in {_STARTUP_TIMEOUT:g} seconds. Skip them with --no-startup."
        raise click.ClickException(text) from e
    finally:
        executor.threads.release()
    for key, outcome in outcomes.items():
        if outcome.exception is not None:
            raise click.ClickException(
                f"The startup handler {key!r} failed: {outcome.exception!r}. Skip it with --no-startup."
            )


def _list_defined(definitions: Collection[Obj]) -> list[Resource]:
    try:
        return [*list_defined(definitions)]
    except (LookupError, TypeError, AttributeError) as e:
        raise click.BadParameter(f"A definition is incomplete: {e!r}", param_hint="'--crds'") from e


def _read_audit(path: pathlib.Path) -> list[Mapping[str, Any]]:
    try:
        requests: list[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["requests"]
    except (OSError, ValueError, LookupError, TypeError) as e:
        raise click.BadParameter(
            f"{str(path)!r} is not an audit of a local cluster: {e!r}", param_hint="'--observed'"
        ) from e
    return requests


def list_builtins() -> list[Resource]:
    """List the built-in resources of Kubernetes; none if the local cluster is not installed."""
    try:
        from kopf_cluster.kinds.resources import read_resources
    except ImportError:
        return []
    return [
        Resource(
            group=item.group,
            version=item.version,
            plural=item.plural,
            kind=item.kind,
            singular=item.singular,
            shortcuts=frozenset(item.short_names),
            categories=frozenset(item.categories),
            subresources=frozenset(item.subresources),
            namespaced=item.namespaced,
            verbs=frozenset(item.verbs),
        )
        for item in read_resources()
        if item.is_stored and not item.is_preview
    ]


def _check(folder: pathlib.Path, files: Mapping[str, str]) -> None:
    """Compare the files with those in the folder; an empty text is for a file that must be absent."""
    different = [name for name, text in files.items() if not _has_text(folder / name, text)]
    if different:
        click.echo(
            f"Out of date: {', '.join(different)}. Update the files with --output, or delete them.",
            err=True,
        )
        raise SystemExit(1)


def _has_text(path: pathlib.Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode() if text else not path.exists()
