"""The common options of the commands, and the values that Python code can pass to them."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from kopf._client.auth.vault import Vault
from kopf._client.resources.patching import PatchConflict
from kopf._handlers.registry import OperatorRegistry, get_default_registry
from kopf._logging.configuration import (
    LogFormat,
    configure,
    configure_for_terminal,
    make_formatter,
    parse_log_format,
)
from kopf._operator.access import Access
from kopf._operator.flags import Flag
from kopf._operator.namespace_patterns import check_patterns
from kopf._settings.settings import MAX_PRIORITY, OperatorSettings
from kopf._values.operator_error import OperatorError

T = TypeVar("T")

DEBUG_KEY = "kopf.debug"
"""The key of the debugging mode in the contexts of click."""

DEV_PRIORITY = 666
"""The priority of ``--dev``: higher than usual."""


@dataclasses.dataclass
class CLIControls:
    """
    The values that Python code can pass to the commands, as :class:`kopf.testing.KopfRunner` does.

    Use it as the context object of click: ``kopf.cli.main(args, obj=CLIControls(...))``.
    """

    ready_flag: Flag | None = None
    """The operator sets it when it is ready; by default, it sets nothing."""
    stop_flag: Flag | None = None
    """Set it to stop the operator; by default, only signals stop the operator."""
    vault: Vault | None = None
    """The credentials; by default, the login handlers of the operator provide them."""
    registry: OperatorRegistry | None = None
    """The handlers; by default, all handlers of the default registry."""
    settings: OperatorSettings | None = None
    """The initial settings; by default, new ones."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop to run in; by default, a new one."""


def make_access(controls: CLIControls, settings: OperatorSettings) -> Access:
    """Make the access of a command to the cluster, as an operator has it."""
    vault = controls.vault if controls.vault is not None else Vault(settings)
    return Access(registry=get_registry(controls), settings=settings, vault=vault)


def get_registry(controls: CLIControls) -> OperatorRegistry:
    """Get the handlers of the command: the given ones, or the ones of the loaded code."""
    return controls.registry if controls.registry is not None else get_default_registry()


def get_settings(controls: CLIControls) -> OperatorSettings:
    """Get the settings that the command begins with: the given ones, or the default ones."""
    return controls.settings if controls.settings is not None else OperatorSettings()


def run_to_end(controls: CLIControls, coro: Coroutine[Any, Any, T], *, exit_code: int = 1) -> T:
    """Run the coroutine of a command, and return its result; or print the error, and exit with this code."""
    try:
        return asyncio.run(coro) if controls.loop is None else controls.loop.run_until_complete(coro)
    except (OperatorError, PatchConflict, ValueError) as e:
        click.echo(f"Error: {e}", err=True)
        raise SystemExit(exit_code) from e


def refuse_both(first: str, second: str, *given: object) -> None:
    """Raise :class:`click.UsageError` if the values of both options are given."""
    if all(given):
        raise click.UsageError(f"Either {first} or {second} can be used, not both.")


def check_namespaces(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Check the patterns of an option. Raises :class:`click.BadParameter`."""
    try:
        check_patterns(value)
    except ValueError as e:
        raise click.BadParameter(str(e), ctx, param) from e
    return value


class PriorityParamType(click.IntRange):
    """A priority among operators. The help texts omit its range, which is enormous."""

    def __init__(self) -> None:
        super().__init__(-MAX_PRIORITY, MAX_PRIORITY)

    def _describe_range(self) -> str:
        return ""


class LogFormatParamType(click.Choice[str]):
    """The type of an option: the name of a log format, or a format string of :mod:`logging`."""

    def __init__(self) -> None:
        super().__init__([item.name.lower() for item in LogFormat], case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the name of a log format to :class:`kopf.LogFormat`; format strings remain strings."""
        if isinstance(value, LogFormat):
            return value
        if isinstance(value, str) and "%" in value:
            try:
                make_formatter(log_format=value)
            except ValueError as e:
                self.fail(f"{value!r} is not a format string: {e}", param, ctx)
            return value
        return parse_log_format(super().convert(value, param, ctx))


def logging_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Add the logging options to a command, a function for click. They configure the logging before it runs."""

    @click.option("-v", "--verbose", is_flag=True, help="Log each action and its reason.")
    @click.option("-d", "--debug", is_flag=True, help="Log everything, including API calls, asyncio, and aiohttp.")
    @click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")
    @click.option(
        "--log-format",
        type=LogFormatParamType(),
        metavar="plain|full|json|FORMAT",
        help="A named format, or a format string for Python's logging, e.g. '%(levelname)s: %(message)s'.  "
        "[default: short and in colours on terminals, full elsewhere]",
    )
    @click.option(
        "--log-refkey", help="The key of the object's identity in JSON logs.  [default: object]", metavar="KEY"
    )
    @click.option(
        "--log-prefix/--no-log-prefix",
        default=None,
        help="Start each message with the object's name.  [default: in all formats but JSON]",
    )
    @click.option(
        "--log-config",
        type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path),
        metavar="FILE",
        help="Configure logging from this YAML or JSON file (see Python's logging.config), not from the other options.",
    )
    @functools.wraps(fn)
    def wrapper(
        *args: Any,
        verbose: bool,
        debug: bool,
        quiet: bool,
        log_format: LogFormat | str | None,
        log_prefix: bool | None,
        log_refkey: str | None,
        log_config: pathlib.Path | None,
        **kwargs: Any,
    ) -> Any:
        click.get_current_context().meta[DEBUG_KEY] = debug
        if log_config is not None:
            _configure_by_file(log_config)
        elif log_format is None and log_refkey is None:  # the latter is only for machines
            configure_for_terminal(debug=debug, verbose=verbose, quiet=quiet, log_prefix=log_prefix)
        else:
            configure(
                debug=debug,
                verbose=verbose,
                quiet=quiet,
                log_format=log_format or LogFormat.FULL,
                log_prefix=log_prefix,
                log_refkey=log_refkey,
            )
        return fn(*args, **kwargs)

    return wrapper


def _configure_by_file(path: pathlib.Path) -> None:
    """Configure the logging by the user's file. By default, it does not disable the existing loggers."""
    import logging.config  # both are large, and few operators need them

    import yaml

    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("expected a mapping")
        logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, **config})
    except (OSError, ValueError, TypeError, AttributeError, ImportError, yaml.YAMLError) as e:
        reason = f"{e} ({e.__cause__})" if e.__cause__ is not None else str(e)
        raise click.BadParameter(f"{str(path)!r} cannot be used: {reason}", param_hint="'--log-config'") from e
