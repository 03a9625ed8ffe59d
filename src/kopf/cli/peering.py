"""``kopf freeze`` & ``kopf resume``: pause and resume the operators of the cluster or of some namespaces."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import click

from kopf._coordination.peer_identity import make_identity
from kopf._coordination.peers import MAX_LIFETIME, Peer
from kopf._operator.freezing import put_record
from kopf.cli.options import (
    DEV_PRIORITY,
    CLIControls,
    PriorityParamType,
    check_namespaces,
    get_settings,
    logging_options,
    make_access,
    refuse_both,
    run_to_end,
)

_PRIORITY = 1_000_000
"""The default priority: higher than usual ones of operators, even random ones."""

_NOBODY = (
    "No operator takes part in the peering {place} now, so nothing is paused but operators that start meanwhile. "
    "Standalone operators do not take part, and replicas (--leader-election, --shards) only with --peering."
)


# The parameters have the names of the options, because the environment variables are named after the parameters.
def _peering_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    fn = click.option("-i", "--id", metavar="ID", help="The identity that pauses the operators.  [default: user@host]")(
        fn
    )
    fn = click.option(
        "-P", "--peering", metavar="NAME", help="The peering object of the operators.  [default: default]"
    )(fn)
    fn = click.option(
        "-A", "--all-namespaces", is_flag=True, help="All operators that serve the whole cluster; this is the default."
    )(fn)
    return click.option(
        "-n",
        "--namespace",
        multiple=True,
        metavar="PATTERN",
        callback=check_namespaces,
        help="The operators of this namespace, or of all matching namespaces with the peering object; can be repeated.",
    )(fn)


@click.command()
@logging_options
@_peering_options
@click.option(
    "-p",
    "--priority",
    type=PriorityParamType(),
    metavar="N",
    help=f"The priority of the pause; operators with higher priorities ignore it.  [default: {_PRIORITY}]",
)
@click.option("--dev", is_flag=True, help=f"Use the priority of development: --priority={DEV_PRIORITY}.")
@click.option(
    "-t",
    "--lifetime",
    type=click.IntRange(1, MAX_LIFETIME),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="The duration of the pause.",
)
@click.option("-m", "--message", default="", metavar="TEXT", help="The reason, for the logs of the operators.")
@click.make_pass_decorator(CLIControls, ensure=True)
def freeze(
    controls: CLIControls,
    /,
    id: str | None,
    priority: int | None,
    dev: bool,
    lifetime: int,
    message: str,
    **where: Any,
) -> None:
    """Pause operators for some time, or until "kopf resume"."""
    identity = id or make_identity(manual=True)
    priority = priority if priority is not None else DEV_PRIORITY if dev else _PRIORITY
    now = datetime.datetime.now(datetime.UTC)
    peer = Peer(identity, priority, lifetime, now, message)
    record = {**peer.make_record(), "message": message or None}  # an earlier freeze can have left another message
    places = _put(controls, identity, record, **where)
    until = (now + datetime.timedelta(seconds=lifetime)).strftime("%Y-%m-%d %H:%M:%S UTC")
    for place, has_operators in places.items():
        click.echo(f"The operators of the peering {place} are paused by {identity} until {until}.")
        if not has_operators:
            click.echo(_NOBODY.format(place=place), err=True)


@click.command()
@logging_options
@_peering_options
@click.make_pass_decorator(CLIControls, ensure=True)
def resume(controls: CLIControls, /, id: str | None, **where: Any) -> None:
    """Resume paused operators before their time is up."""
    identity = id or make_identity(manual=True)
    for place in _put(controls, identity, None, **where):
        click.echo(f"The operators of the peering {place} are no longer paused by {identity}.")


def _put(
    controls: CLIControls,
    identity: str,
    record: Mapping[str, Any] | None,
    *,
    peering: str | None,
    all_namespaces: bool,
    namespace: tuple[str, ...],
) -> Mapping[str, bool]:
    refuse_both("--all-namespaces", "--namespace", all_namespaces, namespace)
    settings = get_settings(controls)
    name = peering if peering is not None else settings.peering.name
    access = make_access(controls, settings)
    return run_to_end(controls, put_record(access, identity, record, name=name, patterns=namespace))
