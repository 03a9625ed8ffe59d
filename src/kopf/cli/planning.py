"""``kopf plan``: the changes that an operator would make now, as a diff for each object; nothing is written."""

from __future__ import annotations

import contextlib
import copy
import difflib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
import yaml

from kopf._handlers.handlers import DaemonHandler, Handler, ReconcilingHandler
from kopf._logging.configuration import configure_for_terminal
from kopf._logging.text_format import escape
from kopf._operator.dry_client import Draft, Obj, Place
from kopf._operator.planning import PlannedActions, plan
from kopf._packaging.formats import Dumper
from kopf._storage.essence import drop_managed_annotations
from kopf.cli.loading import LoadingError, exiting_on_refusal, load
from kopf.cli.options import CLIControls, check_namespaces, get_registry, get_settings, refuse_both, run_to_end

_NOTHING, _PENDING, _FAILED = 0, 1, 2
_OWN_ANNOTATION = "kopf.dev/applied-digest"
_SERVER_FIELDS = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")
_SECRET_FIELDS = ("data", "stringData")
_SIGNS = {"create": "+", "change": "~", "delete": "-"}
_CALLED = (
    "WARNING: Kopf calls the handlers now. The operator writes nothing to the cluster, but the handlers' effects "
    "elsewhere, or through other clients of Kubernetes, are real."
)


@click.command("plan")
@click.option("-A", "--all-namespaces", "clusterwide", is_flag=True, help="In the whole cluster; this is the default.")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="PATTERN",
    callback=check_namespaces,
    help='Only in this namespace, or in all that match the pattern, as in "kopf run"; can be repeated.',
)
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Load this module; can be repeated.")
@click.option(
    "--call/--no-call",
    "is_calling",
    default=None,
    help="Call all handlers except daemons, with their effects outside of the cluster; or call none.  "
    "[default: only the handlers of @kopf.reconcile]",
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON, for programs.")
@click.option("-v", "--verbose", is_flag=True, help="Also show the logs of the operator.")
@click.argument("paths", nargs=-1)
@click.make_pass_decorator(CLIControls, ensure=True)
def plan_command(
    controls: CLIControls,
    paths: tuple[str, ...],
    modules: tuple[str, ...],
    clusterwide: bool,
    namespaces: tuple[str, ...],
    is_calling: bool | None,
    is_json: bool,
    verbose: bool,
) -> None:
    """
    Show what the operator of these files (PATHS) and modules would write, without writing it.

    The command calls the handlers of @kopf.reconcile. For the others, it only says that they would be called (see
    --call). It always calls the handlers of logins, startup, cleanup, and indices.

    The exit code is 0 without changes, 1 with changes, and 2 if the command cannot find out.
    """
    refuse_both("--all-namespaces", "--namespace", clusterwide, namespaces)
    configure_for_terminal(quiet=not verbose)
    if is_calling:
        click.echo(_CALLED, err=True)
    with contextlib.redirect_stdout(sys.stderr):  # what the handlers print is not a part of the answer
        actions = _plan(controls, paths, modules, namespaces, _make_choice(is_calling))
    report = _make_report(actions)
    click.echo(json.dumps(report, indent=2) if is_json else "\n".join(_render(report)))
    sys.exit(_FAILED if report["errors"] else _PENDING if report["pending"] else _NOTHING)


def _make_choice(is_calling: bool | None) -> Callable[[Handler], bool]:
    if is_calling is None:
        return lambda handler: isinstance(handler, ReconcilingHandler)
    return lambda handler: is_calling and not isinstance(handler, DaemonHandler)


def _plan(
    controls: CLIControls,
    paths: tuple[str, ...],
    modules: tuple[str, ...],
    namespaces: tuple[str, ...],
    is_called: Callable[[Handler], bool],
) -> PlannedActions:
    """Load the operator, and plan its actions; or exit with a message."""
    with exiting_on_refusal(_FAILED):
        load(paths, modules)
        registry = get_registry(controls)
        if not registry:
            raise LoadingError("Nothing to plan: there are no handlers. Name their files, or modules with -m.")
        settings = get_settings(controls)
        coro = plan(registry, settings, vault=controls.vault, namespaces=namespaces, is_called=is_called)
        return run_to_end(controls, coro, exit_code=_FAILED)


def _make_report(actions: PlannedActions) -> dict[str, Any]:
    """Describe the plan for programs: only the parts that people need."""
    states = {place: _clean(place, draft) for place, draft in actions.drafts.items()}
    objects = [
        {
            **_describe(place),
            "action": "create" if before is None else "delete" if after is None else "change",
            "before": before,
            "after": after,
        }
        for place, (before, after) in states.items()
        if before != after
    ]
    failures = [(call.place, f"{call.handler}: {call.error}") for call in actions.calls if call.error]
    unknown = [call for call in actions.calls if call.is_change and not call.is_called and not call.mismatch]
    return {
        "pending": bool(objects or unknown),
        "objects": objects,
        "calls": [
            {
                **_describe(call.place),
                "handler": call.handler,
                "reason": call.reason,
                "change": call.is_change,
                "called": call.is_called,
                "mismatch": call.mismatch,
            }
            for call in actions.calls
        ],
        "events": [
            {
                "object": f"{event['involvedObject'].get('kind')} {event['involvedObject'].get('name')}",
                **{key: event.get(key) for key in ("type", "reason", "message")},
            }
            for event in actions.events
        ],
        "errors": [{**_describe(place), "error": error} for place, error in (*failures, *actions.errors)],
    }


def _describe(place: Place) -> dict[str, str | None]:
    return {"resource": place.resource, "namespace": place.namespace, "name": place.name}


def _clean(place: Place, draft: Draft) -> tuple[Obj | None, Obj | None]:
    """Remove the fields of the server and of the framework, and hide the data of Secrets."""
    before, after = copy.deepcopy(draft.before), copy.deepcopy(draft.after)
    for obj in (before, after):
        if obj is not None:
            meta = {key: value for key, value in obj["metadata"].items() if key not in _SERVER_FIELDS}
            annotations = drop_managed_annotations(meta.pop("annotations", None) or {})
            annotations.pop(_OWN_ANNOTATION, None)
            obj["metadata"] = {**meta, **({"annotations": annotations} if annotations else {})}
    if place.resource == "secrets":
        for name in _SECRET_FIELDS:
            old, new = [((obj or {}).get(name) or {}) for obj in (before, after)]
            same = {key for key in old if old[key] == new.get(key)}
            for values, label in ((old, "before"), (new, "after")):
                values.update({key: "(hidden)" if key in same else f"(hidden, {label})" for key in values})
    return before, after


def _render(report: dict[str, Any]) -> Iterator[str]:
    """Describe the plan for people."""
    sections: dict[str, list[str]] = {}
    signs: dict[str, str] = {}
    for item in report["objects"]:
        signs[_name(item)] = _SIGNS[item["action"]]
        sections.setdefault(_name(item), []).extend(_diff(item["before"], item["after"]))
    waiting = [call for call in report["calls"] if call["mismatch"]]
    shown = [call for call in report["calls"] if not call["called"] and call["change"] and not call["mismatch"]]
    notes = [
        *((call, f"{call['handler']} waits: {call['mismatch']}") for call in waiting),
        *((call, f"{call['handler']} would be called: {call['reason']}") for call in shown),
        *((error, error["error"]) for error in report["errors"]),
    ]
    for item, text in notes:
        sections.setdefault(_name(item), []).append(f"! {text}")
    for name, lines in sections.items():
        yield f"{signs.get(name, ' ')} {name}"
        yield from (f"    {escape(line)}" for line in lines)
    for event in report["events"]:
        yield escape(f"* event for {event['object']}: {event['type']} {event['reason']}: {event['message']}")
    counts = [sum(sign == wanted for sign in signs.values()) for wanted in "+~-"]
    yield (
        "{} to create, {} to change, {} to delete; handler calls with unknown writes: {}.".format(*counts, len(shown))
        if report["pending"]
        else "Cannot plan the changes: see the errors above."
        if report["errors"]
        else "Nothing to do."
    )
    if routine := len([call for call in report["calls"] if not call["called"]]) - len(shown) - len(waiting):
        yield f"Not shown: calls at each start of the operator ({routine}); see --json."


def _name(item: dict[str, Any]) -> str:
    namespace = f"{item['namespace']}/" if item["namespace"] else ""
    return f"{item['resource']} {namespace}{item['name']}".rstrip()


def _diff(before: Obj | None, after: Obj | None) -> Iterator[str]:
    options: dict[str, Any] = {"Dumper": Dumper, "allow_unicode": True, "sort_keys": False, "width": 1000}
    old, new = [[] if obj is None else yaml.dump(obj, **options).splitlines() for obj in (before, after)]
    lines = difflib.unified_diff(old, new, n=2, lineterm="")
    yield from (line for line in lines if not line.startswith(("---", "+++")))
