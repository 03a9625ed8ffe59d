"""``kopf replay``: replay a recording with some handlers; the exit code tells if they behave the same."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import pathlib
import sys
from collections.abc import Iterable

import click

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._controller.instruments import Instruments
from kopf._controller.memos import Memo
from kopf._handlers.lifecycles import get_default_lifecycle
from kopf._handlers.registry import OperatorRegistry
from kopf._handlers.signatures import check_registry
from kopf._operator.namespace_patterns import check_patterns, decode_pattern
from kopf._operator.running import Operator, OperatorSetup
from kopf._replay.format import RecordingError
from kopf._replay.recorded_run import RecordedRun
from kopf._replay.replay import Replay, check_loop, replay_run
from kopf._settings.settings import OperatorSettings, copy_settings, set_peering
from kopf._virtual_time.patience import PATIENCE, SimulationError
from kopf.cli.loading import exiting_on_refusal, load_anew

_SAME, _DIVERGED, _UNUSABLE = 0, 1, 2
_SERVER = "https://recorded.invalid"
"""A server that does not exist, and never gets any requests."""


@click.command("replay")
@click.option(
    "-m",
    "--module",
    "modules",
    multiple=True,
    metavar="MODULE",
    envvar="KOPF_REPLAY_MODULE",
    help="Load this importable module; can be repeated.",
)
@click.option("--logs", "with_logs", is_flag=True, help="Show the logs of the replay.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.argument("recording", type=click.Path(path_type=pathlib.Path))
@click.argument("paths", nargs=-1)
def replay_command(
    recording: pathlib.Path,
    paths: tuple[str, ...],
    modules: tuple[str, ...],
    with_logs: bool,
    as_json: bool,
) -> None:
    """
    Replay a RECORDING of "kopf run --record" with the handlers in the files (PATHS) and modules.

    The replay needs no cluster. The exit code is 0 if the operator behaves as recorded, 1 if it behaves differently,
    and 2 if the recording or the handlers cannot be used.
    """
    if not paths and not modules:
        raise click.UsageError("No handlers for the replay. Name the files with handlers, or modules with -m.")
    logging.getLogger("kopf").addHandler(logging.NullHandler())  # not to the terminal: see the option
    try:
        # The output of the handlers is not a part of the answer.
        with contextlib.redirect_stdout(sys.stderr), exiting_on_refusal(_UNUSABLE):
            result = replay(recording, *paths, modules=modules, registry=OperatorRegistry())
    except (RecordingError, SimulationError) as e:
        click.echo(f"Error: {e}", err=True)
        raise SystemExit(_UNUSABLE) from e
    if with_logs:
        click.echo(str(result.logs), err=True)
    click.echo(_encode(result) if as_json else str(result))
    sys.exit(_SAME if result else _DIVERGED)


def replay(
    recording: str | pathlib.Path,
    *paths: str | pathlib.Path,
    modules: Iterable[str] = (),
    registry: OperatorRegistry | None = None,
    settings: OperatorSettings | None = None,
    patience: float = PATIENCE,
) -> Replay:
    """
    Replay a recording of ``kopf run --record``, and return the differences of the operator from it.

    It needs no cluster, and makes no requests.

    :param recording: the file of the recording.
    :param paths: the files of the operator, as for ``kopf run``; they are loaded anew.
    :param modules: the modules of the operator, as for ``kopf run -m``; they are loaded anew, too.
    :param registry: the handlers, if they are neither in the files nor in the default registry.
    :param settings: the settings that the operator begins with; by default, the default ones.
    :param patience: how long a handler may take, in seconds of real time.

    Raises :class:`RecordingError` if the file cannot be read; :class:`SimulationError` if an event loop runs already,
    or a handler takes too long; :class:`DeclarationError` if some handlers can never work.
    """
    check_loop()
    handlers = load_anew([str(path) for path in paths], [*modules], registry)
    check_registry(handlers)
    run = RecordedRun(pathlib.Path(recording))
    own = OperatorSettings() if settings is None else copy_settings(settings)
    operate = functools.partial(_operate, run, handlers, own)
    return replay_run(run, operate, patience=patience)


async def _operate(
    run: RecordedRun, registry: OperatorRegistry, settings: OperatorSettings, instruments: Instruments
) -> None:
    """Run the operator with the same options as the recorded one."""
    options = run.head.get("options", {})
    set_peering(
        settings,
        standalone=options.get("standalone"),
        priority=options.get("priority"),
        name=options.get("peering_name"),
    )
    settings.coordination.mode = options.get("coordination")  # it has no replicas here, but therefore no peers, either
    vault = Vault(settings)
    vault.populate([ConnectionInfo(server=_SERVER)])
    setup = OperatorSetup(
        registry=registry,
        settings=settings,
        lifecycle=get_default_lifecycle(),
        namespaces=check_patterns([decode_pattern(item) for item in options.get("namespaces", ())]),
        identity=options.get("identity"),
        vault=vault,
        memo=Memo(),
        ready_flag=None,
        endpoint=None,
        instruments=instruments,
    )
    try:
        await Operator(setup).run()
    finally:
        await vault.close()


def _encode(result: Replay) -> str:
    return json.dumps(
        {
            "same": bool(result),
            "duration": result.duration,
            "calls": len(result.recorded_journal),
            "requests": result.requests,
            "cut": result.is_cut,
            "checkpoint": result.checkpoint,
            "divergences": [
                {
                    "time": round(item.time, 3),
                    "kind": item.kind,
                    "place": item.place,
                    "text": item.text,
                    "details": item.details,
                }
                for item in result.divergences
            ],
        },
        indent=2,
    )
