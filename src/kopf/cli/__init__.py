"""
The command line: ``kopf run`` for operators, ``kopf freeze`` & ``kopf resume`` to pause them,
``kopf explain`` for what they do with an object, ``kopf release`` for what is left of them, ``kopf replay`` for what
was recorded of them, ``kopf dev`` & ``kopf cluster`` for their development.

Every option can also be set by an environment variable: e.g. ``KOPF_RUN_VERBOSE=true`` for ``kopf run --verbose``.

A command is imported when it is asked for: the others have nothing to do in the memory of an operator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from kopf._values.version import __version__

if TYPE_CHECKING:
    from kopf._logging.configuration import make_formatter
    from kopf.cli.options import CLIControls, LogFormatParamType, logging_options

__all__ = ["CLIControls", "LogFormatParamType", "logging_options", "main", "make_formatter"]

_COMMANDS = {
    "run": ("kopf.cli.running", "Run an operator: the handlers of the files (PATHS) and modules."),
    "freeze": ("kopf.cli.peering", "Pause the operators for some time, or until \"kopf resume\"."),
    "resume": ("kopf.cli.peering", "Let the operators go on before the time is over."),
    "explain": ("kopf.cli.explaining", "Tell what becomes of an object, and why its handlers run or do not run."),
    "release": ("kopf.cli.releasing", "Remove the finalizers of an operator that is gone."),
    "dev": ("kopf.cli.dev", "Develop an operator on a local cluster."),
    "replay": ("kopf._testing.replaying.command", "Replay what \"kopf run --record\" has recorded."),
    "cluster": ("kopf.cli.cluster", "Serve the Kubernetes API from memory on the loopback."),
}
"""The modules of the commands, and what the list of the commands says of them."""


class LazyGroup(click.Group):
    """A group of commands that are imported when they are used. Those that somebody adds are there, too."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names of all commands, sorted."""
        return sorted({*_COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Get a command by its name; ``None`` if there is no such command."""
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            from kopf.cli.memory import sparing_authorities, sparing_cpp_library

            with sparing_cpp_library(), sparing_authorities():
                self.add_command(getattr(importlib.import_module(_COMMANDS[cmd_name][0]), cmd_name))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of the commands to the help, without importing them."""
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        helps = {name: command.get_short_help_str(formatter.width) for name, command in shown.items()}
        helps.update((name, text) for name, (_, text) in _COMMANDS.items())
        with formatter.section("Commands"):
            formatter.write_dl(sorted(helps.items()))


@click.group(
    name="kopf", cls=LazyGroup, context_settings={"auto_envvar_prefix": "KOPF", "help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="kopf")
def main() -> None:
    """Write Kubernetes operators in Python, and run them."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import the names that are offered to those who call the commands from Python."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "kopf._logging.configuration" if name == "make_formatter" else "kopf.cli.options"
        return getattr(importlib.import_module(module), name)
