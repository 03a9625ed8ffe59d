"""The options that are common for the commands, and the values that cannot be passed via the command line."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import click

from kopf._client.vault import Vault
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.flags import Flag
from kopf._settings.logs import LogFormat, configure
from kopf._settings.settings import OperatorSettings

DEBUG_KEY = "kopf.debug"
"""Where the contexts of click remember if the debugging is on."""


@dataclasses.dataclass
class CLIControls:
    """
    What those who call the commands from Python can pass to them, e.g. :class:`kopf.testing.KopfRunner`.

    Use it as the context object of click: ``kopf.cli.main(args, obj=CLIControls(...))``.
    """

    ready_flag: Flag | None = None
    """Set when the operator is up and running."""
    stop_flag: Flag | None = None
    """Stops the operator when it is set."""
    vault: Vault | None = None
    registry: OperatorRegistry | None = None
    settings: OperatorSettings | None = None
    loop: asyncio.AbstractEventLoop | None = None


class LogFormatParamType(click.Choice[str]):
    """The name of a log format as an option's value."""

    def __init__(self) -> None:
        super().__init__([item.name.lower() for item in LogFormat])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the name of a log format to the :class:`kopf.LogFormat`."""
        if isinstance(value, LogFormat):
            return value
        return LogFormat[super().convert(value, param, ctx).upper()]


def logging_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Add the logging options to a command; the logging is configured before the command is executed."""

    @click.option("-v", "--verbose", is_flag=True, help="Show what is being done, in details.")
    @click.option("-d", "--debug", is_flag=True, help="Show everything: the API calls, asyncio & aiohttp.")
    @click.option("-q", "--quiet", is_flag=True, help="Show only warnings and errors.")
    @click.option("--log-format", type=LogFormatParamType(), default="full", show_default=True)
    @click.option("--log-refkey", help="The key of the object's reference in JSON logs.", metavar="KEY")
    @click.option(
        "--log-prefix/--no-log-prefix", default=None,
        help="Begin the messages with the object's name. By default, all but JSON logs have it.",
    )
    @functools.wraps(fn)
    def wrapper(
            *args: Any,
            verbose: bool,
            debug: bool,
            quiet: bool,
            log_format: LogFormat,
            log_prefix: bool | None,
            log_refkey: str | None,
            **kwargs: Any,
    ) -> Any:
        click.get_current_context().meta[DEBUG_KEY] = debug
        configure(
            debug=debug, verbose=verbose, quiet=quiet,
            log_format=log_format, log_prefix=log_prefix, log_refkey=log_refkey,
        )
        return fn(*args, **kwargs)

    return wrapper
