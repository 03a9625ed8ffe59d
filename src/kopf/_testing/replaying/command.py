"""``kopf replay``: replay a recording with some handlers, and tell by the exit code if they do the same."""

from __future__ import annotations

import contextlib
import json
import logging
import pathlib
import sys

import click

from kopf._handlers.declarations import DeclarationError
from kopf._handlers.registry import OperatorRegistry
from kopf._recording.format import RecordingError
from kopf._testing.replaying.replay import Replay
from kopf._testing.replaying.replay import replay as perform
from kopf._testing.simulation_errors import SimulationError
from kopf.cli.loading import LoadingError, explain_declarations

_SAME, _DIVERGED, _UNUSABLE = 0, 1, 2


@click.command()
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", envvar="KOPF_REPLAY_MODULE",
              help="Load this importable module; can be repeated.")
@click.option("--logs", "with_logs", is_flag=True, help="Show what is logged in the replay.")
@click.option("--json", "as_json", is_flag=True, help="Tell it for programs.")
@click.argument("recording", type=click.Path(path_type=pathlib.Path))
@click.argument("paths", nargs=-1)
def replay(
        recording: pathlib.Path, paths: tuple[str, ...], modules: tuple[str, ...], with_logs: bool, as_json: bool,
) -> None:
    """
    Replay a RECORDING with the handlers of the files (PATHS) and modules; no cluster is needed.

    The exit code is 0 if the operator does the same as it was recorded to do by "kopf run --record", 1 if it does
    something else, and 2 if the recording or the handlers cannot be used.
    """
    if not paths and not modules:
        raise click.UsageError("Nothing to replay it with. Name the files with handlers, or modules with -m.")
    logging.getLogger("kopf").addHandler(logging.NullHandler())  # not to the terminal: see the option
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the handlers print is not a part of the answer
            result = perform(recording, *paths, modules=modules, registry=OperatorRegistry())
    except LoadingError as e:
        e.show()
        raise SystemExit(_UNUSABLE) from e
    except DeclarationError as e:
        LoadingError(explain_declarations(e)).show()
        raise SystemExit(_UNUSABLE) from e
    except (RecordingError, SimulationError) as e:
        click.echo(f"Error: {e}", err=True)
        raise SystemExit(_UNUSABLE) from e
    if with_logs:
        click.echo(str(result.logs), err=True)
    click.echo(_encode(result) if as_json else str(result))
    sys.exit(_SAME if result else _DIVERGED)


def _encode(result: Replay) -> str:
    return json.dumps({
        "same": bool(result),
        "duration": result.duration,
        "calls": len(result.recorded_journal),
        "requests": result.requests,
        "cut": result.is_cut,
        "checkpoint": result.checkpoint,
        "divergences": [
            {
                "time": round(item.time, 3), "kind": item.kind, "place": item.place, "text": item.text,
                "details": item.details,
            }
            for item in result.divergences
        ],
    }, indent=2)
