"""``kopf explain``: why the handlers of an object run or do not run, and when they run next."""

from __future__ import annotations

import contextlib
import json
import logging.handlers
import sys
import urllib.parse
from collections.abc import Iterator

import click

from kopf._handlers.registry import OperatorRegistry
from kopf._insight.endpoint.console_client import ConsoleClientError, ask_operator
from kopf._insight.explaining.explanation import Explanation, Query
from kopf._insight.explaining.wording import render
from kopf._operator.object_explaining import explain_object
from kopf._settings.settings import OperatorSettings
from kopf.cli.loading import exiting_on_refusal, load
from kopf.cli.options import CLIControls, get_registry, make_access, run_to_end


def _check_url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and urllib.parse.urlsplit(value).scheme not in ("http", "https"):
        raise click.BadParameter(f"{value!r} is not a URL, for example: http://127.0.0.1:8090", ctx, param)
    return value


@click.command()
@click.option("-n", "--namespace", metavar="NAME", help="The namespace of the object.  [default: as in the kubeconfig]")
@click.option(
    "-m",
    "--module",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Load the handlers of this importable module; can be repeated.",
)
@click.option(
    "--endpoint",
    metavar="URL",
    callback=_check_url,
    help="Ask a running operator through its console, e.g. http://127.0.0.1:8090.  [default: ask none]",
)
@click.option(
    "--token",
    metavar="TOKEN",
    envvar=["KOPF_EXPLAIN_TOKEN", "KOPF_CONSOLE_TOKEN"],
    help="The token of the console; the environment variable KOPF_CONSOLE_TOKEN is safer.",
)
@click.option("--json", "is_json", is_flag=True, envvar="KOPF_EXPLAIN_JSON", help="Print JSON, for programs.")
@click.argument("resource")
@click.argument("name", required=False)
@click.argument("paths", nargs=-1)
@click.make_pass_decorator(CLIControls, ensure=True)
def explain(
    controls: CLIControls,
    /,
    resource: str,
    name: str | None,
    paths: tuple[str, ...],
    modules: tuple[str, ...],
    namespace: str | None,
    endpoint: str | None,
    token: str | None,
    is_json: bool,
) -> None:
    """Explain why the handlers of an object run or do not run, and when they run next.

    RESOURCE is as in kubectl: kopfexamples, kex, KopfExample, kopfexamples.kopf.dev. NAME is the name of the object;
    both can be given at once: kex/name.
    PATHS are the files of the operator: with them, the explanation shows which filters reject the object.

    The command changes nothing. A running operator knows more than the object shows: see --endpoint.
    """
    if "/" in resource:  # then, the files begin where the name would be
        paths = paths if name is None else (name, *paths)
        resource, _, name = resource.partition("/")
    if not name or "/" in name:
        raise click.UsageError("Name one object: kopf explain RESOURCE NAME, or RESOURCE/NAME.")
    registry = None
    # The output of the files is not a part of the answer.
    with _collecting_warnings() as warnings, contextlib.redirect_stdout(sys.stderr):
        if paths or modules:
            with exiting_on_refusal():
                load(paths, modules)
            registry = get_registry(controls)
        query = Query(resource, namespace, name)
        answer = run_to_end(controls, _ask(controls, query, registry, endpoint=endpoint, token=token))
    answer["notes"] += [record.getMessage() for record in warnings]
    click.echo(json.dumps(answer, indent=2) if is_json else render(answer), nl=is_json)


async def _ask(
    controls: CLIControls,
    query: Query,
    registry: OperatorRegistry | None,
    *,
    endpoint: str | None,
    token: str | None,
) -> Explanation:
    note = "No operator was asked: see --endpoint."
    if endpoint is not None:
        try:
            place = query.namespace if query.namespace is not None else "default"
            return await ask_operator(endpoint, token, Query(query.resource, place, query.name))
        except ConsoleClientError as e:
            note = f"Cannot ask the operator at {endpoint}: {str(e).rstrip('.')}."
    settings = controls.settings if controls.settings is not None else _make_settings()
    answer = await explain_object(make_access(controls, settings), query, registry)
    answer["notes"].append(note)
    if registry is None:
        answer["notes"].append("The handlers are unknown: name the files of the operator.")
    return answer


def _make_settings() -> OperatorSettings:
    """Make settings with short timeouts, because a person waits for the answer."""
    settings = OperatorSettings()
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.networking.error_backoffs = (0.5,)
    return settings


@contextlib.contextmanager
def _collecting_warnings() -> Iterator[list[logging.LogRecord]]:
    """Collect the warnings of the framework for the answer, e.g. about malformed annotations."""
    handler = logging.handlers.BufferingHandler(sys.maxsize)
    handler.setLevel(logging.WARNING)
    logging.getLogger("kopf").addHandler(handler)
    try:
        yield handler.buffer
    finally:
        logging.getLogger("kopf").removeHandler(handler)
