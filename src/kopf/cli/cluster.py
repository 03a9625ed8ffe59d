"""``kopf cluster``: a Kubernetes API from memory, for experiments and tests; nothing else has to be installed."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import click

from kopf.cli.interrupts import interruptible

if TYPE_CHECKING:
    from kopf._cluster import LocalCluster
    from kopf._cluster.access import Authorization


def cluster_options(fn: Any) -> Any:
    """Add the options of the local cluster to a command."""
    fn = click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=pathlib.Path), metavar="FILE",
                      help="Where to write the kubeconfig; it is removed in the end. Temporary by default.")(fn)
    return click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N",
                        help="The port to listen on; any free one by default.")(fn)


@click.command()
@cluster_options
@click.option("--authorization", type=click.Choice(["always-allow", "rbac"]), default="always-allow",
              help="Who may do what: everybody everything, or what the roles grant. The kubeconfig is an admin's.")
def cluster(port: int, kubeconfig: pathlib.Path | None, authorization: Authorization) -> None:
    """
    Serve the Kubernetes API from memory on the loopback.

    It lives until Ctrl+C, and then everything is forgotten.
    """
    asyncio.run(_serve(port, kubeconfig, authorization))


async def _serve(port: int, kubeconfig: pathlib.Path | None, authorization: Authorization) -> None:
    with interruptible():
        async with start_cluster(port, kubeconfig, authorization) as local:
            click.secho(f"The local cluster is up: {local.url}", fg="green")
            click.echo(f"To use it, in another terminal:\n\n    export KUBECONFIG={local.kubeconfig}\n")
            click.echo("Ctrl+C stops it, and everything in it is forgotten.")
            await asyncio.get_running_loop().create_future()


@contextlib.asynccontextmanager
async def start_cluster(
        port: int, kubeconfig: pathlib.Path | None, authorization: Authorization = "always-allow",
) -> AsyncIterator[LocalCluster]:
    """Start a local cluster; say clearly if that is impossible."""
    try:
        from kopf._cluster import LocalCluster  # heavy, and not all that it needs is always installed
    except ImportError as e:
        raise click.ClickException(
            f"The local cluster needs more than is installed: {e}. Install it: pip install 'kopf[dev]'"
        ) from e
    async with contextlib.AsyncExitStack() as stack:
        try:
            local = await stack.enter_async_context(
                LocalCluster(port=port, kubeconfig=kubeconfig, authorization=authorization))
        except OSError as e:
            raise click.ClickException(f"Cannot start the local cluster: {e}") from e
        yield local
