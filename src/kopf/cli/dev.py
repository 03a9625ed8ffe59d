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
import signal
import sys
import tempfile
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import click
import yaml

from kopf.cli.cluster import cluster_options, start_cluster
from kopf.cli.interrupts import interruptible
from kopf.cli.running import run
from kopf.cli.sources import SourceWatcher

if TYPE_CHECKING:
    from kopf_cluster import LocalCluster

POLLING_INTERVAL = 0.25
"""How often to look for changed files and for the operator's end, in seconds."""

SETTLING_INTERVAL = 0.1
"""For how long no more files must change before the reload, in seconds: editors save in several steps."""

STOPPING_TIMEOUT = 1.0
"""How long the operator may take to stop, in seconds; then it is killed."""

ESTABLISHING_TIMEOUT = 5.0
"""How long a resource definition may take to be served, in seconds."""


@click.command(context_settings={"ignore_unknown_options": True})
@cluster_options
@click.option("--apply", "manifests", multiple=True, metavar="FILE",
              type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path),
              help="Apply this manifest, e.g. a CRD or an object; can be repeated, the order is kept.")
@click.argument("args", nargs=-1, metavar="PATHS... [RUN OPTIONS]...", type=click.UNPROCESSED)
def dev(
        port: int,
        kubeconfig: pathlib.Path | None,
        data_dir: pathlib.Path | None,
        simulate: bool,
        manifests: tuple[pathlib.Path, ...],
        args: tuple[str, ...],
) -> None:
    """
    Develop an operator on a local cluster.

    Starts a local cluster, applies the manifests, runs the operator of the files (PATHS), and reloads it when
    the files change. Ctrl+C stops everything and leaves nothing behind.

    All options of "kopf run" can be used too, e.g. --verbose, or --module instead of the files.
    """
    if not args:
        raise click.UsageError("Nothing to run. Name the files with handlers, or modules with -m.")
    # Nothing has to be started to see that the command makes no sense.
    for path in run.make_context("kopf dev", list(args)).params["paths"]:
        if not os.path.exists(path):
            raise click.UsageError(f"There is no such file: {path!r}.")
    starting = start_cluster(port=port, kubeconfig=kubeconfig, data_dir=data_dir, simulate=simulate)
    asyncio.run(_develop(starting, manifests, args))


async def _develop(
        starting: contextlib.AbstractAsyncContextManager[LocalCluster],
        manifests: Sequence[pathlib.Path],
        args: Sequence[str],
) -> None:
    with interruptible() as signals, tempfile.TemporaryDirectory(prefix="kopf-dev-") as folder:
        async with starting as cluster:
            _say(f"The local cluster is up: {cluster.url}")
            _say(f"For a second terminal:   export KUBECONFIG={cluster.kubeconfig}")
            for path in manifests:
                await _apply(cluster, path)
            process = OperatorProcess(args, cluster.kubeconfig, pathlib.Path(folder) / "sources")
            try:
                await _keep_reloading(cluster, process, manifests, args)
            finally:
                # From the terminal, Ctrl+C goes to all processes at once; the second signal would be too much.
                await process.stop(is_told=signal.SIGINT in signals)
    _say("Everything is stopped.")


async def _keep_reloading(
        cluster: LocalCluster,
        process: OperatorProcess,
        manifests: Collection[pathlib.Path],
        args: Collection[str],
) -> None:
    """Run the operator, and run it anew whenever its sources change; apply the manifests when they change."""
    by_path = {os.path.realpath(path): path for path in manifests}
    watcher = SourceWatcher(arg for arg in args if arg.endswith(".py") or os.path.isfile(arg))
    watcher.add(by_path)
    await process.start()
    _say("The operator is started. Edit, save, and it is reloaded. Ctrl+C stops everything.")
    while True:
        await asyncio.sleep(POLLING_INTERVAL)
        if process.has_just_ended():
            _say("The operator has ended. It will be started again when the files change.", fg="yellow")
        watcher.add(process.list_sources())
        changed = await _settle(watcher)
        for path in sorted(changed & by_path.keys()):
            await _apply(cluster, by_path[path])
        if changed - by_path.keys():
            names = ", ".join(sorted(os.path.relpath(path) for path in changed - by_path.keys()))
            _say(f"Changed: {names}. The operator is reloaded.")
            await process.stop()
            await process.start()


async def _settle(watcher: SourceWatcher) -> set[str]:
    changed = more = watcher.poll()
    while more:
        await asyncio.sleep(SETTLING_INTERVAL)
        more = watcher.poll()
        changed |= more
    return changed


async def _apply(cluster: LocalCluster, path: pathlib.Path) -> None:
    """Apply a manifest; if something is wrong with it, say that, and leave it to be fixed."""
    try:
        for document in yaml.safe_load_all(path.read_text()):
            if document:
                obj = await _apply_object(cluster, document)
                meta = obj["metadata"]
                name = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
                _say(f"Applied {path}: {obj['kind']} {name}")
    except Exception as e:  # of any kind: of the file, of its syntax, of the API
        _say(f"Cannot apply {path}: {e}", fg="red")


async def _apply_object(cluster: LocalCluster, document: dict[str, Any]) -> dict[str, Any]:
    """Apply one object; the definitions of new resources are waited for, as their objects can be the next."""
    [obj] = cluster.apply(document)
    if obj["kind"] == "CustomResourceDefinition":
        async with asyncio.timeout(ESTABLISHING_TIMEOUT):
            while not _is_established(obj):
                await asyncio.sleep(0.01)
                [obj] = cluster.apply(document)
    return obj


def _is_established(crd: dict[str, Any]) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


class OperatorProcess:
    """The operator in a child process: the same as ``kopf run`` with the same arguments, but on our cluster."""

    def __init__(self, args: Sequence[str], kubeconfig: pathlib.Path, report: pathlib.Path) -> None:
        self._args = args
        self._kubeconfig = kubeconfig
        self._report = report
        self._process: asyncio.subprocess.Process | None = None
        self._is_ended = False

    async def start(self) -> None:
        self._is_ended = False
        self._process = await asyncio.create_subprocess_exec(
            # With -P, the current directory is not looked into for our own imports: it can have e.g. a click.py in it.
            sys.executable, "-P", "-m", "kopf", "run", f"--report-sources={self._report}", "--show-errors", *self._args,
            env={**os.environ, "KUBECONFIG": str(self._kubeconfig)},
        )

    def has_just_ended(self) -> bool:
        """Whether it has ended by itself since it was asked for the last time."""
        was_ended, self._is_ended = self._is_ended, self._process is None or self._process.returncode is not None
        return self._is_ended and not was_ended

    def list_sources(self) -> list[str]:
        """Get the files of those modules that the operator has loaded, whether successfully or not."""
        return self._report.read_text().splitlines() if self._report.exists() else []

    async def stop(self, *, is_told: bool = False) -> None:
        """Stop the operator; it is only waited for if it is told to stop already."""
        if self._process is None or self._process.returncode is not None:
            return
        try:
            if not is_told:
                self._process.terminate()
            async with asyncio.timeout(STOPPING_TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            _say("The operator does not stop, so it is killed.", fg="yellow")
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()


def _say(text: str, fg: str = "green") -> None:
    # To the same stream as the logs of the operator, so that they do not overtake each other.
    click.secho(f"kopf dev: {text}", fg=fg, err=True)
