"""``kopf run``: load the operator, run it until it stops, and exit with a code that tells how it ended."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import pathlib
import re
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

import click

from kopf._client.auth.service_account import is_mounted
from kopf._client.errors import APINetworkError
from kopf._handlers.registry import OperatorRegistry
from kopf._logging.configuration import revive_loggers
from kopf._operator.embedding import OperatorOptions, operator
from kopf._serving.endpoints import parse_endpoint
from kopf._settings.coordination import is_label
from kopf._values.operator_error import OperatorError
from kopf.cli.loading import LoadingError, exiting_on_refusal, list_sources, load
from kopf.cli.memory import collect_rarely, give_back_freed_memory, trim_heap_regularly
from kopf.cli.options import (
    DEBUG_KEY,
    DEV_PRIORITY,
    CLIControls,
    PriorityParamType,
    check_namespaces,
    get_registry,
    get_settings,
    logging_options,
    refuse_both,
)

logger = logging.getLogger("kopf.cli")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

_DEFINING_TIMEOUT = 10.0
"""How long to wait until ``kopf dev`` applies the definitions of custom resources, in seconds."""

_DEFINING_INTERVAL = 0.05

_LEFTOVERS_TIMEOUT = 2.0
"""How long the tasks that the operator has left may take to end, in seconds."""

_MODE_OPTIONS = ("--leader-election", "--shards")
_MAX_NAME = 63
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _checking_endpoint(title: str, path: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Make a check of an option with an endpoint to serve; see :func:`parse_endpoint`."""

    def check_endpoint(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        try:
            if value is not None:
                parse_endpoint(value, title=title, path=path)
        except ValueError as e:
            raise click.BadParameter(str(e), ctx, param) from e
        return value

    return check_endpoint


def _check_size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    number = value.rstrip("KMGi")
    unit = _UNITS.get(value[len(number) :])
    if unit is None or not number.isdecimal() or not int(number):
        raise click.BadParameter(f"{value!r} is not a size. Give a number with a unit, e.g. 64Mi.", ctx, param)
    return int(number) * unit


class _CommandWithModes(click.Command):
    """A command in which ``--shards handlers.py`` is an option without a name, and a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Names follow an equals sign only, so it is added to options without one."""
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [f"{arg}=" if arg in _MODE_OPTIONS else arg for arg in args[:end]] + args[end:])


def _parse_mode(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Parse the name of a Lease: empty if it is left out. In the environment, the words of flags work, too."""
    is_word = value is not None and ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.ENVIRONMENT
    if value is None or (is_word and value.lower() in _NO):
        return None
    if not value or (is_word and value.lower() in _YES):
        return ""
    if not is_label(value):
        raise click.BadParameter(
            f"{value!r} is not a valid name: use at most {_MAX_NAME} lowercase letters, digits, and dashes, with no "
            "dash at the ends.",
            ctx,
            param,
        )
    return value


def _name_lease(value: str | None, paths: Sequence[str], modules: Sequence[str]) -> str | bool:
    """Return the name of the Lease, by default that of the first file or module; false if there is no Lease."""
    if value is None:
        return False
    sources = [*(os.path.splitext(os.path.basename(path))[0] for path in paths), *modules]
    first = sources[0] if sources else ""
    return value or re.sub(r"[^a-z0-9]+", "-", first.lower())[:_MAX_NAME].strip("-") or True


def _name_roles_command(
    paths: Sequence[str],
    modules: Sequence[str],
    namespaces: Sequence[str],
    peering_name: str | None,
    leader_election: str | None,
    shards: str | None,
) -> list[str]:
    """Return the command that prints the roles of the same operator."""
    options = [("module", modules), ("namespace", namespaces), ("peering", [peering_name] if peering_name else [])]
    modes = [("--leader-election", leader_election), ("--shards", shards)]
    return [
        "kopf",
        "rbac",
        *[f"--{name}={value}" for name, values in options for value in values],
        *[name for name, value in modes if value is not None],
        *paths,
    ]


# The environment variables are named after the options, as documented; the arguments have variables, too.
@click.command(cls=_CommandWithModes)
@logging_options
@click.option(
    "-A",
    "--all-namespaces",
    "clusterwide",
    is_flag=True,
    envvar="KOPF_RUN_ALL_NAMESPACES",
    help="Serve the whole cluster; this is the default.",
)
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="PATTERN",
    envvar="KOPF_RUN_NAMESPACE",
    callback=check_namespaces,
    help="Serve this namespace, or all namespaces that match the pattern, e.g. 'myapp-*,!*-test'; can be repeated.",
)
@click.option("--standalone", is_flag=True, default=None, help="Ignore other operators.")
@click.option(
    "-P",
    "--peering",
    "peering_name",
    metavar="NAME",
    envvar="KOPF_RUN_PEERING",
    help="The peering object through which operators find each other; it must exist.",
)
@click.option(
    "-p",
    "--priority",
    type=PriorityParamType(),
    metavar="N",
    help="The priority in the peering: only the operator with the highest priority works.  [default: 0]",
)
@click.option(
    "--leader-election",
    metavar="[=NAME]",
    callback=_parse_mode,
    help="Run as one of several replicas: one works, the others stand by. NAME is the name of their Lease.  "
    "[default: the name of the first file or module]",
)
@click.option(
    "--shards",
    metavar="[=NAME]",
    callback=_parse_mode,
    help="Run as one of several replicas that share the objects. NAME is the same as in --leader-election.",
)
@click.option("--dev", is_flag=True, help=f"Pause other operators during development: --priority={DEV_PRIORITY}.")
@click.option(
    "-L",
    "--liveness",
    "liveness_endpoint",
    metavar="URL",
    envvar="KOPF_RUN_LIVENESS",
    callback=_checking_endpoint("liveness", "healthz"),
    help="Serve the health checks at this URL, e.g. http://0.0.0.0:8080/healthz.  [default: not served]",
)
@click.option(
    "--metrics",
    "metrics_endpoint",
    metavar="URL",
    envvar="KOPF_RUN_METRICS",
    callback=_checking_endpoint("metrics", "metrics"),
    help="Serve Prometheus metrics at this URL, e.g. http://0.0.0.0:8080/metrics; the host and the port can be the "
    "same as in --liveness.  [default: not served]",
)
@click.option(
    "--console",
    "console_endpoint",
    metavar="URL",
    envvar="KOPF_RUN_CONSOLE",
    callback=_checking_endpoint("console", ""),
    help="Serve the console at this URL, e.g. http://127.0.0.1:8090.  [default: not served]",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    metavar="FILE",
    help='Record all reads, writes, and calls of the operator to this file, without secrets. See "kopf replay".',
)
@click.option(
    "--record-limit",
    default="64Mi",
    metavar="SIZE",
    callback=_check_size,
    show_default=True,
    help="The maximum size of the recording; beyond it, Kopf drops the oldest half.",
)
@click.option(
    "--record-random",
    is_flag=True,
    help='Let the replay repeat the numbers that handlers take from the module "random". '
    "Anyone with the file can derive these numbers.",
)
@click.option(
    "-m",
    "--module",
    "modules",
    multiple=True,
    metavar="MODULE",
    envvar="KOPF_RUN_MODULE",
    help="Load this importable module; can be repeated.",
)
@click.option("--reports", type=click.Path(path_type=pathlib.Path), hidden=True)
@click.option("--developing", is_flag=True, hidden=True)
@click.argument("paths", nargs=-1)
@click.make_pass_decorator(CLIControls, ensure=True)
@click.pass_context
def run(
    ctx: click.Context,
    controls: CLIControls,
    paths: tuple[str, ...],
    modules: tuple[str, ...],
    clusterwide: bool,
    namespaces: tuple[str, ...],
    standalone: bool | None,
    peering_name: str | None,
    priority: int | None,
    leader_election: str | None,
    shards: str | None,
    dev: bool,
    liveness_endpoint: str | None,
    metrics_endpoint: str | None,
    console_endpoint: str | None,
    record: pathlib.Path | None,
    record_limit: int,
    record_random: bool,
    reports: pathlib.Path | None,
    developing: bool,
) -> None:
    """
    Run an operator: the handlers in the files (PATHS) and modules.

    The operator runs until Ctrl+C or SIGTERM. Then it finishes its current work, and exits with the code 0; a second
    signal stops it at once. Any other exit code means that the operator could not go on.
    """
    refuse_both("--all-namespaces", "--namespace", clusterwide, namespaces)
    refuse_both("--leader-election", "--shards", leader_election is not None, shards is not None)
    # Before the users' files, which can be named as these: their folders are looked into first from then on.
    loop_factory = find_loop_factory() if controls.loop is None else None
    settings = get_settings(controls)
    if console_endpoint is not None:
        settings.console.endpoint = console_endpoint
    stop_flag = controls.stop_flag
    if developing:
        from kopf.cli.dev import child

        loop_factory = child.make_leaping_loop
        child.show_everything(settings)
        stop_flag = child.make_stop_flag()
    if not is_mounted():
        importlib.import_module("yaml")  # of the kubeconfig; pods have service accounts instead
    try:
        with exiting_on_refusal():
            load(paths, modules)
        revive_loggers()
    finally:
        if reports is not None:
            _report(reports / "sources", list_sources())

    registry = get_registry(controls)
    if not registry:
        raise _explain_nothing_to_do([*paths, *modules])

    if registry.models:
        _check_models(registry, reports)
    if reports is not None:
        definitions = {handler.definition for handler in registry.conversions}
        _report(reports / "webhooks", sorted({handler.type for handler in registry.webhooks} | definitions))

    # The environment is often common for many commands, so --dev there does not replace a priority in the command.
    is_explicit = ctx.get_parameter_source("priority") is click.core.ParameterSource.COMMANDLINE
    options: OperatorOptions = {
        "registry": registry,
        "settings": settings,
        "standalone": standalone,
        "peering_name": peering_name,
        "priority": DEV_PRIORITY if dev and not is_explicit else priority,
        "leader_election": _name_lease(leader_election, paths, modules),
        "shards": _name_lease(shards, paths, modules),
        "clusterwide": clusterwide,
        "namespaces": namespaces,
        "liveness_endpoint": liveness_endpoint,
        "metrics_endpoint": metrics_endpoint,
        "stop_flag": stop_flag,
        "ready_flag": controls.ready_flag,
        "vault": controls.vault,
        "record": record,
        "record_limit": record_limit,
        "record_random": record_random,
        "preflight": _name_roles_command(paths, modules, namespaces, peering_name, leader_election, shards),
    }
    _run(controls.loop, loop_factory, ctx.meta[DEBUG_KEY], operator(**options))


def _check_models(registry: OperatorRegistry, reports: pathlib.Path | None) -> None:
    """Check that the models fit together; in development, wait until the cluster accepts or refuses them."""
    from kopf._models.crds import list_models, make_definitions  # most operators have no models
    from kopf.cli.crd import dump

    with exiting_on_refusal():
        definitions = make_definitions(list_models(registry))
    if reports is not None:
        path, deadline = reports / "definitions", time.monotonic() + _DEFINING_TIMEOUT
        _report(path, [dump(definitions)])
        while path.exists() and time.monotonic() < deadline:
            time.sleep(_DEFINING_INTERVAL)


def _report(path: pathlib.Path, lines: Collection[str]) -> None:
    """Write a report for ``kopf dev`` in one step: it can read the file at any moment."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text("\n".join(lines), "utf-8", "surrogateescape")  # in any locale, and for any name of a file
    draft.replace(path)


def _explain_nothing_to_do(sources: list[str]) -> click.ClickException:
    if not sources:
        return click.UsageError("Nothing to run. Name the files with handlers, or modules with -m.")
    return LoadingError(
        f"There are no handlers in {', '.join(sources)}. Declare them with decorators, for example:\n\n"
        f"    import kopf\n\n"
        f"    @kopf.on.create('kopfexamples')\n"
        f"    def create_fn(spec, **_):\n"
        f"        ..."
    )


def _run(
    loop: asyncio.AbstractEventLoop | None,
    loop_factory: LoopFactory | None,
    debug: bool,
    coro: Coroutine[Any, Any, None],
) -> None:
    try:
        with exiting_on_refusal():
            if loop is not None:
                loop.run_until_complete(coro)
            else:
                _run_in_own_loop(coro, loop_factory, debug)
    except APINetworkError as e:
        logger.critical(
            "The operator cannot go on: the cluster is unreachable: %s. Check that the cluster runs, and that the "
            "KUBECONFIG variable and the current context in that file select the right cluster.",
            e,
            exc_info=debug,
        )
        raise SystemExit(1) from e
    except OperatorError as e:
        logger.critical("The operator cannot go on: %s", e, exc_info=debug)
        raise SystemExit(1) from e
    except Exception as e:
        # The error is unknown, so its traceback is worth more than brevity.
        logger.critical("The operator cannot go on: %s: %s", type(e).__name__, e, exc_info=True)
        raise SystemExit(1) from e


def find_loop_factory() -> LoopFactory | None:
    """Use the fast event loop if it is installed; otherwise, the one of Python."""
    try:
        import uvloop  # optional, see the extras
    except ModuleNotFoundError:
        return None

    def make_loop() -> asyncio.AbstractEventLoop:
        loop = uvloop.new_event_loop()
        loop.set_exception_handler(handle_loop_error)
        return loop

    return make_loop


def handle_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """
    Handle errors that no code awaits, as :meth:`asyncio.loop.default_exception_handler` does.

    When the server breaks a connection in the middle of its TLS goodbye, uvloop writes to the transport that it has
    closed itself, and reports a fatal error. The user of the connection gets an error anyway, so this is only logged
    for debugging.
    """
    error, transport = context.get("exception"), context.get("transport")
    # There, `is_closing()` is false after a closing by an error, which is only visible in the `repr()`.
    is_over = transport is not None and (transport.is_closing() or "closed=True" in repr(transport))
    if is_over and isinstance(error, RuntimeError) and "the handler is closed" in str(error):
        logger.debug("A connection was broken while it was being closed: %s", error)
    else:
        loop.default_exception_handler(context)


def _run_in_own_loop(coro: Coroutine[Any, Any, None], loop_factory: LoopFactory | None, debug: bool) -> None:
    """Run the coroutine as :func:`asyncio.run` does, but do not wait forever for tasks that never end."""
    give_back_freed_memory()
    collect_rarely()
    runner = asyncio.Runner(loop_factory=loop_factory, debug=debug)
    trim_heap_regularly(runner.get_loop())
    try:
        runner.run(coro)
    finally:
        endless = runner.run(_cancel_leftovers())
        if endless:
            names = ", ".join(sorted({task.get_name() for task in endless}))
            logger.warning("The process exits without waiting for the tasks that ignore their cancellation: %s", names)
            runner.get_loop().set_exception_handler(lambda loop, context: None)  # it would only say this again
        else:
            runner.close()


async def _cancel_leftovers() -> set[asyncio.Task[Any]]:
    """Cancel the remaining tasks. Return the tasks that do not end: usually, daemons that swallow cancellations."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    return (await asyncio.wait(tasks, timeout=_LEFTOVERS_TIMEOUT))[1] if tasks else set()
