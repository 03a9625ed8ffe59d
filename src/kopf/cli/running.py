"""``kopf run``: load the operator, run it until it is stopped, and tell by the exit code how it has ended."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import pathlib
from collections.abc import Callable, Coroutine
from typing import Any

import click

from kopf._client.credentials import LoginError
from kopf._client.errors import APIError
from kopf._handlers.registry import get_default_registry
from kopf._operator.running import operator
from kopf._reactor.activities import ActivityError
from kopf.cli.loading import LoadingError, list_sources, load
from kopf.cli.options import DEBUG_KEY, CLIControls, logging_options

logger = logging.getLogger("kopf.cli")


@click.command()
@logging_options
@click.option("-A", "--all-namespaces", "clusterwide", is_flag=True, help="Serve the whole cluster.")
@click.option("-n", "--namespace", "namespaces", multiple=True, metavar="NAME",
              help="Serve this namespace; can be repeated. By default, the whole cluster is served.")
@click.option("--standalone", is_flag=True, default=None, help="Do not look for other operators.")
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE",
              help="Load this importable module; can be repeated.")
@click.option("--report-sources", type=click.Path(path_type=pathlib.Path), hidden=True)
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
        report_sources: pathlib.Path | None,
) -> None:
    """
    Run an operator: the handlers of the files (PATHS) and modules.

    It runs until stopped by Ctrl+C or SIGTERM, and then exits with the code 0 when it has finished its work;
    the second signal ends it at once. The other exit codes mean that the operator could not go on.
    """
    if clusterwide and namespaces:
        raise click.UsageError("Either --all-namespaces or --namespace can be used, not both.")
    try:
        load(paths, modules)
    finally:
        if report_sources is not None:
            report_sources.write_text("\n".join(list_sources()))

    registry = controls.registry if controls.registry is not None else get_default_registry()
    if not registry:
        raise _explain_nothing_to_do([*paths, *modules])

    _run(controls.loop, ctx.meta[DEBUG_KEY], operator(
        registry=registry,
        settings=controls.settings,
        standalone=standalone,
        clusterwide=clusterwide,
        namespaces=namespaces,
        stop_flag=controls.stop_flag,
        ready_flag=controls.ready_flag,
        vault=controls.vault,
    ))


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


def _run(loop: asyncio.AbstractEventLoop | None, debug: bool, coro: Coroutine[Any, Any, None]) -> None:
    try:
        if loop is not None:
            loop.run_until_complete(coro)
        else:
            with asyncio.Runner(loop_factory=_find_loop_factory(), debug=debug) as runner:
                runner.run(coro)
    except (LoginError, ActivityError, APIError) as e:
        logger.critical("The operator cannot go on: %s", e, exc_info=debug)
        raise SystemExit(1) from e
    except Exception as e:
        # Nobody knows what it is, so the place where it came from is worth more than brevity.
        logger.critical("The operator cannot go on: %s: %s", type(e).__name__, e, exc_info=True)
        raise SystemExit(1) from e


def _find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Use the fast event loop if it is installed; otherwise, the one of Python."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop  # optional, see the extras
    return uvloop.new_event_loop
