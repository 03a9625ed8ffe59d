"""
The command line of Kopf.

``kopf run`` runs operators; ``kopf freeze`` and ``kopf resume`` pause and resume them; ``kopf explain`` explains their
work on an object; ``kopf plan`` shows their next writes; ``kopf release`` removes their finalizers; ``kopf shards``
shows their replicas; ``kopf replay`` replays their recordings; ``kopf dev`` and ``kopf cluster`` help to develop them.

An environment variable can set each option: e.g. ``KOPF_RUN_VERBOSE=true`` sets ``kopf run --verbose``.

Each command is imported on its first use, so that the other commands take no memory of an operator.
"""

from __future__ import annotations

import collections
import importlib
import os
from typing import TYPE_CHECKING, Any

import click

from kopf._values.version import __version__

if TYPE_CHECKING:
    from kopf._logging.configuration import make_formatter
    from kopf.cli.options import CLIControls, LogFormatParamType, logging_options
    from kopf.cli.peering import freeze, resume
    from kopf.cli.running import run

__all__ = [
    "CLIControls",
    "LogFormatParamType",
    "freeze",
    "logging_options",
    "main",
    "make_formatter",
    "resume",
    "run",
]

_COMMANDS = {
    "run": ("kopf.cli.running:run", "Run an operator: the handlers in the files (PATHS) and modules."),
    "freeze": ("kopf.cli.peering:freeze", 'Pause operators for some time, or until "kopf resume".'),
    "resume": ("kopf.cli.peering:resume", "Resume paused operators before their time is up."),
    "check": ("kopf.cli.checking:check", "Find mistakes and risks in an operator, without a cluster."),
    "crd": ("kopf.cli.crd:crd", "Print the custom resource definitions (CRDs) made from models."),
    "explain": ("kopf.cli.explaining:explain", "Explain why the handlers of an object run or do not run."),
    "plan": ("kopf.cli.planning:plan_command", "Show what an operator would write, without writing it."),
    "init": ("kopf.cli.initializing:init", "Create a new project: an operator with tests, image, CI, and manifests."),
    "release": ("kopf.cli.releasing:release", "Remove the finalizers that a removed operator has left."),
    "demo": ("kopf.cli.demo.command:demo", "Watch an operator at work on a local cluster, step by step."),
    "dev": ("kopf.cli.dev.command:dev", "Develop an operator on a local cluster."),
    "shards": ("kopf.cli.sharding:shards", "Show how the replicas of an operator share its objects."),
    "replay": ("kopf.cli.replaying:replay_command", 'Replay a recording of "kopf run --record".'),
    "rbac": ("kopf.cli.packaging:rbac", "Print the roles that an operator needs."),
    "manifests": ("kopf.cli.packaging:manifests", "Generate the manifests to deploy an operator."),
    "cluster": ("kopf.cli.cluster:cluster", "Serve a Kubernetes API from memory, for this machine only."),
}
"""The places of the commands, and their summaries for the list of commands."""

_UNLOADED = click.Command(None)
"""The placeholder of a command that is not imported yet."""


class LazyCommands(collections.UserDict[str, click.Command]):
    """All commands by their names, for click and for plugins; a command is imported when it is taken from here."""

    def __init__(self) -> None:
        super().__init__()
        self.data.update(dict.fromkeys(_COMMANDS, _UNLOADED))

    def __getitem__(self, name: str) -> click.Command:
        if self.data.get(name) is _UNLOADED:
            module, _, attribute = _COMMANDS[name][0].partition(":")
            from kopf.cli.memory import collecting_nothing  # not for the help

            with collecting_nothing():  # imported modules stay
                self.data[name] = getattr(importlib.import_module(module), attribute)
        return self.data[name]


class LazyGroup(click.Group):
    """A group of commands that are imported on demand. Plugins can add commands."""

    commands: LazyCommands

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; explain its failure if it needs the current directory, and that has been deleted."""
        try:
            return super().invoke(ctx)
        except FileNotFoundError as e:
            try:
                os.getcwd()
            except FileNotFoundError:
                text = "The current directory does not exist anymore. Change to another one."
                raise click.ClickException(text) from e
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of the commands to the help, without imports."""
        rows = [
            (name, _COMMANDS[name][1] if command is _UNLOADED else command.get_short_help_str(formatter.width))
            for name, command in sorted(self.commands.data.items())
            if not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    name="kopf",
    cls=LazyGroup,
    commands=LazyCommands(),
    context_settings={"auto_envvar_prefix": "KOPF", "help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="kopf")
def main() -> None:
    """Run, check, and deploy Kubernetes operators that are written in Python."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import the public names, for Python code that calls the commands."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _COMMANDS:
            return main.commands[name]
        module = "kopf._logging.configuration" if name == "make_formatter" else "kopf.cli.options"
        return getattr(importlib.import_module(module), name)
