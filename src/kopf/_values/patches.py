"""
Patches: the desired changes of an object, and their authors: the handlers.

A patch is a merge patch (RFC 7386), with ``None`` for fields to remove, plus optional functions that transform the
object in ways that a merge cannot express (lists, conditions).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final, TypedDict

from kopf._values.codec import NestingError
from kopf._values.diffs import DiffOperation, diff
from kopf._values.fields import FieldPath, make_pointer
from kopf._values.foreign_values import PROPER, ForeignValue, find_foreign_values
from kopf._values.patch_deliveries import EVERYTHING, Deliveries, choose
from kopf._values.user_functions import explaining

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

PatchFn = Callable[[Any], None]
"""A function that modifies a deep copy of the freshest raw body in place; annotate it as a dict or ``RawBody``."""


class JSONPatchItem(TypedDict, total=False):
    """One operation of a JSON-patch (RFC 6902)."""

    op: str
    path: str
    value: Any


class MutableStanza(MutableMapping[str, Any]):
    """A view of one stanza of a patch. The stanza appears in the patch with the first written value."""

    __slots__ = ("_owner", "_path")

    def __init__(self, owner: MutableMapping[str, Any], *path: str) -> None:
        self._owner = owner
        self._path = path

    def _read(self) -> Mapping[str, Any]:
        target: Any = self._owner
        for key in self._path:
            target = target.get(key) or {}
        return target  # type: ignore[no-any-return]  # users put only mappings there

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


class MetaPatch(MutableStanza):
    """``patch.meta``, with ``patch.meta.labels`` & ``patch.meta.annotations``."""

    __slots__ = ()

    @property
    def labels(self) -> MutableMapping[str, str | None]:
        """The labels to set, or to remove (with ``None``)."""
        return MutableStanza(self._owner, *self._path, "labels")

    @property
    def annotations(self) -> MutableMapping[str, str | None]:
        """The annotations to set, or to remove (with ``None``)."""
        return MutableStanza(self._owner, *self._path, "annotations")


_DEPTH = 3
"""The depth of the patch with known authors: it reaches labels, annotations, and fields of results."""


class Authorship:
    """The authors of one patch, to which several handlers contribute one after another; messages show their texts."""

    __slots__ = ("_fns", "_values", "suspects")

    def __init__(self) -> None:
        self._fns: dict[int, tuple[Callable[[Any], None], object]] = {}  # the functions keep their ids unique
        self._values: dict[FieldPath, tuple[Any, object]] = {}
        self.suspects: set[FieldPath] = set()
        """The fields with values that JSON possibly has no form for."""

    def sign(self, content: Mapping[str, Any], fns: Iterable[Callable[[Any], None]], author: object) -> None:
        """Note the author of all changes that are new since the last call."""
        for fn in fns:
            self._fns.setdefault(id(fn), (fn, author))
        self._sign(content, (), _DEPTH, author)

    def _sign(self, content: Mapping[str, Any], parent: FieldPath, depth: int, author: object) -> None:
        for key, value in content.items():
            path = (*parent, key)
            if depth > 1 and value and isinstance(value, dict):
                self._sign(value, path, depth - 1, author)
            elif (known := self._values.get(path)) is None or known[0] is not value:
                self._values[path] = (value, author)
                if type(value) not in PROPER:
                    self.suspects.add(path)

    def find_foreign_values(self) -> list[ForeignValue]:
        """Find the values that JSON has no form for."""
        return [found for path in self.suspects for found in find_foreign_values(self._values[path][0], path)]

    def get_author(self, fn: Callable[[Any], None]) -> str:
        """Get the author of the function; empty if unknown."""
        return str(self._fns.get(id(fn), (fn, ""))[1])

    def find_authors(self, content: Mapping[str, Any], fields: Collection[FieldPath]) -> list[str]:
        """Get the authors of the fields of the patch; without fields, of the whole patch."""
        authors = [
            author
            for path, (_, author) in self._values.items()
            if path[0] in content and (not fields or any(_overlap(field, path) for field in fields))
        ]
        if not fields or not authors:  # the fields that the functions change are unknown
            authors += [author for _, author in self._fns.values()]
        return [*dict.fromkeys(map(str, authors))]


def _overlap(one: FieldPath, two: FieldPath) -> bool:
    """Tell if one of the fields contains the other one, or is the same."""
    return all(map(str.__eq__, one, two))


class Patch(dict[str, Any]):
    """
    The changes that a handler makes to its object. Kopf sends them when the handler returns or raises.

    Use it as a dict (``patch['spec'] = …``), by stanzas (``patch.status['field'] = …``,
    ``patch.meta.labels['l'] = None``), or append transformation functions to ``patch.fns``. ``None`` removes a field.

    :param src: the initial content, as a merge patch.
    :param body: the object, for :meth:`as_json_patch`.
    :param fns: the initial transformation functions.
    """

    fns: list[PatchFn] = []  # noqa: RUF012  # each instance has its own; this one is for introspection
    """The functions that transform the freshest body of the object in place."""
    authorship: Authorship | None = None  # most patches have none
    """Which handler has changed which field; for Kopf only."""
    _deliveries: Deliveries | None = None

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

    @property
    def deliveries(self) -> Deliveries:
        """The changes that have been sent already; for Kopf only. They matter only with transformation functions."""
        if self._deliveries is None:
            self._deliveries = Deliveries()
        return self._deliveries

    def __bool__(self) -> bool:
        return len(self) > 0 or bool(self.fns)

    @property
    def metadata(self) -> MetaPatch:
        """The changes of the metadata."""
        return MetaPatch(self, "metadata")

    @property
    def meta(self) -> MetaPatch:
        """The same as :attr:`metadata`."""
        return MetaPatch(self, "metadata")

    @property
    def spec(self) -> MutableStanza:
        """The changes of the spec."""
        return MutableStanza(self, "spec")

    @property
    def status(self) -> MutableStanza:
        """The changes of the status."""
        return MutableStanza(self, "status")

    def sign(self, author: object) -> None:
        """Note the author of all new changes, for messages about changes that fail or that the API refuses."""
        if self.authorship is None:
            self.authorship = Authorship()
        self.authorship.sign(self, self.fns, author)

    def derive(self, content: Mapping[str, Any]) -> Patch:
        """Make a patch with other content, and with the same functions and authors."""
        derived = Patch(content, fns=self.fns)
        derived.authorship = self.authorship
        if self.fns:
            derived._deliveries = self.deliveries
        return derived

    def ensure_stanza(self, *path: str) -> dict[str, Any]:
        """Get a stanza of the patch as a plain dict; create it if there is none, or if it is no mapping."""
        target: dict[str, Any] = self
        for key in path:
            child = target.get(key)
            if child is None:  # mostly
                child = target[key] = {}
            elif type(child) is not dict:
                child = target[key] = thaw(child) if isinstance(child, Mapping) else {}
            target = child
        return target

    def as_json_patch(self, body: Mapping[str, Any] | None = None) -> list[JSONPatchItem]:
        """
        Express the patch as operations of a JSON patch (RFC 6902).

        :param body: the object that they are relative to; by default, the body of the patch.
        :raises ValueError: if the patch has changes, but no body.
        """
        original = body if body is not None else self._original
        if original is None and self:
            raise ValueError("A JSON-patch is made relative to a body: pass it as `patch.as_json_patch(body)`.")
        return list_changes(thaw(original or {}), self.apply_to(original or {}))

    def apply_to(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """
        Return a patched deep copy of the body: merge the patch, and call the functions, as far as not done yet.

        Raises :class:`CallbackError`, which names the failed function.
        """
        result: dict[str, Any] = thaw(body)
        merge(result, self)
        done = self.deliveries.done if self.fns else EVERYTHING
        if done == EVERYTHING:
            return result
        changed = thaw(result) if done else result
        for fn in self.fns:
            author = self.authorship.get_author(fn) if self.authorship is not None else ""
            with explaining(fn, f"patch.fns{author and f' of {author}'}"):
                fn(changed)
        return choose(result, changed, done) if done else changed


class FinalizerChange(enum.Enum):
    """A change of the operator's finalizer."""

    ADD = "add"
    REMOVE = "remove"

    def apply(self, finalizer: str, finalizers: Iterable[str] | None) -> list[str]:
        """Make the new list of finalizers; the finalizers of others remain."""
        others = [name for name in finalizers or () if name != finalizer]
        return [*others, finalizer] if self is FinalizerChange.ADD else others


ADD: Final = FinalizerChange.ADD
REMOVE: Final = FinalizerChange.REMOVE
"""As plain names for speed, in the same way as the reasons."""


_OPERATIONS = {DiffOperation.ADD: "add", DiffOperation.CHANGE: "replace", DiffOperation.REMOVE: "remove"}


def list_changes(original: dict[str, Any], changed: dict[str, Any]) -> list[JSONPatchItem]:
    """List the operations that turn the original into the changed object."""
    return [
        _make_item(_OPERATIONS[item.operation], make_pointer(item.field), item.new) for item in diff(original, changed)
    ]


def _make_item(op: str, path: str, value: Any) -> JSONPatchItem:
    return {"op": op, "path": path} if op == "remove" else {"op": op, "path": path, "value": value}


def merge(target: MutableMapping[str, Any], patch: Mapping[str, Any]) -> None:
    """
    Merge the patch into the target in place (RFC 7386), without recursion: they can be deep.

    Raises :class:`NestingError` if the patch is too deep, e.g. because it contains itself.
    """
    pending: list[tuple[MutableMapping[str, Any], Mapping[str, Any], int]] = [(target, patch, 1)]
    while pending:
        target, patch, depth = pending.pop()
        if depth > _MAX_DEPTH:
            raise NestingError
        for key, value in patch.items():
            if value is None:
                target.pop(key, None)
            elif type(value) is dict or isinstance(value, Mapping):
                child = target.get(key)
                if type(child) is not dict and not isinstance(child, MutableMapping):
                    child = target[key] = {}
                pending.append((child, value, depth + 1))
            else:
                target[key] = thaw(value)


def thaw(value: Any) -> Any:
    """
    Make a deep mutable copy of a body or a part, of plain dicts and lists only, without recursion.

    Raises :class:`NestingError` if it is too deep, e.g. because it contains itself.
    """
    if type(value) in _SCALARS:
        return value
    pending: list[tuple[Any, Any, int]] = []
    result = _thaw_level(value, pending, 1)
    while pending:
        source, copy, depth = pending.pop()
        if type(copy) is dict:
            for key, item in source.items():
                copy[key] = item if type(item) in _SCALARS else _thaw_level(item, pending, depth)
        else:
            copy += [item if type(item) in _SCALARS else _thaw_level(item, pending, depth) for item in source]
    return result


_SCALARS = frozenset({str, int, float, bool, type(None)})
"""The types of most values. This check is much faster than a check for containers."""
_CONTAINERS = (Mapping, list, tuple)
_MAX_DEPTH = 20_000
"""The maximal depth of values; API servers refuse more than 10,000 levels."""


def _thaw_level(value: Any, pending: list[tuple[Any, Any, int]], depth: int) -> Any:
    """Copy the value itself, and leave its items for later."""
    if type(value) is not dict and not isinstance(value, _CONTAINERS):
        return value
    if depth > _MAX_DEPTH:
        raise NestingError
    copy: Any = [] if isinstance(value, list | tuple) else {}
    pending.append((value, copy, depth + 1))
    return copy
