"""
The state machine of a watcher: knows the objects, and turns arrivals into events. No I/O, no waiting, no clocks.

::

    EMPTY ──begin_listing──▶ LISTING ──finish_listing──▶ WATCHING ──expire──▶ EXPIRED ──begin_listing──▶ …
                             │     ▲
                             └─────┘ begin_listing: again, after a failure half-way

Guarantees to the consumers of the events:

* Every existing object is reported at least once. Every change from the server is reported once.
* An object that vanishes is always reported as ``DELETED``, even if nobody was watching then: a known object that is
  absent in a repeated listing gets a synthetic ``DELETED`` event. This event contains only the identity of the object,
  with the labels and annotations that are used in filters.
* An object that is recreated under the same name is reported as ``DELETED`` (the old one), then as a new one.
* Repeated old events (of a server, or of a proxy before it) are ignored if the versions of the server can be compared.
  Otherwise, only repetitions of the latest state of an object are ignored.
* A repeated listing reports only new (``ADDED``) and changed (``MODIFIED``) objects. Only the initial listing has the
  type ``None``. Every listing ends with a :data:`LISTED` event.
* When objects are taken over from another replica, the next listing is the initial one for them: all are reported with
  ``None``, even known ones. Absent objects get a :class:`ForeignEvent`.

To save memory, it keeps only the name of each object, and one string with its identity and version.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from kopf._values import codec
from kopf._values.bodies import RawEventType
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.resources import Resource, is_newer
from kopf._values.slots import Slots, get_slot


class KnownObjects:
    """The memory of one watcher."""

    __slots__ = ("_annotations", "_labels", "_resource", "identities")

    def __init__(self, resource: Resource, labels: Collection[str], annotations: Collection[str]) -> None:
        self._resource = resource
        self._labels = frozenset(labels)
        self._annotations = frozenset(annotations)
        self.identities: dict[str, str] = {}
        """
        The keys are "namespace/name", the values are "uid version": the garbage collector ignores strings. The JSON of
        remembered labels and annotations, if any, follows after one more space.
        """

    def identify(self, head: ObjectMeta) -> str:
        """Make the string to keep for the object in this state."""
        identity = f"{head.uid} {head.resourceVersion}"
        return identity + self._remember(head) if self._labels or self._annotations else identity

    def _remember(self, head: ObjectMeta) -> str:
        chosen = {
            "labels": {key: value for key, value in (head.labels or {}).items() if key in self._labels},
            "annotations": {key: value for key, value in (head.annotations or {}).items() if key in self._annotations},
        }
        present = {stanza: values for stanza, values in chosen.items() if values}
        return f" {codec.encode(present).decode()}" if present else ""

    def forget(self, key: str) -> KubeObject:
        """Drop the object. Return an object with its known fields: little more than the identity."""
        namespace, _, name = key.partition("/")
        uid, version, *remembered = self.identities.pop(key).split(" ", 2)
        identity = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version}
        metadata: dict[str, Any] = {field: value for field, value in identity.items() if value}
        for text in remembered:
            metadata |= codec.decode(text.encode())
        content = {"apiVersion": self._resource.api_version, "kind": self._resource.kind, "metadata": metadata}
        return KubeObject.from_dict(content)

    def renew(self, slots: Slots) -> None:
        """Forget the versions of the objects in these slots: their next states are news."""
        for key, identity in self.identities.items():
            uid, _, *remembered = identity.split(" ", 2)
            if get_slot(uid or key) in slots:
                self.identities[key] = " ".join((uid, "", *remembered))

    def is_renewed(self, key: str) -> bool:
        """Tell if no state of the object has come since then, or ever."""
        identity = self.identities.get(key)
        return identity is None or identity.split(" ", 2)[1] == ""


class State(enum.Enum):
    """The next task of the watcher."""

    EMPTY = "nothing is known yet: list"
    LISTING = "the listing is in progress"
    WATCHING = "everything is known up to the version: watch from it"
    EXPIRED = "the version is too old to be watched from: list again"


class WatchEvent(msgspec.Struct, gc=False):
    """
    An event of an object.

    The type is ``None`` for objects of the initial listing, as they existed before.
    """

    type: RawEventType
    object: KubeObject


class ForeignEvent(WatchEvent, gc=False):
    """An event from the time when another replica handled the object: only for consumers of all events."""


def disown(events: Iterable[WatchEvent], slots: Slots) -> list[WatchEvent]:
    """Make the events of the objects in these slots foreign."""
    return [ForeignEvent(event.type, event.object) if _is_in(slots, event) else event for event in events]


def _is_in(slots: Slots, event: WatchEvent) -> bool:
    return event is not LISTED and get_slot(event.object.head.key) in slots


LISTED = WatchEvent(None, KubeObject.from_dict({}))
"""The mark of a complete listing, initial or repeated, without an object. Compare it by ``is``."""


class WatchMachine:
    """
    The state of watching one resource in one namespace or in the cluster.

    The ``take…`` methods append the resulting events to the passed list, in their order.

    Large because listings, streams, and moves between replicas change the same knowledge of each object.
    """

    __slots__ = (
        "_has_comparable_versions",
        "_is_foreign",
        "_is_initial",
        "_known",
        "_listed_version",
        "_unseen",
        "gained",
        "state",
        "version",
    )

    def __init__(
        self,
        resource: Resource,
        *,
        labels: Collection[str] = (),
        annotations: Collection[str] = (),
        comparable_versions: bool = False,
        is_foreign: Callable[[str], bool] | None = None,
    ) -> None:
        """
        ``labels`` & ``annotations`` are the names to remember for synthetic deletions. With ``comparable_versions``,
        the server guarantees that all versions of one resource can be compared. ``is_foreign`` tells by the key of an
        object whether it belongs to another replica: such objects are neither kept nor reported.
        """
        self._has_comparable_versions = comparable_versions
        self.state = State.EMPTY
        self.version: str | None = None
        """The version up to which everything is known, and from which watching continues."""
        self._known = KnownObjects(resource, labels, annotations)
        self._unseen: set[str] = set()
        self._listed_version: str | None = None
        self._is_initial = True
        self._is_foreign = is_foreign
        self.gained: Slots = frozenset()
        """The slots whose objects are reported as in the initial listing."""

    def __len__(self) -> int:
        return len(self._known.identities)

    def begin_listing(self) -> None:
        """Begin an initial or repeated listing, also again after a failure half-way."""
        self._expect(State.EMPTY, State.EXPIRED, State.LISTING)
        self.state = State.LISTING
        self._unseen = set(self._known.identities)
        self._listed_version = None

    def take_page(self, objects: list[KubeObject], version: str, events: list[WatchEvent]) -> None:
        """Take the next page of the listing; ``version`` is that of the listing."""
        self._expect(State.LISTING)
        if self._listed_version is None:
            self._listed_version = version
        for obj in objects:
            if self._is_foreign is not None and self._is_foreign(obj.head.key):
                continue
            key = f"{obj.head.namespace or ''}/{obj.head.name}"
            self._unseen.discard(key)
            self._take(key, obj, None, events)

    def finish_listing(self, events: list[WatchEvent], version: str | None = None) -> None:
        """
        Finish the listing: known objects that were not in it are gone.

        ``version`` is for streams, which tell it at the end; by default, it is that of the listing.
        """
        self._expect(State.LISTING)
        events.extend(self._forget(key) for key in sorted(self._unseen))
        self._unseen = set()
        self.gained = frozenset()
        self.version = self._listed_version if version is None else version
        self.state = State.WATCHING
        self._is_initial = False
        events.append(LISTED)

    def take_object(self, type_: RawEventType, obj: KubeObject, events: list[WatchEvent]) -> None:
        """Take an event of the watch stream; during a streamed listing, only deletions."""
        self._expect(State.WATCHING, State.LISTING)
        head = obj.head
        if self._has_comparable_versions and self._is_old(head.resourceVersion):
            return
        key = f"{head.namespace or ''}/{head.name}"
        if self._is_foreign is not None and self._is_foreign(head.key):
            pass
        elif type_ == "DELETED":
            known = self._known.identities.get(key)
            if known is not None and known.startswith(f"{head.uid} "):
                del self._known.identities[key]
            events.append(WatchEvent(type_, obj))
        else:
            self._take(key, obj, type_, events)
        self.version = head.resourceVersion or self.version

    def _is_old(self, version: str) -> bool:
        """Tell if everything up to this version has come already: streams are ordered by versions."""
        known = self.version or ""
        return version.isdecimal() and known.isdecimal() and not is_newer(version, known)

    def take_bookmark(self, version: str) -> None:
        """Take a bookmark: nothing has happened, but the version has changed."""
        self._expect(State.WATCHING)
        self.version = version or self.version

    def expire(self) -> None:
        """Accept that watching cannot continue from the last version (410 Gone). Known objects stay known."""
        self._expect(State.WATCHING, State.EXPIRED)
        self.state = State.EXPIRED
        self.version = None

    def interrupt(self) -> None:
        """Accept an interruption of watching, which continues with a listing."""
        if self.state is State.WATCHING:
            self.expire()

    def gain(self, slots: Slots) -> None:
        """Take over the objects in these slots. Call it during an interruption."""
        self.gained |= slots
        self._known.renew(slots)

    def lose(self, slots: Slots) -> None:
        """Leave the objects in these slots to another replica."""
        self.gained -= slots
        if self._is_foreign is not None:
            identities = self._known.identities
            lost = [key for key, item in identities.items() if get_slot(item.partition(" ")[0] or key) in slots]
            for key in lost:
                del identities[key]
            self._unseen.difference_update(lost)

    def _forget(self, key: str) -> WatchEvent:
        is_foreign = bool(self.gained) and self._known.is_renewed(key)
        return (ForeignEvent if is_foreign else WatchEvent)("DELETED", self._known.forget(key))

    def _expect(self, *states: State) -> None:
        if self.state not in states:
            raise RuntimeError(f"The watcher is in a wrong state: {self.state}, expected {states}.")

    def _take(
        self,
        key: str,
        obj: KubeObject,
        type_: RawEventType,
        events: list[WatchEvent],
    ) -> None:
        identity = self._known.identify(obj.head)
        known = self._known.identities.get(key)
        if known == identity and obj.head.resourceVersion:
            return  # the same state again, e.g. unchanged since the previous listing
        if known is not None and not known.startswith(f"{obj.head.uid} "):
            events.append(self._forget(key))
            known = None
        is_gained = bool(self.gained) and get_slot(obj.head.key) in self.gained and self._known.is_renewed(key)
        self._known.identities[key] = identity
        if type_ is None and not self._is_initial and not is_gained:
            type_ = "ADDED" if known is None else "MODIFIED"
        events.append(WatchEvent(type_, obj))
