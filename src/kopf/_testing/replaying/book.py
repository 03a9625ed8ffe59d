"""
The book of what was recorded: each deed of the replayed operator is looked up in it, and crossed out.

A deed is looked for among those about the same object, and around the same time: the operator is held back if it is
early, so what is many seconds away, is something else.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kopf._testing.replaying import likeness
from kopf._testing.replaying.conductor import Conductor
from kopf._testing.replaying.divergences import Divergence, Kind, cut
from kopf._testing.replaying.places import ObjectPlace, parse_path
from kopf._testing.replaying.recorded_run import Recorded, RecordedRun, RecordedStream

_WINDOW = 10.0
"""How far apart the recorded and the replayed deed can be, in seconds."""
_WEBHOOKS = ("validatingwebhookconfigurations.admissionregistration.k8s.io",
             "mutatingwebhookconfigurations.admissionregistration.k8s.io")  # fmt: skip
_WARM_UP = 5.0
"""
For how long after the checkpoint nothing is compared, in seconds: something was underway then, nobody knows what, while
the replayed operator begins anew.
"""
_EVENTS = ("events", "events.events.k8s.io")
_PEERINGS = "kopfpeerings/"
_CUT = 0.2
"""How long before the end it is not known what has happened, if the end is cut; in seconds."""
_RACE = 0.05
"""So close to the moment when the operator was told to stop, anything can be before it or after it, in seconds."""
_CONCURRENT_RACE = 0.5
"""The same for what goes on by itself: nothing tells when exactly the next tick of a timer begins."""
_CONCURRENT = {"index", "event", "timer", "daemon"}
"""What is called whatever else goes on with the object: there is no order between these and the others."""
_RESTARTED = {"resume", "startup", "index", "event", "daemon", "timer"}
"""What a restarted operator calls though nothing has happened."""

Key = tuple[Any, ...]


class Book:
    """
    Knows what was recorded, what of that has happened again, and what has not.

    :param conductor: knows how far the recording is.
    """

    def __init__(self, run: RecordedRun, conductor: Conductor) -> None:
        self.divergences: list[Divergence] = []
        self._conductor = conductor
        self._run = run
        self._deeds: dict[Key, list[Recorded]] = collections.defaultdict(list)
        self._latest: dict[str, Recorded] = {}
        self._in_step: set[str] = set()
        self.is_closed = False
        """Whether the recording is over: nobody knows what should happen from then on."""
        for kind, deed in run.iter_deeds():
            self._deeds[_make_key(kind, deed.fields, deed.begin.documents)].append(deed)

    @property
    def _last_moment(self) -> float:
        """Until when it is known what has happened: if the end is cut, something can be lost."""
        return self._run.duration - (_CUT if self._run.is_cut else 0)

    def take(self, kind: str, fields: Mapping[str, Any], documents: Sequence[bytes]) -> Recorded | None:
        """
        Find what was recorded of this deed, and note the divergences. ``None`` if there is no such thing.
        """
        if self.is_closed:
            return None
        now, place = self._conductor.now, _locate(kind, fields, documents)
        deeds = self._deeds.get(_make_key(kind, fields, documents), ())
        candidates = [deed for deed in deeds if not deed.is_made and abs(deed.time - now) <= _WINDOW]
        if kind == "open":  # when a broken stream is opened again, is a matter of milliseconds and pauses
            candidates = [deed for deed in deeds if not deed.is_made][:1]
        if is_event(place):
            return _find_event(candidates, documents)
        if not candidates:
            is_known = kind == "open" and bool(deeds)
            is_excused = is_known or self._is_racing(fields, now) or self._is_excused(kind, fields, place)
            if not is_excused and now <= self._last_moment:
                text = f"{_describe(kind, fields)}: it was never recorded"
                self._note("new", place, text, cut(_list_content(documents, "+")))
            return None
        best, differences = _choose(candidates, kind, fields, documents)
        best.is_made = True
        if not fields.get("background"):
            self._in_step.add(place)
        if differences and not self._is_excused(kind, fields, place):
            text = f"{_describe(kind, fields)}: it is not as it was recorded at {best.time:.3f}"
            self._note("different", place, text, cut(differences))
        self._check_order(best, kind, fields, place)
        return best

    def find_open_stream(self, path: str) -> RecordedStream | None:
        """Find a stream that was open when the rest was dropped, and that goes on after that; once."""
        for stream in self._run.streams.values():
            checkpoint = self._run.checkpoint
            is_open = checkpoint is not None and stream.time <= checkpoint.time and not stream.is_made
            if is_open and stream.fields["target"] == path:
                stream.is_made = True
                return stream
        return None

    def note_outcome(self, call: Recorded, outcome: Mapping[str, Any]) -> None:
        """Compare how a call has ended."""
        if self.is_closed or call.end is None:
            return
        before, after = call.end.fields["outcome"], outcome["outcome"]
        if before != after and "cancelled" not in (before, after):  # what is stopped, is stopped at any moment
            text = f"{_describe('call', call.fields)}: it has {after}, and it was recorded to have {before}"
            details = (f"-{call.end.fields['text'] or before}", f"+{outcome['text'] or after}")
            self._note("outcome", _locate("call", call.fields, ()), text, details)

    def note_ending(self, error: BaseException) -> None:
        """The operator has ended by itself, with an error."""
        self._note("ending", "", f"the operator has failed: {type(error).__name__}: {error}", ())

    def close(self) -> None:
        """The recording is over: what has not happened by now, is missing."""
        self.is_closed = True
        last_moment = self._last_moment
        for key, deeds in self._deeds.items():
            for deed in deeds:
                place = _locate(key[0], deed.fields, deed.begin.documents)
                is_due = not is_event(place) and not self._is_excused(key[0], deed.fields, place, deed.time)
                is_racing = self._is_racing(deed.fields, deed.time) or deed.time > last_moment
                is_due &= key[0] != "open" or not deeds[0].is_made  # how often it breaks, is a matter of milliseconds
                if not deed.is_made and is_due and not is_racing:
                    text = f"{_describe(key[0], deed.fields)}: it was recorded, and has not happened"
                    details = cut(_list_content(deed.begin.documents, "-"))
                    self._note("missing", place, text, details, time=deed.time)

    def _note(
        self, kind: Kind, place: str, text: str, details: Sequence[str], *, time: float | None = None
    ) -> None:
        time = self._conductor.now if time is None else time
        self.divergences.append(Divergence(time=time, kind=kind, place=place, text=text, details=tuple(details)))

    def _is_racing(self, fields: Mapping[str, Any], time: float) -> bool:
        is_concurrent = fields.get("background") or fields.get("reason") in _CONCURRENT
        return abs(time - self._run.stop_time) <= (_CONCURRENT_RACE if is_concurrent else _RACE)

    def _is_excused(self, kind: str, fields: Mapping[str, Any], place: str, time: float | None = None) -> bool:
        if place.startswith(_WEBHOOKS):
            return True
        checkpoint = self._run.checkpoint
        if checkpoint is None:
            return False
        if (time if time is not None else self._conductor.now) < checkpoint.time + _WARM_UP:
            return True
        if kind == "open" or fields.get("background"):
            return True
        if kind == "call" and fields["reason"] in _RESTARTED:
            return True
        return place not in self._in_step

    def _check_order(self, deed: Recorded, kind: str, fields: Mapping[str, Any], place: str) -> None:
        """What was over before another thing began, must not come after it. What comes too early, is held back."""
        is_concurrent = kind == "open" or fields.get("background") or fields.get("reason") in _CONCURRENT
        if not place or is_concurrent:
            return
        latest = self._latest.get(place)
        if latest is None or latest.position < deed.position:
            self._latest[place] = deed
            return
        is_over = deed.end is not None and deed.end_position < latest.position
        if is_over and self._run.checkpoint is None and self._conductor.has_passed(latest.position):
            text = (
                f"{_describe(kind, fields)}: it comes after {_describe(latest.begin.kind, latest.fields)}, "
                "and was recorded before that"
            )
            self._note("order", place, text, ())


def is_event(place: str) -> bool:
    """
    Tell if it is about a Kubernetes event: these are as good as logs, and are not compared.

    They are counted, merged, limited, dropped, and posted in the background: it depends on the load of the machine.
    """
    return place.partition(" ")[0] in _EVENTS


def _find_event(candidates: Sequence[Recorded], documents: Sequence[bytes]) -> Recorded | None:
    """Find the answer to the same event, so that it gets its name."""
    said = _get_message(documents)
    for deed in candidates:
        if _get_message(deed.begin.documents) == said:
            deed.is_made = True
            return deed
    return None


def _get_message(documents: Sequence[bytes]) -> Any:
    content = likeness.read(documents[0]) if documents else None
    return content.get("message", content.get("note")) if isinstance(content, dict) else None


def _choose(
    candidates: Sequence[Recorded], kind: str, fields: Mapping[str, Any], documents: Sequence[bytes]
) -> tuple[Recorded, list[str]]:
    """Choose the first of the most similar ones; tell in what it differs."""
    best, fewest = candidates[0], _list_differences(candidates[0], kind, fields, documents)
    for candidate in candidates[1:]:
        if not fewest:
            break
        differences = _list_differences(candidate, kind, fields, documents)
        if len(differences) < len(fewest):
            best, fewest = candidate, differences
    return best, fewest


def _list_differences(
    deed: Recorded, kind: str, fields: Mapping[str, Any], documents: Sequence[bytes]
) -> list[str]:
    if kind == "call":
        return [*likeness.compare({"retry": deed.fields["retry"]}, {"retry": fields["retry"]})]
    old, new = deed.begin.documents, documents
    contents = likeness.compare(likeness.read(old[0] if old else None), likeness.read(new[0] if new else None))
    if _PEERINGS in fields["target"]:  # they are renewed after random times, and so are dated before they are held back
        contents = (line for line in contents if ".lastseen: " not in line)
    return [*likeness.compare(_pick(deed.fields), _pick(fields)), *contents]


def _pick(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: fields[key] for key in ("target", "params", "headers") if key in fields}


def _make_key(kind: str, fields: Mapping[str, Any], documents: Sequence[bytes]) -> Key:
    """What must be the same even in those deeds that are different."""
    if kind == "call":
        return (kind, *(fields[key] for key in ("id", "reason", "resource", "namespace", "name")))
    path = fields["target"].partition("?")[0]
    if kind == "req" and fields["method"] == "POST":
        return (kind, "POST", path, _locate(kind, fields, documents))
    return (kind, fields.get("method"), path)


def _locate(kind: str, fields: Mapping[str, Any], documents: Sequence[bytes]) -> str:
    """Tell which object it is about."""
    if kind == "call":
        return str(ObjectPlace(fields["resource"], fields["namespace"], fields["name"]))
    place = parse_path(fields["target"].partition("?")[0])
    if place is None:
        return ""
    if kind == "req" and fields["method"] == "POST" and not place.name and documents:
        content = likeness.read(documents[0])
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
    """Show what is sent, value by value."""
    for document in documents:
        content = likeness.read(document)
        empty: Any = {} if isinstance(content, dict) else None
        for line in likeness.compare(empty, content):
            yield sign + line.lstrip("+")
