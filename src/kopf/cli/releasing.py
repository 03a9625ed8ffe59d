"""``kopf release``: remove our finalizers from objects that are stuck without their operator."""

from __future__ import annotations

from typing import Any

import click

from kopf._operator.access import Access
from kopf._operator.releasing import release as release_objects
from kopf.cli.options import CLIControls, get_settings, logging_options, make_access, run_to_end


# The parameters have the names of the options, because the environment variables are named after the parameters.
@click.command()
@logging_options
@click.argument("resource", nargs=-1, required=True)
@click.option("-n", "--namespace", multiple=True, metavar="NAME", help="Only in this namespace; can be repeated.")
@click.option("-A", "--all-namespaces", is_flag=True, help="In the whole cluster; never the default.")
@click.option("-f", "--finalizer", metavar="NAME", help="The finalizer to remove.  [default: the one of Kopf]")
@click.option("--deleted", is_flag=True, help="Only from the objects that are being deleted.")
@click.option("--dry-run", is_flag=True, help="Only show the objects, change nothing.")
@click.make_pass_decorator(CLIControls, ensure=True)
def release(
    controls: CLIControls,
    /,
    resource: tuple[str, ...],
    namespace: tuple[str, ...],
    all_namespaces: bool,
    finalizer: str | None,
    deleted: bool,
    dry_run: bool,
) -> None:
    """Remove the finalizers that a removed operator has left.

    RESOURCE is the name of the resource, as in the handlers: e.g. kopfexamples.kopf.dev. The command removes only the
    finalizer, and calls no deletion handlers. Stop the operator first.
    """
    if all_namespaces == bool(namespace):
        raise click.UsageError("Name the namespaces with --namespace, or use --all-namespaces.")
    settings = get_settings(controls)
    coro = _release(
        make_access(controls, settings),
        resource,
        namespaces=namespace,
        finalizer=finalizer if finalizer is not None else settings.persistence.finalizer,
        dry_run=dry_run,
        only_deleted=deleted,
    )
    count = run_to_end(controls, coro)
    noun, verb = ("object", "is") if count == 1 else ("objects", "are")
    click.echo(f"{count} {noun} {'would be' if dry_run else verb} released.")


async def _release(access: Access, names: tuple[str, ...], *, dry_run: bool, **options: Any) -> int:
    count = 0
    async for resource, namespace, name in release_objects(access, names, dry_run=dry_run, **options):
        click.echo(f"{resource.name} {namespace}/{name}" if namespace else f"{resource.name} {name}")
        count += 1
    return count
