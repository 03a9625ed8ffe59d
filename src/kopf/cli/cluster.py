"""``kopf cluster``: a Kubernetes API from memory, for experiments and tests; nothing else has to be installed."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kopf.cli.interrupts import interruptible

if TYPE_CHECKING:
    from kopf_cluster import LocalCluster


def cluster_options(fn: Any) -> Any:
    """Add the options of the local cluster to a command; they are those of `LocalCluster`."""
    fn = click.option("--simulate", is_flag=True,
                      help="Let workloads progress: pods run, rollouts end, jobs complete, claims are bound.")(fn)
    fn = click.option("--data-dir", type=click.Path(file_okay=False, path_type=pathlib.Path), metavar="DIR",
                      help="Keep all the data there, and go on with them next time. In memory by default.")(fn)
    fn = click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=pathlib.Path), metavar="FILE",
                      callback=lambda context, option, value: value and check_kubeconfig(value),
                      help="Where to write the kubeconfig; it is removed in the end. Temporary by default.")(fn)
    return click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N",
                        help="The port to listen on; any free one by default.")(fn)


_LOCAL_CONTEXTS = r"(?m)^current-context: local\n(?s:.*)^contexts:\n- name: local\n(  .*\n)*\Z"
"""How the kubeconfig of a local cluster looks like: there is only one context, the last of all."""

_USER_FILE = "NAME[:GROUP,...]=FILE"


def _parse_user(value: str) -> tuple[str, list[str], pathlib.Path]:
    """Read a user with the groups, and where to write the kubeconfig, e.g. ``jane:devs,ops=jane.yaml``."""
    who, equal, path = value.partition("=")
    user, _, groups = who.partition(":")
    if not user or not equal or not path:
        raise click.BadParameter(f"{value!r} is not like {_USER_FILE}")
    return user, [group for group in groups.split(",") if group], check_kubeconfig(pathlib.Path(path))


def check_kubeconfig(path: pathlib.Path) -> pathlib.Path:
    """
    Give the absolute path, as it is used in other terminals, too, or refuse to write there.

    The file is overwritten now and removed in the end, so it must not be the kubeconfig of another cluster. That of
    a local cluster can be there if that was killed.
    """
    path = path.absolute()
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r}.")
    if path.exists() and not re.search(_LOCAL_CONTEXTS, path.read_text(errors="replace")):
        raise click.BadParameter(f"{str(path)!r} exists, and is not of a local cluster: it would be lost.")
    return path


@click.command()
@cluster_options
@click.option("--authorization", type=click.Choice(["always-allow", "rbac"]), default="always-allow",
              help="Who may do what: everybody everything, or what the roles grant. The kubeconfig is an admin's.")
@click.option("--managed-fields", is_flag=True,
              help="Keep metadata.managedFields of all objects, not only of those applied on the server side.")
@click.option("--administrator", default="kubernetes-admin", show_default=True, metavar="NAME",
              help="Whose name it is that the kubeconfig stands for.")
@click.option("--user", "users", multiple=True, type=_parse_user, metavar=_USER_FILE,
              help="Write a kubeconfig of this user, too; it has a certificate, and is removed in the end. Repeatable.")
def cluster(*, users: Sequence[tuple[str, list[str], pathlib.Path]], **options: Any) -> None:
    """
    Serve the Kubernetes API from memory on the loopback.

    It lives until Ctrl+C, and then everything is forgotten, unless there is a directory for the data.
    """
    asyncio.run(_serve(options, users))


async def _serve(options: Mapping[str, Any], users: Sequence[tuple[str, list[str], pathlib.Path]]) -> None:
    data_dir = options["data_dir"]
    end = "everything in it is forgotten" if data_dir is None else f"the data stay in {data_dir}"
    with interruptible():
        async with start_cluster(**options) as local, contextlib.AsyncExitStack() as stack:
            for user, groups, path in users:
                local.write_kubeconfig(path, user, groups)
                stack.callback(path.unlink, missing_ok=True)
            click.secho(f"The local cluster is up: {local.url}", fg="green")
            click.echo(f"To use it, in another terminal:\n\n    export KUBECONFIG={local.kubeconfig}\n")
            click.echo(f"Ctrl+C stops it, and {end}.")
            await asyncio.get_running_loop().create_future()


def explain_incompleteness(error: ImportError) -> str:
    """Say what to do when the local cluster cannot be imported: production images have no libraries for it."""
    return f"The local cluster needs more than is installed: {error}. Install it: pip install 'kopf[dev]'"


@contextlib.asynccontextmanager
async def start_cluster(**options: Any) -> AsyncIterator[LocalCluster]:
    """Start a local cluster with the options of `LocalCluster`; say clearly if that is impossible."""
    try:
        from kopf_cluster import ArchiveError, LocalCluster  # heavy, and not all it needs is always installed
    except ImportError as e:
        raise click.ClickException(explain_incompleteness(e)) from e
    async with contextlib.AsyncExitStack() as stack:
        try:
            local = await stack.enter_async_context(LocalCluster(**options))
        except (OSError, ArchiveError) as e:
            raise click.ClickException(f"Cannot start the local cluster: {e}") from e
        yield local
