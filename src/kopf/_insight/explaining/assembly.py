"""The explanation of an object, made from the known facts, with no requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from kopf._handlers.handlers import name_kind
from kopf._insight.explaining.dry_run import DryRun, Facts
from kopf._insight.explaining.explanation import (
    ChangeInfo,
    Explanation,
    HandledInfo,
    ObjectInfo,
    StateInfo,
)
from kopf._insight.explaining.handler_verdicts import (
    SITUATIONS,
    HandlerExplainer,
    list_leftovers,
    list_record_names,
)
from kopf._insight.explaining.redacted_texts import MAX_VALUE, RedactedTexts, is_before, shorten, show_path, show_time
from kopf._values.diffs import EMPTY, DiffItem
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource
from kopf._values.selectors import Selector

MAX_CHANGES = 20
MAX_ELSEWHERE = 20

UNKNOWN_STATE = StateInfo(
    name="unknown",
    text="no operator was asked",
    position=None,
    next=None,
    handler=None,
    since=None,
    errors=0,
    unsaved=None,
)


def explain(facts: Facts) -> Explanation:
    """Make the explanation of the object from the facts."""
    texts = RedactedTexts(facts.resource)
    answer = make_frame(facts)
    if facts.obj.pruned:
        answer["object"]["problem"] = facts.obj.pruned
    else:
        try:
            _add_verdicts(answer, facts, texts)
        except (ValueError, RecursionError) as e:  # it is decoded only now
            answer["object"]["problem"] = str(e) or type(e).__name__
    scrubbed: Explanation = texts.make_scrubber(facts.obj).scrub(answer)
    return scrubbed


def make_frame(facts: Facts) -> Explanation:
    """Make the parts of the explanation that do not need the content of the object."""
    live = facts.live
    return Explanation(
        schema="kopf.dev/explanation/v1",
        at=show_time(facts.now) or "",
        source="object" if live is None else "operator",
        notes=[*facts.notes],
        object=_describe_object(facts.resource, facts.obj),
        operator=None if live is None else live.operator,
        state=UNKNOWN_STATE if live is None else live.state,
        handled=None,
        handlers=[],
        elsewhere=[
            f"{name_kind(handler)} {handler.id!r} is for {handler.selector or 'nothing'}"
            for handler in facts.elsewhere[:MAX_ELSEWHERE]
        ],
        leftovers=[],
        decisions=[] if live is None else [*live.decisions],
        events=[],
    )


def _describe_object(resource: Resource, obj: KubeObject) -> ObjectInfo:
    """Describe the identity of the object."""
    head = obj.head
    return ObjectInfo(
        resource=repr(resource),
        kind=obj.kind or resource.kind,
        namespace=head.namespace,
        name=head.name,
        uid=head.uid or None,
        version=head.resourceVersion or None,
        created=head.creationTimestamp,
        deleted=head.deletionTimestamp,
        finalizers=[*(head.finalizers or ())],
        problem=None,
    )


def _add_verdicts(answer: Explanation, facts: Facts, texts: RedactedTexts) -> None:
    dry_run = DryRun(facts)
    if dry_run.has_changes:
        answer["handled"] = _explain_handled(dry_run, texts)
    explainer = HandlerExplainer(facts, dry_run, texts)
    answer["handlers"] = [explainer.explain(handler) for handler in facts.handlers or ()]
    _postpone(answer)
    ids = dict.fromkeys(handler.id for handler in dry_run.handlers.changing)
    ids.update((HandlerId(info["handler"]), None) for handler in answer["handlers"] for info in handler["subhandlers"])
    names = list_record_names(facts.settings.persistence.progress_storage, tuple(ids))
    answer["leftovers"] = list_leftovers(facts.obj, names, now=facts.now, texts=texts)


def _postpone(answer: Explanation) -> None:
    """Postpone the retries of handlers to the next pass, while the object is not handled because of errors."""
    state = answer["state"]
    for handler in answer["handlers"] if state["errors"] and state["next"] else ():
        progress = handler["progress"]
        if progress is not None and progress["outcome"] == "retrying" and is_before(progress["next"], state["next"]):
            progress["next"] = state["next"]


def _explain_handled(dry_run: DryRun, texts: RedactedTexts) -> HandledInfo:
    detection = dry_run.detection
    change = detection.get_change()
    is_known = change.old is not None
    diff = change.diff if is_known else EMPTY
    return HandledInfo(
        known=is_known,
        reason=dry_run.plan.reason.value,
        text=SITUATIONS[dry_run.plan.reason],
        changes=[_explain_change(item, texts) for item in diff[:MAX_CHANGES]],
        more=max(0, len(diff) - MAX_CHANGES),
    )


def _explain_change(item: DiffItem, texts: RedactedTexts) -> ChangeInfo:
    return ChangeInfo(
        operation=item.operation.value,
        field=shorten(show_path(item.field), MAX_VALUE),
        old=None if item.old is None else texts.show(item.old, item.field),
        new=None if item.new is None else texts.show(item.new, item.field),
    )


def find_resources(name: str, resources: Collection[Resource]) -> list[Resource]:
    """Find the resources of the name, sorted: several if it is ambiguous, none if it is unknown or malformed."""
    try:
        exact = [item for item in resources if name == repr(item)]
        found = exact or Selector(name).select(resources)
        if not found:  # kinds are mostly written in lower case
            lowered = {dataclasses.replace(item, kind=item.kind and item.kind.lower()): item for item in resources}
            found = [lowered[item] for item in Selector(name.lower()).select(lowered)]
    except TypeError:
        return []
    return sorted(found, key=repr)
