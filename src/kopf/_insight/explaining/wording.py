"""The explanation in words: a report in sections, for terminals and for the page of the console."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

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
from kopf._values.records import FrozenRecord


class Line(FrozenRecord, frozen=True):
    """A line of the report, and the lines below it."""

    text: str = ""
    name: str = ""
    """The subject, e.g. a handler."""
    mark: str = ""
    """The answer in a word, e.g. ``yes``."""
    state: str = ""
    """The state, for the colours of the page: ``failed``, ``retrying``, ``called``, ``add``, …"""
    lines: Sequence[Line] = ()

    def write(self, indent: str) -> Iterator[str]:
        """Write the line and the lines below it."""
        yield indent + ": ".join(part for part in (self.name, self.mark, self.text) if part)
        for line in self.lines:
            yield from line.write(f"{indent}  ")


class Section(FrozenRecord, frozen=True):
    """A heading with its lines."""

    title: str
    lines: Sequence[Line]


class Report(FrozenRecord, frozen=True):
    """The whole report: its title with the object, the summary, and the details."""

    title: str
    summary: Sequence[Line]
    sections: Sequence[Section]

    def write(self) -> str:
        """
        Write the report for a terminal.

        It is escaped, as texts from objects and servers can contain control characters for terminals.
        """
        lines = [self.title, *(text for line in self.summary for text in line.write("  "))]
        for section in self.sections:
            lines += ["", f"{section.title}:", *(text for line in section.lines for text in line.write("  "))]
        return "\n".join(escape(line) for line in lines) + "\n"


_MARKS = {"called": "yes", "matching": "yes", "later": "not now", "rejected": "no", "unknown": "unknown"}
_SIGNS = {"add": "+", "change": "~", "remove": "-"}


def render(explanation: Explanation) -> str:
    """Write the explanation in words, for a terminal."""
    return word(explanation).write()


def word(explanation: Explanation) -> Report:
    """Make the report of the explanation."""
    operator = explanation["operator"]
    times = Times(explanation["at"], is_paused=operator is not None and bool(operator["paused"]))
    sections = [section for section in _word_sections(times, explanation) if section.lines]
    summary = [Line(text) for text in _word_summary(times, explanation)]
    return Report(_word_title(times, explanation), summary, sections)


def _word_sections(times: Times, explanation: Explanation) -> Iterator[Section]:
    if (handled := explanation["handled"]) is not None:
        more = [Line(f"… and {handled['more']} more")] if handled["more"] else []
        yield Section("Changed since then", [*map(_word_change, handled["changes"]), *more])
    yield Section("Handlers", [_word_handler(times, handler) for handler in explanation["handlers"]])
    yield Section(
        "Progress of other handlers" if explanation["handlers"] else "Progress of handlers",
        [_word_progress(times, info, name=info["handler"]) for info in explanation["leftovers"]],
    )
    decisions = [_word_decision(times, decision) for decision in explanation["decisions"]]
    yield Section("Decisions of the operator, the latest first", decisions)
    yield Section("Events, the latest first", [_word_event(times, event) for event in explanation["events"]])
    yield Section("Not for this resource", [Line(text) for text in explanation["elsewhere"]])
    yield Section("Notes", [Line(text) for text in explanation["notes"]])


def _word_title(times: Times, explanation: Explanation) -> str:
    about = explanation["object"]
    where = f"{about['namespace']}/{about['name']}" if about["namespace"] else about["name"]
    created = f", created {times.tell(about['created'])}" if about["created"] else ""
    return f"{about['kind'] or 'Object'} {where} ({about['resource']}){created}"


def _word_summary(times: Times, explanation: Explanation) -> Iterator[str]:
    about, state, operator = explanation["object"], explanation["state"], explanation["operator"]
    if about["deleted"]:
        blockers = ", ".join(about["finalizers"]) or "nothing"
        yield f"It is being deleted, since {times.tell(about['deleted'])}; the deletion waits for: {blockers}."
    if about["problem"]:
        yield f"It cannot be handled: {about['problem']}."
    if operator is not None:
        yield f"It {state['text']}{_tell_since(times, state['since'])}{_tell_next(times, state['next'])}."
        yield from (f"The operator is paused: {reason}." for reason in operator["paused"])
        if operator["blocked"]:
            yield f"The event loop of the operator is blocked by {operator['blocked']}."
    if state["unsaved"]:
        yield f"Unsaved: {state['unsaved']}."
    if explanation["handled"] is not None:
        yield f"In short: {explanation['handled']['text']}."


def _word_change(change: ChangeInfo) -> Line:
    values = [value for value in (change["old"], change["new"]) if value is not None]
    sign = _SIGNS.get(change["operation"], "?")
    return Line(f"{sign} {change['field']}: {' → '.join(values)}", state=change["operation"])


def _word_handler(times: Times, handler: HandlerInfo) -> Line:
    lines = [Line(rejection["text"]) for rejection in handler["rejections"]]
    if handler["progress"] is not None:
        lines.append(_word_progress(times, handler["progress"]))
    if handler["run"] is not None:
        lines.append(_word_run(times, handler["run"]))
    lines += [_word_progress(times, info, name=info["handler"]) for info in handler["subhandlers"]]
    return Line(
        name=f"{handler['kind']} {handler['id']}",
        mark=_MARKS.get(handler["verdict"], "unknown"),
        text="" if handler["rejections"] else handler["text"],
        state=handler["verdict"],
        lines=lines,
    )


def _word_progress(times: Times, info: ProgressInfo, *, name: str = "") -> Line:
    count = f"{info['attempts']} attempt{'' if info['attempts'] == 1 else 's'}"
    purpose = f", for {info['purpose']}" if info["purpose"] else ""
    match info["outcome"]:
        case "running":
            text = f"runs{_tell_since(times, info['started'])}, attempt {info['attempts'] + 1}{purpose}"
        case "retrying":
            when = f" {times.tell(info['next'])}" if info["next"] else " at once"
            when = " when the operator goes on" if times.is_paused else when
            is_late = times.is_past(info["next"]) and not times.is_paused
            text = f"{'should have been' if is_late else 'is'} tried again{when}, after {count}{purpose}"
        case "pending":
            text = f"was not called yet{purpose}"
        case outcome:
            text = f"has {outcome} after {count}{purpose}"
    error = f"; the last error: {info['error']}" if info["error"] else ""
    unsaved = "" if info["saved"] else "; this is not on the object yet"
    return Line(f"{text}{error}{unsaved}", name=name, state=info["outcome"])


def _word_run(times: Times, run: RunInfo) -> Line:
    failures = f", after {run['attempts']} failures" if run["attempts"] else ""
    error = f"; the last error: {run['error']}" if run["error"] else ""
    text = f"{run['text']}{_tell_since(times, run['since'])}{_tell_next(times, run['next'])}{failures}{error}"
    return Line(text, state="retrying" if run["attempts"] else run["state"])


def _word_decision(times: Times, decision: DecisionInfo) -> Line:
    lines = []
    if decision["error"]:
        lines.append(Line(f"the object could not be handled: {decision['error']}", state="failed"))
    for attempt in decision["attempts"]:
        error = f": {attempt['error']}" if attempt["error"] else ""
        delay = "" if decision["error"] else _tell_delay(attempt["at"], attempt["next"])
        text = f"{attempt['handler']} {_OUTCOMES[attempt['outcome']]}{error}{delay}"
        lines.append(Line(text, state=attempt["outcome"]))
    text = f"{decision['text']}{_tell_delay(decision['at'], decision['next'])}"
    return Line(text, name=times.tell(decision["at"]), lines=lines)


_OUTCOMES = {
    "pending": "was not called",
    "running": "runs",
    "succeeded": "succeeded",
    "failed": "failed permanently",
    "retrying": "failed for now",
}


def _word_event(times: Times, event: EventInfo) -> Line:
    count = f" (×{event['count']})" if event["count"] > 1 else ""
    text = f"{event['type']} {event['reason']}: {event['message']}{count}"
    return Line(text, name=times.tell(event["at"]), state="" if event["type"] == "Normal" else "retrying")


def _tell_since(times: Times, since: str | None) -> str:
    return f" since {times.tell(since)}" if since else ""


def _tell_next(times: Times, time: str | None) -> str:
    return f", next {times.tell(time)}" if time else ""


def _tell_delay(since: str, until: str | None) -> str:
    """Say how long the delay is: its end can be long ago."""
    begin, end = _parse(since), _parse(until)
    return "" if begin is None or end is None else f"; again {tell_duration((end - begin).total_seconds())} later"


class Times:
    """Tells times relative to the time of the answer: the clocks of the cluster and of this machine can differ."""

    def __init__(self, at: str, *, is_paused: bool) -> None:
        self._now = _parse(at)
        self.is_paused = is_paused
        """Whether plans wait until the end of the pause."""

    def tell(self, text: str | None) -> str:
        """Say how long ago the time was, or how far it is."""
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
        """Tell if the time is over, as when no operator was running."""
        time = _parse(text)
        return time is not None and self._now is not None and (self._now - time).total_seconds() > _LATENESS


_LATENESS = 1.0
"""The usual delay of planned work, in seconds."""


def tell_duration(seconds: float) -> str:
    """Write the duration in its two largest units: ``1 h 5 min``."""
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
