"""
The comparison of a replay with its recording: it finds the recorded action for each action of the replayed operator.

It searches the actions about the same object, around the same time. The schedule holds the operator back if it is
early, so an action that is many seconds away is another one.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from kopf._replay.documents import compare, parse_path, read
from kopf._replay.recorded_run import RecordedAction, RecordedRun
from kopf._replay.schedule import Schedule
from kopf._virtual_time.journal import ObjectPlace

Kind = Literal["new", "missing", "different", "order", "outcome", "ending"]
"""
The kind of a difference: an action is ``new``, i.e. never recorded; an action is ``missing``; a request has
``different`` content; the ``order`` of actions about an object, the ``outcome`` of a handler, or the ``ending`` of the
operator is another one.
"""
_SHOWN = 3
"""How many divergences are shown for each object."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Divergence:
    """One difference between a replay and its recording. As a text, it is a line with the details below."""

    time: float
    """The time of the difference, in seconds since the beginning of the recording."""
    kind: Kind
    """What differs: ``new``, ``missing``, ``different``, ``order``, ``outcome``, or ``ending``."""
    place: str
    """The object, e.g. ``kopfexamples.kopf.dev default/example``; empty if the difference is about the operator."""
    text: str
    """The difference in one line."""
    details: tuple[str, ...] = ()
    """The differences of the content, line by line: ``-`` was recorded, ``+`` is new."""

    def __str__(self) -> str:
        lines = [f"{self.time:12.3f}  {self.text}", *(f"{'':14}  {line}" for line in self.details)]
        return "\n".join(lines)


def describe(divergences: Sequence[Divergence]) -> Iterator[str]:
    """Describe the divergences, object by object: the first ones of each, as these cause most of the others."""
    places: dict[str, list[Divergence]] = {}
    for divergence in sorted(divergences, key=lambda divergence: divergence.time):
        places.setdefault(divergence.place, []).append(divergence)
    for place, own in places.items():
        yield f"{place or 'the operator'}:"
        yield from map(str, own[:_SHOWN])
        if len(own) > _SHOWN:
            yield f"{'':14}... and {len(own) - _SHOWN} more"


def cut(lines: Iterable[str], limit: int = 10) -> tuple[str, ...]:
    """Take the first lines, up to the limit, and count the rest."""
    taken = [*lines]
    rest = (f"... and {len(taken) - limit} more",) if len(taken) > limit else ()
    return (*taken[:limit], *rest)


_WINDOW = 10.0
"""How far apart the recorded and the replayed action can be, in seconds."""
_LEASES = "leases.coordination.k8s.io"
_UNREPLAYED = ("validatingwebhookconfigurations.admissionregistration.k8s.io",
               "mutatingwebhookconfigurations.admissionregistration.k8s.io",
               _LEASES)  # fmt: skip
"""The resources of webhooks and replicas, which a replayed operator does not have."""
_WARM_UP = 5.0
"""
For how long after the checkpoint nothing is compared, in seconds: some unknown work was underway then, while the
replayed operator begins anew.
"""
_EVENTS = ("events", "events.events.k8s.io")
_PEERINGS = "kopfpeerings/"
_CUT = 0.2
"""How much of the recording before its end can be incomplete, if the end is cut, in seconds."""
_RACE = 0.05
"""How close to the stop of the operator an action can be on either side, in seconds."""
_CONCURRENT_RACE = 0.5
"""The same for concurrent handlers, in seconds: nothing defines when exactly the next tick of a timer begins."""
_CONCURRENT = {"index", "event", "timer", "daemon"}
"""The reasons of calls that are concurrent with all others about the object: there is no order between them."""
_RESTARTED = {"resume", "startup", "index", "event", "daemon", "timer"}
"""The reasons of calls that a restarted operator makes without any changes."""

Key = tuple[Any, ...]


class Comparison:
    """
    Matches the actions of the replay with the recorded ones, and collects the divergences.

    :param schedule: the schedule of the replay, which knows the current position in the recording.
    """

    def __init__(self, run: RecordedRun, schedule: Schedule) -> None:
        self.divergences: list[Divergence] = []
        self._schedule = schedule
        self._run = run
        self._actions: dict[Key, list[RecordedAction]] = collections.defaultdict(list)
        self._latest: dict[str, RecordedAction] = {}
        self._in_sync: set[str] = set()
        self.is_closed = False
        """Whether the recording is over, so that there is nothing to compare with."""
        self._is_replica = any(
            _locate("open", item.fields, ()).startswith(_LEASES) for item in run.list_actions("open")
        )
        """Whether the recorded operator has listed its objects as late as it got them."""
        start = -1.0 if run.checkpoint is None else run.checkpoint.time
        for action in run.list_actions("call", "req", "open"):
            if action.time > start:
                self._actions[_make_key(action.begin.kind, action.fields, action.begin.documents)].append(action)

    @property
    def _last_moment(self) -> float:
        """The end of the complete part of the recording: if the end is cut, the last moments can be lost."""
        return self._run.duration - (_CUT if self._run.is_cut else 0)

    def match(self, kind: str, fields: Mapping[str, Any], documents: Sequence[bytes]) -> RecordedAction | None:
        """
        Find the recorded action, and note the divergences. Return ``None`` if there is no such action.
        """
        if self.is_closed:
            return None
        now, place = self._schedule.now, _locate(kind, fields, documents)
        actions = self._actions.get(_make_key(kind, fields, documents), ())
        candidates = [action for action in actions if not action.is_repeated and abs(action.time - now) <= _WINDOW]
        if kind != "open" and self._is_warming_up(now):  # actions that were underway must not wait for later ones
            candidates = [action for action in candidates if _is_same(action, kind, fields, documents)]
        if kind == "open":  # the time when a broken stream is opened again depends on milliseconds and pauses
            candidates = [action for action in actions if not action.is_repeated][:1]
        if is_event(place):
            return _find_event(candidates, documents)
        if not candidates and self._is_replica and "limit=" in fields.get("target", ""):
            candidates = [action for action in actions if not action.is_repeated and action.time > now][:1]
        if not candidates:
            is_known = kind == "open" and bool(actions)
            is_excused = is_known or self._is_racing(fields, now) or self._is_excused(kind, fields, place)
            if not is_excused and now <= self._last_moment:
                text = f"{_describe(kind, fields)}: it was never recorded"
                self._note("new", place, text, cut(_list_content(documents, "+")))
            return None
        best, differences = _find_most_similar(candidates, kind, fields, documents)
        best.is_repeated = True
        if not fields.get("background"):
            self._in_sync.add(place)
        if differences and not self._is_excused(kind, fields, place):
            text = f"{_describe(kind, fields)}: it differs from the recording at {best.time:.3f}"
            self._note("different", place, text, cut(differences))
        self._check_order(best, kind, fields, place)
        return best

    def find_open_stream(self, path: str) -> RecordedAction | None:
        """Find a stream that was open at the checkpoint, and goes on after it; each is found once."""
        for stream in self._run.list_actions("open"):
            checkpoint = self._run.checkpoint
            is_open = checkpoint is not None and stream.time <= checkpoint.time and not stream.is_repeated
            if is_open and stream.fields["target"] == path:
                stream.is_repeated = True
                return stream
        return None

    def note_outcome(self, call: RecordedAction, outcome: Mapping[str, Any]) -> None:
        """Compare how a call has ended."""
        if self.is_closed or call.end is None:
            return
        before, after = call.end.fields["outcome"], outcome["outcome"]
        if before != after and "cancelled" not in (before, after):  # a cancellation can come at any moment
            text = f"{_describe('call', call.fields)}: it has {after}, but the recorded one has {before}"
            details = (f"-{call.end.fields['text'] or before}", f"+{outcome['text'] or after}")
            self._note("outcome", _locate("call", call.fields, ()), text, details)

    def note_ending(self, error: BaseException) -> None:
        """Note that the operator has ended by itself, with an error."""
        self._note("ending", "", f"the operator has failed: {type(error).__name__}: {error}", ())

    def close(self) -> None:
        """End the comparison, as the recording is over: actions that have not happened by now are missing."""
        self.is_closed = True
        last_moment = self._last_moment
        for key, actions in self._actions.items():
            for action in actions:
                place = _locate(key[0], action.fields, action.begin.documents)
                is_due = not is_event(place) and not self._is_excused(key[0], action.fields, place, action.time)
                is_racing = self._is_racing(action.fields, action.time) or action.time > last_moment
                # The number of breaks of a stream depends on milliseconds.
                is_due &= key[0] != "open" or not actions[0].is_repeated
                if not action.is_repeated and is_due and not is_racing:
                    text = f"{_describe(key[0], action.fields)}: it was recorded, but has not happened"
                    details = cut(_list_content(action.begin.documents, "-"))
                    self._note("missing", place, text, details, time=action.time)

    def _note(self, kind: Kind, place: str, text: str, details: Sequence[str], *, time: float | None = None) -> None:
        time = self._schedule.now if time is None else time
        self.divergences.append(Divergence(time=time, kind=kind, place=place, text=text, details=tuple(details)))

    def _is_racing(self, fields: Mapping[str, Any], time: float) -> bool:
        is_concurrent = fields.get("background") or fields.get("reason") in _CONCURRENT
        return abs(time - self._run.stop_time) <= (_CONCURRENT_RACE if is_concurrent else _RACE)

    def _is_warming_up(self, time: float) -> bool:
        checkpoint = self._run.checkpoint
        return checkpoint is not None and time < checkpoint.time + _WARM_UP

    def _is_excused(self, kind: str, fields: Mapping[str, Any], place: str, time: float | None = None) -> bool:
        if place.startswith(_UNREPLAYED):
            return True
        if self._run.checkpoint is None:
            return False
        if self._is_warming_up(self._schedule.now if time is None else time):
            return True
        if kind == "open" or fields.get("background"):
            return True
        if kind == "call" and fields["reason"] in _RESTARTED:
            return True
        return place not in self._in_sync

    def _check_order(self, action: RecordedAction, kind: str, fields: Mapping[str, Any], place: str) -> None:
        """Note an action that ended before another one began, and now comes after it. Early ones are held back."""
        is_concurrent = kind == "open" or fields.get("background") or fields.get("reason") in _CONCURRENT
        if not place or is_concurrent:
            return
        latest = self._latest.get(place)
        if latest is None or latest.position < action.position:
            self._latest[place] = action
            return
        is_over = action.end is not None and action.end_position < latest.position
        if is_over and self._run.checkpoint is None and self._schedule.has_passed(latest.position):
            text = (
                f"{_describe(kind, fields)}: it comes after {_describe(latest.begin.kind, latest.fields)}, "
                "but was recorded before it"
            )
            self._note("order", place, text, ())


def is_event(place: str) -> bool:
    """
    Tell if the place is a Kubernetes event: events are like logs, and are not compared.

    They are merged, limited, dropped, and posted in the background, which depends on the load of the machine.
    """
    return place.partition(" ")[0] in _EVENTS


def _find_event(candidates: Sequence[RecordedAction], documents: Sequence[bytes]) -> RecordedAction | None:
    """Find the recorded action of the same event, so that the event gets the same name."""
    said = _get_message(documents)
    for action in candidates:
        if _get_message(action.begin.documents) == said:
            action.is_repeated = True
            return action
    return None


def _get_message(documents: Sequence[bytes]) -> Any:
    content = read(documents[0]) if documents else None
    return content.get("message", content.get("note")) if isinstance(content, dict) else None


def _find_most_similar(
    candidates: Sequence[RecordedAction], kind: str, fields: Mapping[str, Any], documents: Sequence[bytes]
) -> tuple[RecordedAction, list[str]]:
    """Find the first of the most similar actions. Return also its differences."""
    compared = [(candidate, _list_differences(candidate, kind, fields, documents)) for candidate in candidates]
    return min(compared, key=lambda pair: len(pair[1]))


def _is_same(action: RecordedAction, kind: str, fields: Mapping[str, Any], documents: Sequence[bytes]) -> bool:
    is_of_same_version = action.fields.get("version") == fields.get("version")
    return is_of_same_version and not _list_differences(action, kind, fields, documents)


def _list_differences(
    action: RecordedAction, kind: str, fields: Mapping[str, Any], documents: Sequence[bytes]
) -> list[str]:
    if kind == "call":
        return [*compare({"retry": action.fields["retry"]}, {"retry": fields["retry"]})]
    old, new = action.begin.documents, documents
    differences = compare(read(old[0] if old else None), read(new[0] if new else None))
    if _PEERINGS in fields["target"]:  # peers renew them at random times, so their dates differ
        differences = (line for line in differences if ".lastseen: " not in line)
    return [*compare(_pick(action.fields), _pick(fields)), *differences]


def _pick(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    picked = {key: fields[key] for key in ("target", "params", "headers") if key in fields}
    if "params" in picked:  # the parts of replicas are not replayed
        picked["params"] = {key: value for key, value in picked["params"].items() if key != "shardSelector"}
    return picked


def _make_key(kind: str, fields: Mapping[str, Any], documents: Sequence[bytes]) -> Key:
    """Make the key of an action: the parts that are the same even if the content differs."""
    if kind == "call":
        return (kind, *(fields[key] for key in ("id", "reason", "resource", "namespace", "name")))
    path = fields["target"].partition("?")[0]
    if kind == "req" and fields["method"] == "POST":
        return (kind, "POST", path, _locate(kind, fields, documents))
    return (kind, fields.get("method"), path)


def _locate(kind: str, fields: Mapping[str, Any], documents: Sequence[bytes]) -> str:
    """Return the place of the object that the action is about; empty if there is none."""
    if kind == "call":
        return str(ObjectPlace(fields["resource"], fields["namespace"], fields["name"]))
    place = parse_path(fields["target"].partition("?")[0])
    if place is None:
        return ""
    if kind == "req" and fields["method"] == "POST" and not place.name and documents:
        content = read(documents[0])
        if isinstance(content, dict) and isinstance(metadata := content.get("metadata"), dict):
            involved = content.get("involvedObject") or content.get("regarding")
            of = f" of {involved.get('kind')} {involved.get('name')}" if isinstance(involved, dict) else ""
            name = f"{metadata.get('name') or metadata.get('generateName') or ''}{of}"
            return str(place._replace(name=name))
    return str(place)


def _describe(kind: str, fields: Mapping[str, Any]) -> str:
    if kind == "call":
        retry = f" #{fields['retry']}" if fields["retry"] else ""
        return f"{fields['reason']} handler {fields['id']!r}{retry}"
    return f"{fields['method']} {fields['target']}" if kind == "req" else f"watching {fields['target']}"


def _list_content(documents: Sequence[bytes], sign: str) -> Iterator[str]:
    """Show the content of the documents, value by value."""
    for document in documents:
        content = read(document)
        empty: Any = {} if isinstance(content, dict) else None
        for line in compare(empty, content):
            yield sign + line.lstrip("+")
