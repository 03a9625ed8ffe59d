"""``kopf cluster``: a Kubernetes API in memory, for experiments and tests; it needs no other programs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import pathlib
import re
import signal
import socket
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kopf_cluster import LocalCluster


_LOCAL_CONTEXTS = r"(?m)^current-context: local\n(?s:.*)^contexts:\n- name: local\n(  .*\n)*\Z"
"""The kubeconfig of a local cluster: it has only one context, at the end."""

_SERVER = r"(?m)^    server: (.+)$"
_USER = "NAME[:GROUP,...]"
_USER_FILE = f"{_USER}=FILE"
_USER_TOKEN = f"{_USER}=TOKEN"


def parse_user(value: str) -> tuple[str, tuple[str, ...]]:
    """Parse a user with the groups: ``jane:devs,ops``; a text that begins with ``system:`` is a name as a whole."""
    name, colon, groups = (value, "", "") if value.startswith("system:") else value.partition(":")
    if not name or (colon and not groups):
        raise click.BadParameter(f"{value!r} does not have the form {_USER}")
    return name, tuple(group for group in groups.split(",") if group)


def _split_user(value: str, form: str) -> tuple[str, str, tuple[str, ...]]:
    """Split a user with something else, e.g. ``jane:devs=secret``, into the latter, the name, and the groups."""
    who, _, other = value.partition("=")
    if not who or not other:
        raise click.BadParameter(f"{value!r} does not have the form {form}")
    return other, *parse_user(who)


def _parse_user_file(value: str) -> tuple[pathlib.Path, str, tuple[str, ...]]:
    path, name, groups = _split_user(value, _USER_FILE)
    return check_kubeconfig(pathlib.Path(path)), name, groups


def _parse_lag(value: str) -> tuple[float, float]:
    """Parse the lag of events, in seconds: ``0.5``, or a range ``0-0.5``."""
    least, _, most = value.partition("-")
    try:
        lag = float(least), float(most or least)
    except ValueError:
        lag = (-1.0, -1.0)
    if not 0 <= lag[0] <= lag[1] < float("inf"):
        raise click.BadParameter(f"{value!r} does not have the form SECONDS[-SECONDS], e.g. 0.5 or 0-0.5")
    return lag


def _parse_conflicts(value: str) -> tuple[float, float]:
    """Parse the share of conflicting writes, and the delay of their responses in seconds: ``0.1``, or ``0.1,0.3``."""
    rate, _, latency = value.partition(",")
    try:
        conflicts = float(rate), float(latency or 0)
    except ValueError:
        conflicts = (-1.0, 0.0)
    if not (0 <= conflicts[0] <= 1 and 0 <= conflicts[1] < float("inf")):
        raise click.BadParameter(f"{value!r} does not have the form RATE[,SECONDS], e.g. 0.1 or 0.1,0.3")
    return conflicts


def _parse_gates(value: str) -> dict[str, bool]:
    """Parse feature gates as kube-apiserver does: ``ShardedListAndWatch=true,AnotherOne=false``."""
    gates = dict(item.partition("=")[::2] for item in value.split(","))
    if not set(gates.values()) <= {"true", "false"}:
        raise click.BadParameter(f"{value!r} does not have the form NAME=true,NAME=false")
    return {name: switch == "true" for name, switch in gates.items()}


def _parse_token(value: str) -> tuple[str, str, tuple[str, ...]]:
    return _split_user(value, _USER_TOKEN)


_CLUSTER_OPTIONS = (
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=0,
        metavar="N",
        help="The port to listen on.  [default: any free port]",
    ),
    click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=pathlib.Path),
        metavar="DIR",
        help="Keep the data in this directory, and continue with it next time.  [default: only in memory]",
    ),
    click.option(
        "--simulate",
        is_flag=True,
        help="Simulate workloads: pods run, rollouts finish, jobs complete, claims are bound.",
    ),
    click.option(
        "--simulate-controllers",
        is_flag=True,
        help="Simulate only controllers: they create and delete pods, but the pods do not run.",
    ),
    click.option(
        "--authorization",
        type=click.Choice(["always-allow", "rbac", "rbac-with-owners"]),
        default="always-allow",
        help="Who may do what: everybody may do everything (the default); roles decide; or roles also decide about "
        "owner references. The main kubeconfig is for an administrator.",
    ),
    click.option(
        "--managed-fields/--no-managed-fields",
        default=True,
        help="Keep metadata.managedFields in all objects (the default), or only after a server-side apply, which is a "
        "bit faster.",
    ),
    click.option(
        "--administrator",
        default="kubernetes-admin",
        show_default=True,
        metavar="NAME",
        help="The name of the user in the main kubeconfig.",
    ),
    click.option(
        "--feature-gates",
        type=_parse_gates,
        metavar="NAME=true|false,...",
        help="Turn API features on or off: e.g. ShardedListAndWatch=true, which is off by default.",
    ),
    click.option(
        "--user",
        "users",
        multiple=True,
        type=_parse_user_file,
        metavar=_USER_FILE,
        help="Write another kubeconfig, for this user with a certificate; it is removed at the end. Can be repeated.",
    ),
    click.option(
        "--token",
        "tokens",
        multiple=True,
        type=_parse_token,
        metavar=_USER_TOKEN,
        help="Accept this bearer token for the user; can be repeated.",
    ),
    click.option(
        "--watch-lag",
        type=_parse_lag,
        metavar="SECONDS[-SECONDS]",
        help="Delay watch events by this time, or randomly within the range, as in a real cluster.",
    ),
    click.option(
        "--late-conflicts",
        type=_parse_conflicts,
        metavar="RATE[,SECONDS]",
        help="Refuse this share of the writes that name a version, with 409 after this time: e.g. 0.1,0.3.",
    ),
    click.option(
        "--audit",
        type=click.Path(dir_okay=False, path_type=pathlib.Path),
        metavar="FILE",
        help='At the end, write all requests with their users to this file, for "kopf rbac --observed FILE".',
    ),
    click.option("--seed", type=int, default=0, metavar="N", help="The seed of random lags and conflicts."),
)


def cluster_options(kubeconfig_default: str) -> Callable[[Any], Any]:
    """Add the options of the local cluster to a command; most of them are options of `LocalCluster`."""
    kubeconfig = click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False, path_type=pathlib.Path),
        metavar="FILE",
        callback=lambda context, option, value: value and check_kubeconfig(value),
        help=f"Where to write the kubeconfig; it is removed at the end.  [default: {kubeconfig_default}]",
    )

    def decorate(fn: Any) -> Any:
        for option in reversed([kubeconfig, *_CLUSTER_OPTIONS]):
            fn = option(fn)
        return fn

    return decorate


@click.command()
@cluster_options("a temporary file")
def cluster(**options: Any) -> None:
    """
    Serve a Kubernetes API from memory, for this machine only.

    The cluster runs until Ctrl+C. Then it forgets everything, unless --data-dir is given.
    """
    asyncio.run(_serve(options))


async def _serve(options: Mapping[str, Any]) -> None:
    data_dir = options["data_dir"]
    end = "all its data is lost" if data_dir is None else f"its data stays in {data_dir}"
    with interruptible():
        async with start_cluster(**options) as local:
            click.secho(f"The local cluster is up: {local.url}", fg="green")
            click.echo(f"To use it, in another terminal:\n\n    export KUBECONFIG={local.kubeconfig}\n")
            click.echo(f"Ctrl+C stops the cluster, and {end}.")
            await asyncio.get_running_loop().create_future()


def explain_incompleteness(error: ImportError) -> str:
    """Explain how to install the libraries of the local cluster, as production images do not have them."""
    return f"The local cluster needs packages that are not installed: {error}. Install them: pip install 'kopf[dev]'"


@contextlib.asynccontextmanager
async def start_cluster(
    *,
    users: Sequence[tuple[pathlib.Path, str, tuple[str, ...]]],
    tokens: Sequence[tuple[str, str, tuple[str, ...]]],
    watch_lag: tuple[float, float] | None,
    late_conflicts: tuple[float, float] | None,
    simulate: bool,
    simulate_controllers: bool,
    **options: Any,
) -> AsyncIterator[LocalCluster]:
    """Start a local cluster with these options. Raises :class:`click.ClickException` if it cannot be started."""
    audit: pathlib.Path | None = options.pop("audit")
    try:
        from kopf_cluster import ArchiveError, LocalCluster  # heavy, and not all it needs is always installed
    except ImportError as e:
        raise click.ClickException(explain_incompleteness(e)) from e
    async with contextlib.AsyncExitStack() as stack:
        try:
            local = await stack.enter_async_context(
                LocalCluster(simulate=simulate or (simulate_controllers and "controllers"), **options)
            )
            if audit is not None:
                audit.touch()  # at the end, it would be too late for errors
                stack.callback(local.write_audit, audit)
            for path, name, groups in users:
                local.write_kubeconfig(path, name, groups)
                stack.callback(path.unlink, missing_ok=True)
        except (OSError, ArchiveError, ValueError) as e:
            raise click.ClickException(f"Cannot start the local cluster: {e}") from e
        if watch_lag is not None:
            local.faults.lag_watches(*watch_lag)
        if late_conflicts is not None:
            local.faults.inject(409, guarded=True, rate=late_conflicts[0], latency=late_conflicts[1])
        for token in tokens:
            local.add_token(*token)
        yield local


def check_kubeconfig(path: pathlib.Path) -> pathlib.Path:
    """
    Return the absolute path, which works in other terminals, too. Raises :class:`click.BadParameter`.

    The file is overwritten now and removed in the end, so it must not be the kubeconfig of another cluster. A killed
    local cluster can have left its own file.
    """
    path = path.absolute()
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r}.")
    if path.exists() and not re.search(_LOCAL_CONTEXTS, path.read_text(errors="replace")):
        raise click.BadParameter(f"{str(path)!r} is not the kubeconfig of a local cluster: it would be overwritten.")
    return path


def find_project_kubeconfig() -> pathlib.Path | None:
    """
    Return the path for the project in the current directory: always the same, so that terminals can keep it.

    Return ``None`` if another command in the same directory uses it, or if it cannot be written.
    """
    project = pathlib.Path.cwd()
    name = f"{project.name}-{hashlib.sha256(bytes(project)).hexdigest()[:8]}.yaml"
    try:
        path = pathlib.Path.home() / ".kube" / "kopf-dev" / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = check_kubeconfig(path)
        return None if path.exists() and _is_alive(path.read_text()) else path
    except (OSError, RuntimeError, click.BadParameter):  # no home, or not a writable one, or a file of somebody else
        return None


def _is_alive(kubeconfig: str) -> bool:
    """Tell if a server listens at the address of the cluster: a killed one has left only the file."""
    found = re.search(_SERVER, kubeconfig)
    url = urllib.parse.urlsplit(found[1]) if found else None
    if url is None or url.hostname is None or url.port is None:
        return False
    try:
        with socket.create_connection((url.hostname, url.port), timeout=1.0):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def interruptible() -> Iterator[list[signal.Signals]]:
    """
    Let SIGINT & SIGTERM cancel the current task inside of the block, and quietly leave the block.

    Each signal cancels: the second one interrupts the cleanup of the first one. The list has the received signals.
    """
    received: list[signal.Signals] = []
    task = asyncio.current_task()
    assert task is not None

    def handle(signum: signal.Signals) -> None:
        received.append(signum)
        task.cancel()

    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, handle, signum)
    try:
        yield received
    except asyncio.CancelledError:
        if not received:
            raise
    finally:
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(signum)
