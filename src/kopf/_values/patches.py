"""
Patches: what is to be changed on an object, and the fewest API requests that do it.

A patch is a dict to be merged (RFC 7386), with ``None`` for fields to remove, plus optional functions that transform
the object in ways that a merge cannot express (lists, conditions). The functions and the lists of
finalizers go as a JSON-patch (RFC 6902) guarded by the ``resourceVersion``, so that nobody else's changes are lost.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final, TypedDict

from kopf._values.diffs import DiffOperation, diff
from kopf._values.fields import FieldPath
from kopf._values.patch_authorship import Authorship
from kopf._values.patch_deliveries import EVERYTHING, Deliveries, choose
from kopf._values.records import FrozenRecord, replace
from kopf._values.user_functions import explaining

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

PatchFn = Callable[[Any], None]
"""A function that modifies the freshest raw body (a deep copy of it) in place; annotated as a dict or ``RawBody``."""


class JSONPatchItem(TypedDict, total=False):
    """One operation of a JSON-patch (RFC 6902)."""

    op: str
    path: str
    value: Any


class MutableStanza(MutableMapping[str, Any]):
    """A view of one stanza of a patch, which appears in the patch with the first value written."""

    __slots__ = ("_owner", "_path")

    def __init__(self, owner: MutableMapping[str, Any], *path: str) -> None:
        self._owner = owner
        self._path = path

    def _read(self) -> Mapping[str, Any]:
        target: Any = self._owner
        for key in self._path:
            target = target.get(key) or {}
        return target  # type: ignore[no-any-return]  # whatever the user has put there is a mapping

    def _write(self) -> MutableMapping[str, Any]:
        target: Any = self._owner
        for key in self._path:
            if target.get(key) is None:
                target[key] = {}
            target = target[key]
        return target  # type: ignore[no-any-return]

    def __getitem__(self, key: str) -> Any:
        return self._read()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._write()[key] = value

    def __delitem__(self, key: str) -> None:
        if key not in self._read():
            raise KeyError(key)
        del self._write()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(dict(self))


class SpecPatch(MutableStanza):
    """``patch.spec``."""

    __slots__ = ()


class StatusPatch(MutableStanza):
    """``patch.status``."""

    __slots__ = ()


class MetaPatch(MutableStanza):
    """``patch.meta``, with ``labels`` & ``annotations`` in it."""

    __slots__ = ()

    @property
    def labels(self) -> MutableMapping[str, str | None]:
        """Labels to set or (with ``None``) to remove."""
        return MutableStanza(self._owner, *self._path, "labels")

    @property
    def annotations(self) -> MutableMapping[str, str | None]:
        """Annotations to set or (with ``None``) to remove."""
        return MutableStanza(self._owner, *self._path, "annotations")


class Patch(dict[str, Any]):
    """
    Changes to be made to the object when the handler is done.

    Use it as a dict (``patch['spec'] = …``), by stanzas (``patch.status['field'] = …``,
    ``patch.meta.labels['l'] = None``), or append transformation functions to ``patch.fns``.
    """

    fns: list[PatchFn] = []  # noqa: RUF012  # each has its own; this is for those who look what there is
    authorship: Authorship | None = None  # most have none

    def __init__(
        self,
        src: Mapping[str, Any] | None = None,
        /,
        body: Mapping[str, Any] | None = None,
        fns: Iterable[PatchFn] = (),
    ) -> None:
        if src is not None:
            self.update(src)
        self._original = body
        self.fns = list(fns) if fns else []
        self.deliveries = Deliveries()

    def __bool__(self) -> bool:
        return len(self) > 0 or len(self.fns) > 0

    @property
    def metadata(self) -> MetaPatch:
        """Changes of the metadata."""
        return MetaPatch(self, "metadata")

    @property
    def meta(self) -> MetaPatch:
        """The same as :attr:`metadata`."""
        return MetaPatch(self, "metadata")

    @property
    def spec(self) -> SpecPatch:
        """Changes of the spec."""
        return SpecPatch(self, "spec")

    @property
    def status(self) -> StatusPatch:
        """Changes of the status."""
        return StatusPatch(self, "status")

    def sign(self, author: str) -> None:
        """Note whose changes these are, as far as it is not known yet; it is said if they fail or are refused."""
        self.authorship = self.authorship or Authorship()
        self.authorship.sign(self, self.fns, author)

    def derive(self, content: Mapping[str, Any]) -> Patch:
        """Make a patch with other content, but with the same functions and authors."""
        derived = Patch(content, fns=self.fns)
        derived.authorship, derived.deliveries = self.authorship, self.deliveries
        return derived

    def transform(self, body: dict[str, Any]) -> None:
        """Call the functions, if there are any. Raises :class:`CallbackError`, which says which of them has failed."""
        for fn in self.fns:
            author = self.authorship.get_author(fn) if self.authorship is not None else ""
            with explaining(fn, f"patch.fns{author and f' of {author}'}"):
                fn(body)

    def ensure_stanza(self, *path: str) -> dict[str, Any]:
        """Get a stanza of the patch to put something there: the plain dict, with no view of it."""
        target: dict[str, Any] = self
        for key in path:
            child = target.get(key)
            if type(child) is not dict:
                child = target[key] = {} if child is None else thaw(child)
            target = child
        return target

    def as_json_patch(self, body: Mapping[str, Any] | None = None) -> list[JSONPatchItem]:
        """
        Express the patch as JSON-patch operations relative to the body; by default, to the one it was made for.

        Raises :class:`ValueError` if there is something to change, but no body to compare with.
        """
        original = body if body is not None else self._original
        if original is None and self:
            raise ValueError("A JSON-patch is made relative to a body: pass it as `patch.as_json_patch(body)`.")
        return _list_changes(thaw(original or {}), self.apply_to(original or {}))

    def apply_to(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make a patched copy of the body."""
        return _transform(thaw(body), self)


class PatchRequest(FrozenRecord, frozen=True):
    """One PATCH request: to the object itself or to a subresource of it."""

    subresource: str | None
    content_type: str
    changes: dict[str, Any] | list[JSONPatchItem]
    exclusive: bool = False
    """Whether it is only for the last known version of the object, even if it could be merged into any."""

    @property
    def guarded(self) -> bool:
        """Whether it fails (409/422) if the object has changed meanwhile."""
        return self.exclusive or isinstance(self.changes, list)

    def guard(self) -> PatchRequest:
        """Make the same request fail if the object has changed meanwhile."""
        return replace(self, exclusive=True)

    def payload(self, version: str, uid: str) -> dict[str, Any] | list[JSONPatchItem]:
        """
        What to send, given the last known ``resourceVersion`` of the object, and its identity.

        The identity is a precondition: the patch is refused (409) if it is another object with the same name now.
        Some of the objects of aggregated APIs have neither: then there are no preconditions.
        """
        if isinstance(self.changes, list):
            path = "/metadata/resourceVersion"
            return [{"op": "test", "path": path, "value": version}, *self.changes] if version else self.changes
        payload = self.changes.copy()
        metadata = payload["metadata"] = {**payload.get("metadata", {})}
        if uid:
            metadata["uid"] = uid
        if version and self.exclusive:
            metadata["resourceVersion"] = version
        return payload


class FinalizerChange(enum.Enum):
    """What to do with our finalizer."""

    ADD = "add"
    REMOVE = "remove"

    def apply(self, finalizer: str, finalizers: Iterable[str] | None) -> list[str]:
        """Make the new list of finalizers; those of others stay as they are."""
        others = [name for name in finalizers or () if name != finalizer]
        return [*others, finalizer] if self is FinalizerChange.ADD else others


ADD: Final = FinalizerChange.ADD
REMOVE: Final = FinalizerChange.REMOVE
"""By themselves, as the reasons are."""


def compose(
    patch: Patch,
    body: Mapping[str, Any],
    *,
    finalizer: str = "",
    change: FinalizerChange | None = None,
    status_subresource: bool,
) -> list[PatchRequest]:
    """
    Turn the desired changes into the fewest requests that are correct; none if there is nothing to change.

    ``change`` is what to do with the finalizer, if anything. The status goes first: what follows can release the
    object or mark its handlers as done, so that the status could not be written ever after.
    """
    if change is None and not patch.fns:
        return _compose_merge(patch, status_subresource)
    if change is not None and not patch:
        finalizers = change.apply(finalizer, body["metadata"].get("finalizers"))
        return [PatchRequest(None, JSON_PATCH, [_make_item("add", "/metadata/finalizers", finalizers)])]
    original = thaw(body)
    changed = _transform(original, patch)
    if change is not None:
        metadata = changed.setdefault("metadata", {})
        metadata["finalizers"] = change.apply(finalizer, metadata.get("finalizers"))
    return _compare(original, changed, status_subresource)


def _compose_merge(patch: Patch, status_subresource: bool) -> list[PatchRequest]:
    main: dict[str, Any] = {**patch}
    metadata = main.get("metadata")
    if type(metadata) is dict or isinstance(metadata, Mapping):
        # Labels & annotations that were put to the patch and then taken back leave empty stanzas there.
        main["metadata"] = _drop_empty(metadata if type(metadata) is dict else {**metadata})
    main = _drop_empty(main)
    requests: list[PatchRequest] = []
    if status_subresource and "status" in main:
        requests.append(PatchRequest("status", MERGE_PATCH, {"status": main.pop("status")}))
    if main:
        requests.append(PatchRequest(None, MERGE_PATCH, main))
    return requests


def _drop_empty(stanza: dict[str, Any]) -> dict[str, Any]:
    if {} not in stanza.values():
        return stanza
    return {key: value for key, value in stanza.items() if value != {}}


def _compare(original: dict[str, Any], changed: dict[str, Any], status_subresource: bool) -> list[PatchRequest]:
    if not status_subresource:
        items = _list_changes(original, changed)
        return [PatchRequest(None, JSON_PATCH, items)] if items else []
    # The stanzas are compared separately, as values cannot be moved from one endpoint to another.
    for_status = _list_changes(_pick_status(original), _pick_status(changed))
    for_object = _list_changes(_drop_status(original), _drop_status(changed))
    return [
        PatchRequest(subresource, JSON_PATCH, items)
        for subresource, items in (("status", for_status), (None, for_object))
        if items
    ]


def _pick_status(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key == "status"}


def _drop_status(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "status"}


def _transform(body: dict[str, Any], patch: Patch) -> dict[str, Any]:
    """Merge the patch, and call the functions for those parts which they have not changed yet."""
    result: dict[str, Any] = thaw(body)
    merge(result, patch)
    done = patch.deliveries.done if patch.fns else EVERYTHING
    if done == EVERYTHING:
        return result
    changed = thaw(result) if done else result
    patch.transform(changed)
    return choose(result, changed, done) if done else changed


_OPERATIONS = {DiffOperation.ADD: "add", DiffOperation.CHANGE: "replace", DiffOperation.REMOVE: "remove"}


def _list_changes(original: dict[str, Any], changed: dict[str, Any]) -> list[JSONPatchItem]:
    return [
        _make_item(_OPERATIONS[item.operation], _make_pointer(item.field), item.new) for item in diff(original, changed)
    ]


def _make_item(op: str, path: str, value: Any) -> JSONPatchItem:
    return {"op": op, "path": path} if op == "remove" else {"op": op, "path": path, "value": value}


def _make_pointer(path: FieldPath) -> str:
    """Form a JSON pointer (RFC 6901)."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in path)


def merge(target: MutableMapping[str, Any], patch: Mapping[str, Any]) -> None:
    """Merge the patch into the target in place (RFC 7386). It is not recursive: they can be of any depth."""
    pending: list[tuple[MutableMapping[str, Any], Mapping[str, Any]]] = [(target, patch)]
    while pending:
        target, patch = pending.pop()
        for key, value in patch.items():
            if value is None:
                target.pop(key, None)
            elif type(value) is dict or isinstance(value, Mapping):
                child = target.get(key)
                if type(child) is not dict and not isinstance(child, MutableMapping):
                    child = target[key] = {}
                pending.append((child, value))
            else:
                target[key] = thaw(value)


def thaw(value: Any) -> Any:
    """Make a deep mutable copy of a body or any part of it, with plain dicts and lists only. It is not recursive."""
    if type(value) in _SCALARS:
        return value
    pending: list[tuple[Any, Any]] = []
    result = _thaw_level(value, pending)
    while pending:
        source, copy = pending.pop()
        if type(copy) is dict:
            for key, item in source.items():
                copy[key] = item if type(item) in _SCALARS else _thaw_level(item, pending)
        else:
            copy += [item if type(item) in _SCALARS else _thaw_level(item, pending) for item in source]
    return result


_SCALARS = frozenset({str, int, float, bool, type(None)})
"""Most of the values: to see it at once is much faster than to find out that they are not containers."""
_CONTAINERS = (Mapping, list, tuple)


def _thaw_level(value: Any, pending: list[tuple[Any, Any]]) -> Any:
    """Copy the value itself; its items are left for later."""
    if type(value) is not dict and not isinstance(value, _CONTAINERS):
        return value
    copy: Any = [] if isinstance(value, list | tuple) else {}
    pending.append((value, copy))
    return copy
