"""
The watcher's state machine: what is known of the objects, and what an arrival means. No I/O, no waiting, no
clocks.

::

    EMPTY ──begin_listing──▶ LISTING ──finish_listing──▶ WATCHING ──expire──▶ EXPIRED ──begin_listing──▶ …
                             │     ▲
                             └─────┘ begin_listing: again, as the listing has failed half-way

Guarantees to those who consume the events:

* Every object that exists is reported at least once, every change of it that the server reports is reported
  once.
* An object that vanishes is always reported as ``DELETED``, even if it happened while nobody was watching:
  what was known before a repeated listing and is absent in it, gets a synthetic ``DELETED`` event, with the
  identity of the object only, and with those labels & annotations that somebody filters by.
* An object recreated under the same name is reported as ``DELETED`` (the old one), then as a new one.
* What has come already, comes once more (a server, or a proxy before it, repeats old events): it is ignored, if the
  versions of the server can be compared. Otherwise, only the repetition of the latest state of an object is.
* A repeated listing reports only what is new (``ADDED``) or has changed (``MODIFIED``). The type ``None`` is
  only for the initial listing. Every listing ends with a :data:`LISTED` event.
* When objects are taken over from another replica, the next listing is the initial one for them: all are reported with
  ``None``, even if they are known; those that are absent, with a :class:`ForeignEvent`.

The memory is spared: for every object, only its name and one string with its identity & version are kept.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from kopf._values import codec
from kopf._values.bodies import RawEventType
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.resource_versions import is_newer
from kopf._values.resources import Resource
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
        The keys are "namespace/name", the values are "uid version": strings are invisible for the garbage collector.
        If any labels or annotations are to be remembered, their JSON follows after one more space.
        """

    def identify(self, head: ObjectMeta) -> str:
        """Make what is to be kept for the object in this state."""
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
        """Drop the object; make one of all that was known of it: little more than the identity."""
        namespace, _, name = key.partition("/")
        uid, version, *remembered = self.identities.pop(key).split(" ", 2)
        identity = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version}
        metadata: dict[str, Any] = {field: value for field, value in identity.items() if value}
        for text in remembered:
            metadata |= codec.decode(text.encode())
        content = {"apiVersion": self._resource.api_version, "kind": self._resource.kind, "metadata": metadata}
        return KubeObject.from_dict(content)

    def renew(self, slots: Slots) -> None:
        """Forget the versions of the objects in these slots: whatever they are now, is news."""
        for key, identity in self.identities.items():
            uid, _, *remembered = identity.split(" ", 2)
            if get_slot(uid or key) in slots:
                self.identities[key] = " ".join((uid, "", *remembered))

    def is_renewed(self, key: str) -> bool:
        """Tell if nothing has come of the object since then; or ever."""
        identity = self.identities.get(key)
        return identity is None or identity.split(" ", 2)[1] == ""


class State(enum.Enum):
    """What the watcher should do next."""

    EMPTY = "nothing is known yet: list"
    LISTING = "the listing is in progress"
    WATCHING = "everything is known up to the version: watch from it"
    EXPIRED = "the version is too old to be watched from: list again"


class WatchEvent(msgspec.Struct, gc=False):
    """
    Something that has happened to an object.

    The type is ``None`` for the objects of the initial listing, as they existed before.
    """

    type: RawEventType
    object: KubeObject


class ForeignEvent(WatchEvent, gc=False):
    """The same, but of an object that was handled by another replica then: it is only for those who see everything."""


def disown(events: Iterable[WatchEvent], slots: Slots) -> list[WatchEvent]:
    """Of the objects in these slots, make the events foreign."""
    return [ForeignEvent(event.type, event.object) if _is_in(slots, event) else event for event in events]


def _is_in(slots: Slots, event: WatchEvent) -> bool:
    return event is not LISTED and get_slot(event.object.head.key) in slots


LISTED = WatchEvent(None, KubeObject.from_dict({}))
"""
The mark that the initial listing or a repeated one is complete; of no object. It is to be compared by ``is``.
"""


class WatchMachine:
    """
    The state of watching over one resource in one namespace or in the cluster.

    Methods that take something in append the resulting events to the list passed: in the order they came.

    Large because listings, streams, and moves between replicas meet in what is known of each object.
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
        The ``labels`` & ``annotations`` are the names of those to be remembered for the synthetic deletions. With
        ``comparable_versions``, the server guarantees that all versions of one resource can be compared.
        ``is_foreign`` tells by the key of an object if it is of another replica: nothing is kept of it, or reported.
        """
        self._has_comparable_versions = comparable_versions
        self.state = State.EMPTY
        self.version: str | None = None
        """The version up to which everything is known: where to watch from."""
        self._known = KnownObjects(resource, labels, annotations)
        self._unseen: set[str] = set()
        self._listed_version: str | None = None
        self._is_initial = True
        self._is_foreign = is_foreign
        self.gained: Slots = frozenset()
        """The slots whose objects are to be reported as in the initial listing."""

    def __len__(self) -> int:
        return len(self._known.identities)

    def begin_listing(self) -> None:
        """Start the initial listing, or a repeated one, or the same again after a failure half-way."""
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
        Conclude that the listing is complete: what was not in it, is not there anymore.

        The version is that of the listing, unless specified: streams tell it in the end.
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
        """Take an event of the watch stream; of a streamed listing, only the deletions."""
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
        """Tell if everything up to this version has come already: streams go from the older to the newer."""
        known = self.version or ""
        return version.isdecimal() and known.isdecimal() and not is_newer(version, known)

    def take_bookmark(self, version: str) -> None:
        """Take a bookmark: nothing has happened, but the version has moved."""
        self._expect(State.WATCHING)
        self.version = version or self.version

    def expire(self) -> None:
        """Accept that watching cannot be continued from the last version; what is known remains known."""
        self._expect(State.WATCHING, State.EXPIRED)
        self.state = State.EXPIRED
        self.version = None

    def interrupt(self) -> None:
        """Accept that nobody watches for a while: whatever the state is, it goes on with a listing."""
        if self.state is State.WATCHING:
            self.expire()

    def gain(self, slots: Slots) -> None:
        """The objects in these slots are ours from now on. To be called when it is interrupted."""
        self.gained |= slots
        self._known.renew(slots)

    def lose(self, slots: Slots) -> None:
        """The objects in these slots are of another replica from now on."""
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
            return  # the same state of the same object again: e.g. unchanged since the previous listing
        if known is not None and not known.startswith(f"{obj.head.uid} "):
            events.append(self._forget(key))
            known = None
        is_gained = bool(self.gained) and get_slot(obj.head.key) in self.gained and self._known.is_renewed(key)
        self._known.identities[key] = identity
        if type_ is None and not self._is_initial and not is_gained:
            type_ = "ADDED" if known is None else "MODIFIED"
        events.append(WatchEvent(type_, obj))
