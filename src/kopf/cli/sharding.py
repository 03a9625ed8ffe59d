"""``kopf shards``: the replicas of an operator, and their shares of the objects."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence

import click

from kopf._client.errors import APIError, APIForbiddenError, APINetworkError
from kopf._coordination.replica_identity import get_lease_namespace
from kopf._coordination.replica_survey import SurveyedGroup, SurveyedReplica, list_groups
from kopf._operator.access import Access
from kopf._values.operator_error import OperatorError
from kopf._values.permissions import format_advice
from kopf._values.resources import LEASES
from kopf._values.slots import SLOT_COUNT, Slots, describe_slots
from kopf.cli.options import CLIControls, get_settings, make_access, run_to_end

_HEADER = ("REPLICA", "ROLE", "SHARE", "MOVING", "SINCE", "RENEWED", "VERSION", "SLOTS")
_MAX_SLOTS = 40
"""The limit of shown slots, in characters: after many moves of replicas, the slots are in many pieces."""


@click.command()
@click.option("-n", "--namespace", metavar="NAME", help="The namespace of the Leases.  [default: as in the kubeconfig]")
@click.option("--json", "is_json", is_flag=True, envvar="KOPF_SHARDS_JSON", help="Print JSON, for programs.")
@click.argument("name", required=False)
@click.make_pass_decorator(CLIControls, ensure=True)
def shards(controls: CLIControls, /, name: str | None, namespace: str | None, is_json: bool) -> None:
    """Show how the replicas of an operator share its objects.

    NAME is the name of their Lease; by default, the command shows all operators of the namespace.
    """
    settings = get_settings(controls)
    settings.coordination.namespace = namespace or settings.coordination.namespace
    groups = run_to_end(controls, _look(make_access(controls, settings), name))
    if is_json:
        click.echo(json.dumps([group.as_json() for group in groups], indent=2))
    else:
        click.echo("\n\n".join(_write(group) for group in groups))


async def _look(access: Access, name: str | None) -> list[SurveyedGroup]:
    async with access.connected() as api:
        connection = await access.vault.acquire()
        access.vault.release(connection)
        namespace = get_lease_namespace(access.settings.coordination, connection.credentials.default_namespace)
        try:
            groups = await list_groups(api, access.settings, namespace, name)
        except APIForbiddenError as e:
            raise OperatorError(f"{e}. {format_advice(LEASES, ['list'], namespace=namespace)}") from e
        except (APIError, APINetworkError) as e:
            raise OperatorError(f"Cannot list the Leases: {e}") from e
    if not groups:
        whose = "an operator" if name is None else f"{name!r}"
        raise OperatorError(f"There are no replicas of {whose} in the namespace {namespace!r}; see --namespace.")
    return groups


def _write(group: SurveyedGroup) -> str:
    lines = [f"{group.name} in {group.namespace}: {group.mode or 'nobody'}, generation {group.generation}"]
    rows = [_HEADER, *(_make_row(replica) for replica in group.replicas)] if group.replicas else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    if group.unowned and group.mode:
        lines.append(f"without an owner: {len(group.unowned)} of {SLOT_COUNT} slots ({_shorten(group.unowned)})")
    return "\n".join(lines)


def _make_row(replica: SurveyedReplica) -> Sequence[str]:
    moves = [f"{sign}{len(slots)}" for sign, slots in (("-", replica.leaving), ("+", replica.arriving)) if slots]
    return (
        replica.name,
        f"{replica.role}, exits" if replica.is_leaving else replica.role,
        f"{len(replica.slots) / SLOT_COUNT:.1%}",
        " ".join(moves) or "-",
        replica.since.partition(".")[0] or "-",
        _tell_age(replica),
        replica.version or "-",
        _shorten(replica.slots),
    )


def _tell_age(replica: SurveyedReplica) -> str:
    """Tell the age of the latest renewal, by the clocks of the replica and of this machine, which can differ."""
    try:
        time = datetime.datetime.fromisoformat(replica.renewed)
        age = (datetime.datetime.now(datetime.UTC) - time).total_seconds()
    except (ValueError, TypeError):
        return "-"
    return f"{max(0, round(age))}s ago{' (late)' if age > replica.duration else ''}"


def _shorten(slots: Slots) -> str:
    text = describe_slots(slots)
    return text if len(text) <= _MAX_SLOTS else f"{text[: _MAX_SLOTS - 1]}…"
