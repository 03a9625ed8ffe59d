"""``kopf cluster``: a Kubernetes API from memory, for experiments and tests; nothing else has to be installed."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kopf._cluster import LocalCluster


def cluster_options(fn: Any) -> Any:
    """Add the options of the local cluster to a command."""
    fn = click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=pathlib.Path), metavar="FILE",
                      help="Where to write the kubeconfig; it is removed in the end. Temporary by default.")(fn)
    return click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N",
                        help="The port to listen on; any free one by default.")(fn)


@click.command()
@cluster_options
def cluster(port: int, kubeconfig: pathlib.Path | None) -> None:
    """
    Serve the Kubernetes API from memory on the loopback.

    It lives until Ctrl+C, and then everything is forgotten.
    """
    run_interruptible(_serve(port, kubeconfig))


async def _serve(port: int, kubeconfig: pathlib.Path | None) -> None:
    async with start_cluster(port, kubeconfig) as local:
        click.secho(f"The local cluster is up: {local.url}", fg="green")
        click.echo(f"To use it, in another terminal:\n\n    export KUBECONFIG={local.kubeconfig}\n")
        click.echo("Ctrl+C stops it, and everything in it is forgotten.")
        await asyncio.get_running_loop().create_future()


@contextlib.asynccontextmanager
async def start_cluster(port: int, kubeconfig: pathlib.Path | None) -> Any:
    """Start a local cluster; say clearly if that is impossible."""
    try:
        from kopf._cluster import LocalCluster  # heavy, and not all of it is always installed
    except ImportError as e:
        raise click.ClickException(
            f"The local cluster needs more than is installed: {e}. Install it: pip install 'kopf[dev]'"
        ) from e
    starting: LocalCluster = LocalCluster(port=port, kubeconfig=kubeconfig)
    try:
        local = await starting.__aenter__()
    except OSError as e:
        raise click.ClickException(f"Cannot start the local cluster: {e}") from e
    try:
        yield local
    finally:
        await starting.__aexit__(None, None, None)


def run_interruptible(coro: Coroutine[Any, Any, None]) -> None:
    """Run until it ends or until SIGINT or SIGTERM, which cancel it and are normal ways to end it."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(coro)
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(run())
