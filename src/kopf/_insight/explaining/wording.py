"""
Wording: the explanation as a text for a terminal.

Whatever comes from objects and servers is escaped: it can have control characters in it, for the terminal of those who
look.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator

from kopf._insight.explaining.explanation import (
    ChangeInfo,
    DecisionInfo,
    EventInfo,
    Explanation,
    HandlerInfo,
    ProgressInfo,
    RunInfo,
)
from kopf._logging.text_format import escape

_MARKS = {"called": "yes", "matching": "yes", "later": "not now", "rejected": "no", "unknown": "unknown"}
_SIGNS = {"add": "+", "change": "~", "remove": "-"}


def render(explanation: Explanation) -> str:
    """Write it all down, in lines."""
    operator = explanation["operator"]
    times = Times(explanation["at"], is_paused=operator is not None and bool(operator["paused"]))
    lines = [line for block in _render_blocks(times, explanation) for line in block]
    return "\n".join(escape(line) for line in lines) + "\n"


def _render_blocks(times: Times, explanation: Explanation) -> Iterator[Iterable[str]]:
    yield _render_head(times, explanation)
    if explanation["handled"] is not None and explanation["handled"]["changes"]:
        handled = explanation["handled"]
        more = [f"  … and {handled['more']} more"] if handled["more"] else []
        yield ["", "Changed since then:", *map(_render_change, handled["changes"]), *more]
    if explanation["handlers"]:
        handlers = (line for handler in explanation["handlers"] for line in _render_handler(times, handler))
        yield ["", "Handlers:", *handlers]
    if explanation["leftovers"]:
        yield ["", "Progress of other handlers:" if explanation["handlers"] else "Progress of handlers:"]
        yield (f"  {info['handler']}: {_render_progress(times, info)}" for info in explanation["leftovers"])
    if explanation["decisions"]:
        yield ["", "Decisions of the operator, the latest first:"]
        yield (line for decision in explanation["decisions"] for line in _render_decision(times, decision))
    if explanation["events"]:
        yield ["", "Events, the latest first:", *(_render_event(times, event) for event in explanation["events"])]
    if explanation["elsewhere"]:
        yield ["", "Not for this resource:", *(f"  {text}" for text in explanation["elsewhere"])]
    if explanation["notes"]:
        yield ["", "Notes:", *(f"  {text}" for text in explanation["notes"])]


def _render_head(times: Times, explanation: Explanation) -> Iterator[str]:
    about, state, operator = explanation["object"], explanation["state"], explanation["operator"]
    where = f"{about['namespace']}/{about['name']}" if about["namespace"] else about["name"]
    created = f", created {times.tell(about['created'])}" if about["created"] else ""
    yield f"{about['kind'] or 'Object'} {where} ({about['resource']}){created}"
    if about["deleted"]:
        blockers = ", ".join(about["finalizers"]) or "nothing"
        yield f"  It is being deleted since {times.tell(about['deleted'])}, and is blocked by: {blockers}."
    if about["problem"]:
        yield f"  It cannot be handled: {about['problem']}."
    if operator is not None:
        yield f"  It {state['text']}{_tell_since(times, state['since'])}{_tell_next(times, state['next'])}."
        yield from (f"  The operator is paused: {reason}." for reason in operator["paused"])
        if operator["blocked"]:
            yield f"  The event loop of the operator is blocked by {operator['blocked']}."
    if state["unsaved"]:
        yield f"  Unsaved: {state['unsaved']}."
    if explanation["handled"] is not None:
        yield f"  In short: {explanation['handled']['text']}."


def _render_change(change: ChangeInfo) -> str:
    values = [value for value in (change["old"], change["new"]) if value is not None]
    return f"  {_SIGNS.get(change['operation'], '?')} {change['field']}: {' → '.join(values)}"


def _render_handler(times: Times, handler: HandlerInfo) -> Iterator[str]:
    mark = _MARKS.get(handler["verdict"], "unknown")
    yield f"  {handler['kind']} {handler['id']}: {mark}" + ("" if handler["rejections"] else f": {handler['text']}")
    yield from (f"    {rejection['text']}" for rejection in handler["rejections"])
    if handler["progress"] is not None:
        yield f"    {_render_progress(times, handler['progress'])}"
    if handler["run"] is not None:
        yield f"    {_render_run(times, handler['run'])}"
    yield from (f"    {info['handler']}: {_render_progress(times, info)}" for info in handler["subhandlers"])


def _render_progress(times: Times, info: ProgressInfo) -> str:
    count = f"{info['attempts']} attempt{'' if info['attempts'] == 1 else 's'}"
    purpose = f", for {info['purpose']}" if info["purpose"] else ""
    match info["outcome"]:
        case "running":
            text = f"runs{_tell_since(times, info['started'])}, after {count} before{purpose}"
        case "retrying":
            when = f" {times.tell(info['next'])}" if info["next"] else " at once"
            when = " when the operator goes on" if times.is_paused else when
            is_late = times.is_past(info["next"]) and not times.is_paused
            text = f"{'was to be' if is_late else 'is'} tried again{when}, after {count}{purpose}"
        case "pending":
            text = f"was not called yet{purpose}"
        case outcome:
            text = f"has {outcome} after {count}{purpose}"
    error = f"; the last error: {info['error']}" if info["error"] else ""
    return f"{text}{error}{'' if info['saved'] else '; this is not on the object yet'}"


def _render_run(times: Times, run: RunInfo) -> str:
    failures = f", after {run['attempts']} failures" if run["attempts"] else ""
    error = f"; the last error: {run['error']}" if run["error"] else ""
    return f"{run['text']}{_tell_since(times, run['since'])}{_tell_next(times, run['next'])}{failures}{error}"


def _render_decision(times: Times, decision: DecisionInfo) -> Iterator[str]:
    yield f"  {times.tell(decision['at'])}: {decision['text']}{_tell_delay(decision['at'], decision['next'])}"
    if decision["error"]:
        yield f"    the object could not be handled: {decision['error']}"
    for attempt in decision["attempts"]:
        error = f": {attempt['error']}" if attempt["error"] else ""
        delay = "" if decision["error"] else _tell_delay(attempt["at"], attempt["next"])
        yield f"    {attempt['handler']} {_OUTCOMES[attempt['outcome']]}{error}{delay}"


_OUTCOMES = {
    "pending": "was not called", "running": "runs", "succeeded": "succeeded", "failed": "failed for good",
    "retrying": "failed for now",
}


def _render_event(times: Times, event: EventInfo) -> str:
    count = f" (×{event['count']})" if event["count"] > 1 else ""
    return f"  {times.tell(event['at'])}: {event['type']} {event['reason']}: {event['message']}{count}"


def _tell_since(times: Times, since: str | None) -> str:
    return f" since {times.tell(since)}" if since else ""


def _tell_next(times: Times, time: str | None) -> str:
    return f", next {times.tell(time)}" if time else ""


def _tell_delay(since: str, until: str | None) -> str:
    """Say how long it was to wait; when that is, can be long ago."""
    begin, end = _parse(since), _parse(until)
    return "" if begin is None or end is None else f"; again {tell_duration((end - begin).total_seconds())} later"


class Times:
    """Tells the times relative to that of the answer: the clocks of the cluster and of whoever looks can differ."""

    def __init__(self, at: str, *, is_paused: bool) -> None:
        self._now = _parse(at)
        self.is_paused = is_paused
        """Whether what is planned does not happen before the operator goes on."""

    def tell(self, text: str | None) -> str:
        """Say how long ago it was, or in how long it will be."""
        time = _parse(text)
        if self._now is None or time is None:
            return text or "some time ago"
        seconds = (time - self._now).total_seconds()
        clock = f"{time.astimezone(datetime.UTC):%H:%M:%S}Z"
        if abs(seconds) < 0.5:
            return f"now ({clock})"
        amount = tell_duration(abs(seconds))
        return f"in {amount} ({clock})" if seconds > 0 else f"{amount} ago ({clock})"


    def is_past(self, text: str | None) -> bool:
        """Tell if the time has come already; it can be that nobody was there."""
        time = _parse(text)
        return time is not None and self._now is not None and (self._now - time).total_seconds() > _LATENESS


_LATENESS = 1.0
"""What is nearly now, can be late because of anything, in seconds."""


def tell_duration(seconds: float) -> str:
    """Write it in the two largest units."""
    amounts = []
    rest = round(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            amounts.append(f"{count} {unit}")
    return " ".join(amounts[:2]) or "1 s"


def _parse(text: str | None) -> datetime.datetime | None:
    try:
        time = None if text is None else datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time is None or time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
