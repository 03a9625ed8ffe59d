"""
``kopf dev``: everything needed to write an operator in one command.

The local cluster lives in this process, and the operator in a child process, so that it can be started anew with
fresh code while the cluster and all the objects in it stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kopf._logging.terminal_format import TerminalFormatter, has_colours, is_for_people
from kopf.cli.cluster import cluster_options, find_project_kubeconfig, interruptible, parse_user, start_cluster
from kopf.cli.dev.child import OFFSET_VARIABLE, STOP_SIGNAL
from kopf.cli.dev.console_access import DevConsole, is_to_be_opened
from kopf.cli.dev.dev_manifests import Manifests
from kopf.cli.dev.leaping import LeapingLoop
from kopf.cli.dev.source_watcher import SourceWatcher
from kopf.cli.loading import suggest_files
from kopf.cli.running import run

if TYPE_CHECKING:
    from kopf_cluster import LocalCluster

USUAL_FILE = pathlib.Path("handlers.py")
USUAL_MANIFESTS = (pathlib.Path("crd.yaml"), pathlib.Path("obj.yaml"))
"""The default files in the current folder, as ``kopf init`` names them."""

POLLING_INTERVAL = 0.25
"""How often to look for changed files and for the operator's end, in seconds."""

SETTLING_INTERVAL = 0.1
"""For how long no more files must change before the reload, in seconds: editors save in several steps."""

STOPPING_TIMEOUT = 30.0
"""How long the operator may take to stop, in seconds; then it is killed. Pods have as much by default."""

STOPPING_PATIENCE = 3.0
"""After how long the wait for the stop of the operator is reported, in seconds."""

PUBLISHING_TIMEOUT = 10.0
"""How long the operator may take to publish its webhooks after it is started, in seconds."""


@click.command(context_settings={"ignore_unknown_options": True})
@cluster_options("~/.kube/kopf-dev/PROJECT.yaml")
@click.option(
    "--as",
    "identity",
    type=parse_user,
    metavar="NAME[:GROUP,...]",
    envvar="KOPF_DEV_AS",
    help="Run the operator as this user, e.g. system:serviceaccount:default:operator.  [default: an administrator]",
)
@click.option(
    "--apply",
    "manifests",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path),
    help="Apply this manifest, e.g. a CRD or an object; can be repeated, and the order is kept.",
)
@click.option(
    "--open/--no-open",
    "is_opened",
    default=None,
    help="Open the console in a browser.  [default: on a terminal with a screen, and not in CI]",
)
@click.argument("args", nargs=-1, metavar="PATHS... [RUN OPTIONS]...", type=click.UNPROCESSED)
def dev(
    *,
    kubeconfig: pathlib.Path | None,
    identity: tuple[str, tuple[str, ...]] | None,
    manifests: tuple[pathlib.Path, ...],
    is_opened: bool | None,
    args: tuple[str, ...],
    **options: Any,
) -> None:
    """
    Develop an operator on a local cluster.

    The command starts a local cluster, runs the operator in the files (PATHS), applies the manifests, and reloads the
    operator when the files change. Ctrl+C stops everything, and leaves nothing behind. Without files, it runs
    handlers.py from the current folder, and applies crd.yaml and obj.yaml if they exist there.

    All options of "kopf run" work here, too, e.g. --verbose, --metrics, or --module instead of the files.
    """
    if not args and not manifests and USUAL_FILE.exists():
        args, manifests = (str(USUAL_FILE),), tuple(path for path in USUAL_MANIFESTS if path.exists())
    if not args:
        raise click.UsageError("Nothing to run. Name the files with handlers, or modules with -m.")
    # Wrong commands are refused before anything is started.
    params = run.make_context("kopf dev", list(args)).params
    for path in params["paths"]:
        if not os.path.exists(path):
            raise click.UsageError(f"There is no such file: {path!r}. {suggest_files(path)}".rstrip())
    starting = start_cluster(kubeconfig=kubeconfig or find_project_kubeconfig(), **options)
    opening = is_to_be_opened(is_opened, os.environ, sys.stderr)
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.run(_develop(starting, identity, manifests, args, params, is_opened=opening))


async def _develop(
    starting: contextlib.AbstractAsyncContextManager[LocalCluster],
    identity: tuple[str, tuple[str, ...]] | None,
    paths: Sequence[pathlib.Path],
    args: Sequence[str],
    params: Mapping[str, Any],
    *,
    is_opened: bool,
) -> None:
    """
    Develop the operator: ``args`` and ``params`` are its command line, as given and parsed.

    ``is_opened`` tells whether to open its console in a browser.
    """
    with interruptible(), tempfile.TemporaryDirectory(prefix="kopf-dev-") as folder:
        async with starting as cluster:
            _say(f"The local cluster is up: {cluster.url}")
            _say(f"For a second terminal:   export KUBECONFIG={cluster.kubeconfig}")
            manifests = Manifests(cluster, _say)
            await manifests.apply(paths)
            kubeconfig = cluster.kubeconfig if identity is None else cluster.as_user(*identity).kubeconfig
            editor = cluster.as_user("kopf-console", ["system:masters"])
            console = DevConsole(editor.kubeconfig, params["console_endpoint"])
            _say(f"The console:             {console.url}")
            if params["metrics_endpoint"] is not None:
                _say(f"The metrics:             {params['metrics_endpoint']}")
            process = OperatorProcess(
                (*console.args, *args),
                kubeconfig,
                console.env,
                pathlib.Path(folder),
                get_offset=lambda: cluster.faults.clock.offset,
            )
            opening = asyncio.create_task(console.open()) if is_opened else None
            try:
                await _keep_reloading(cluster, process, manifests, paths, args)
            finally:
                if opening is not None:
                    opening.cancel()
                await process.stop()
    _say("Everything is stopped.")


async def _keep_reloading(
    cluster: LocalCluster,
    process: OperatorProcess,
    manifests: Manifests,
    paths: Collection[pathlib.Path],
    args: Collection[str],
) -> None:
    """Run the operator, and restart it when its sources change; apply the manifests when they change."""
    by_path = {os.path.realpath(path): path for path in paths}
    watcher = SourceWatcher(arg for arg in args if arg.endswith(".py") or os.path.isfile(arg))
    watcher.add(by_path)
    readiness = Readiness(cluster, process)
    await readiness.start()
    _say("The operator is started. Edit and save its files to reload it. Ctrl+C stops everything.")
    loop, clock = asyncio.get_running_loop(), cluster.faults.clock
    offset = clock.offset
    while True:
        await asyncio.sleep(POLLING_INTERVAL)
        if (
            isinstance(loop, LeapingLoop) and clock.offset > offset
        ):  # the page has moved the clock, so the timers of the cluster follow
            loop.leap(clock.offset - offset)
        offset = clock.offset
        if (definitions := process.read_report("definitions")) is not None:
            await manifests.apply_definitions(definitions)
            process.note_defined()
        if manifests.are_waiting and await readiness.check():
            await manifests.apply_waiting()
        if process.has_just_ended():
            _say("The operator has exited. It starts again when the files change.", fg="yellow")
        watcher.add((process.read_report("sources") or "").splitlines())
        changed = await _settle(watcher)
        await manifests.apply([by_path[path] for path in sorted(changed & by_path.keys())])
        if changed - by_path.keys():
            names = ", ".join(sorted(os.path.relpath(path) for path in changed - by_path.keys()))
            _say(f"Changed: {names}. Reloading the operator.")
            await process.stop()
            await readiness.start()


class Readiness:
    """Knows when the operator is ready for objects: when it has published its webhooks, if it has any."""

    def __init__(self, cluster: LocalCluster, process: OperatorProcess) -> None:
        self._cluster = cluster
        self._process = process
        self._before: dict[str, str] = {}
        self._deadline = 0.0

    async def start(self) -> None:
        """Start the operator."""
        self._before = await self._list_configurations()
        self._deadline = asyncio.get_running_loop().time() + PUBLISHING_TIMEOUT
        await self._process.start()

    async def check(self) -> bool:
        """Tell if the operator is ready, or takes too long, e.g. as it does not publish its webhooks itself."""
        types = self._process.read_report("webhooks")
        if types is None or self._process.is_over:
            return False
        now = await self._list_configurations()
        changed = [key for key in now if now[key] != self._before.get(key)]
        if all(any(key.startswith(type) for key in changed) for type in types.splitlines()):
            return True
        if asyncio.get_running_loop().time() < self._deadline:
            return False
        _say("The operator did not publish its webhooks in time. The objects are applied without them.", fg="yellow")
        return True

    async def _list_configurations(self) -> dict[str, str]:
        """Get the versions of all webhook configurations, by their types and names; and of converted definitions."""
        definitions = await self._cluster.aio.list("customresourcedefinitions")
        converted = [obj for obj in definitions if obj["spec"]["conversion"]["strategy"] == "Webhook"]
        return {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in converted} | {
            f"{type}/{obj['metadata']['name']}": obj["metadata"]["resourceVersion"]
            for type in ("mutating", "validating")
            for obj in await self._cluster.aio.list(f"{type}webhookconfigurations")
        }


async def _settle(watcher: SourceWatcher) -> set[str]:
    changed = more = watcher.poll()
    while more:
        await asyncio.sleep(SETTLING_INTERVAL)
        more = watcher.poll()
        changed |= more
    return changed


class OperatorProcess:
    """The operator in a child process: the same as ``kopf run`` with the same arguments, but on our cluster."""

    def __init__(
        self,
        args: Sequence[str],
        kubeconfig: pathlib.Path,
        env: Mapping[str, str],
        folder: pathlib.Path,
        *,
        get_offset: Callable[[], float],
    ) -> None:
        """``get_offset`` tells how far the time has leapt."""
        self._args = args
        self._get_offset = get_offset
        self._env = {**env, "KUBECONFIG": str(kubeconfig)}
        self._reports = folder
        """The files by which the operator tells of itself."""
        self._process: asyncio.subprocess.Process | None = None
        self._is_ended = False

    async def start(self) -> None:
        self._is_ended = False
        for name in ("webhooks", "definitions"):
            (self._reports / name).unlink(missing_ok=True)
        self._process = await asyncio.create_subprocess_exec(
            # With -P, the current directory is not looked into for our own imports: it can have e.g. a click.py in it.
            sys.executable,
            "-P",
            "-m",
            "kopf",
            "run",
            "--developing",
            f"--reports={self._reports}",
            *self._args,
            env={**os.environ, **self._env, OFFSET_VARIABLE: str(self._get_offset())},
        )

    @property
    def is_over(self) -> bool:
        """Whether the process has ended, or was not started."""
        return self._process is None or self._process.returncode is not None

    def has_just_ended(self) -> bool:
        """Tell if the process has ended by itself since the last call."""
        was_ended, self._is_ended = self._is_ended, self.is_over
        return self._is_ended and not was_ended

    def read_report(self, name: str) -> str | None:
        """
        Read a report of the operator about itself, line by line; ``None`` if there is no such report yet.

        The ``sources`` are the files of the modules that it has loaded, successfully or not; the ``webhooks`` are the
        types of its admission handlers. The ``definitions`` are its custom resource definitions in YAML, while it waits
        until they are applied.
        """
        path = self._reports / name
        return path.read_text("utf-8", "surrogateescape") if path.exists() else None

    def note_defined(self) -> None:
        """Let the operator go on, as its definitions are applied."""
        (self._reports / "definitions").unlink(missing_ok=True)

    async def stop(self) -> None:
        """Stop the operator gracefully; kill it if that takes too long, or if this task is cancelled."""
        if self._process is None or self._process.returncode is not None:
            return
        try:
            self._process.send_signal(STOP_SIGNAL)
            async with asyncio.timeout(STOPPING_TIMEOUT):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STOPPING_PATIENCE):
                        await self._process.wait()
                        return
                _say(
                    f"The operator is still stopping; after {STOPPING_TIMEOUT:g} seconds, it is killed. "
                    f"Ctrl+C kills it at once.",
                    fg="yellow",
                )
                await self._process.wait()
        except TimeoutError:
            _say("The operator did not stop in time, and is killed.", fg="yellow")
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()


def _say(text: str, fg: str = "green") -> None:
    # To the same stream as the logs of the operator, so that they do not overtake each other.
    if is_for_people(sys.stderr):
        has_own = has_colours(sys.stderr)
        line = TerminalFormatter(colours=has_own).format_guide("dev", click.style(text, fg=fg) if has_own else text)
        click.echo(line, err=True, color=has_own)
    else:
        click.echo(f"kopf dev: {text}", err=True)
