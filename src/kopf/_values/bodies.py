"""
The object as handlers see it: ``body`` and its views ``spec``, ``meta``, ``status``, ``labels``, ``annotations``.

All of them are read-only mappings over the current source of the body. When the source is replaced (in the live bodies
of daemons and timers), all views show the new content at once.
"""

from __future__ import annotations

import abc
import reprlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, NewType, TypedDict, TypeVar, cast

from kopf._values.objects import KubeObject

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)

Labels = Mapping[str, str]
Annotations = Mapping[str, str]
NamespaceName = NewType("NamespaceName", str)

RawEventType = Literal[None, "ADDED", "MODIFIED", "DELETED"]
"""The type of a watch event; ``None`` is for objects of the initial listing."""


class RawMeta(TypedDict, total=False):
    """The ``metadata`` of an object as the API serves it."""

    uid: str
    name: str
    namespace: str
    labels: Labels
    annotations: Annotations
    finalizers: list[str]
    resourceVersion: str
    deletionTimestamp: str
    creationTimestamp: str
    selfLink: str


class RawBody(TypedDict, total=False):
    """An object as the API serves it."""

    apiVersion: str
    """The group and the version, e.g. ``apps/v1``."""
    kind: str
    """The kind, e.g. ``Deployment``."""
    metadata: RawMeta
    """The identity, the labels, the annotations, and everything else that all kinds have."""
    spec: Mapping[str, Any]
    """The desired state."""
    status: Mapping[str, Any]
    """The observed state."""


class RawEvent(TypedDict):
    """An event of the watch stream, as handlers of ``@kopf.on.event`` get it."""

    type: RawEventType
    """``ADDED``, ``MODIFIED``, ``DELETED``; or ``None`` for objects that existed before the watch."""
    object: RawBody
    """The object after the change."""


class MetaEssence(TypedDict, total=False):
    """The essential metadata."""

    labels: Labels
    annotations: Annotations


class BodyEssence(TypedDict, total=False):
    """The essential part of an object. Kopf detects changes by comparing it; ``old`` and ``new`` are such parts."""

    metadata: MetaEssence
    """The labels, and the annotations except Kopf's and ``kubectl``'s; absent if there are none."""
    spec: Mapping[str, Any]
    """The whole specification. Other top-level fields, e.g. ``data``, are there by their own names."""
    status: Mapping[str, Any]
    """Only the fields of the status that handlers name."""


class MappingView(Mapping[K, V_co], Generic[K, V_co]):
    """A read-only live view of one stanza of a body."""

    __slots__ = ()

    @abc.abstractmethod
    def _target(self) -> Mapping[K, V_co]:
        """Get the current viewed mapping."""

    def __getitem__(self, key: K) -> V_co:
        return self._target()[key]

    def get(self, key: K, default: Any = None) -> Any:
        return self._target().get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._target()

    def __iter__(self) -> Iterator[K]:
        return iter(self._target())

    def __len__(self) -> int:
        return len(self._target())

    if not TYPE_CHECKING:  # type checkers complain by themselves

        def __setitem__(self, key: K, value: Any) -> None:
            """Refuse, and tell the right way."""
            raise TypeError(self._explain("assignment", key, reprlib.repr(value)))

        def __delitem__(self, key: K) -> None:
            """Refuse, and tell the right way."""
            raise TypeError(self._explain("deletion", key, "None"))

        def _explain(self, what: str, key: K, value: str) -> str:
            cure = f'{self._get_patch_path()}["{key}"] = {value}'
            name = type(self).__name__.lstrip("_")
            return f"{name!r} object does not support item {what}. To change the object, use `{cure}`."

    def _get_patch_path(self) -> str:
        """Get the expression by which users change the viewed mapping."""
        return "patch"

    def __repr__(self) -> str:
        try:
            return repr(dict(self))
        except RecursionError:  # logging for debugging must break nothing
            return f"<{type(self).__name__}, nested too deeply to be shown>"


class StanzaError(TypeError):
    """The spec or the status of an object is not a JSON object. Schemas of custom resources can permit that."""


class _Stanza(MappingView[str, Any]):
    __slots__ = ("_src",)
    _name: str

    def __init__(self, src: Mapping[str, Any], /) -> None:
        self._src = src

    def _target(self) -> Mapping[str, Any]:
        target = self._src.get(self._name) or {}
        if not isinstance(target, Mapping):
            raise StanzaError(f"The {self._name} must be a JSON object, not {type(target).__name__}.")
        return target

    def _get_patch_path(self) -> str:
        return f"patch.{'meta' if self._name == 'metadata' else self._name}"


class Spec(_Stanza):
    """The ``spec`` of an object: a read-only live view of its body."""

    __slots__ = ()
    _name = "spec"


class Status(_Stanza):
    """The ``status`` of an object: a read-only live view of its body."""

    __slots__ = ()
    _name = "status"


class _MetaMapping(MappingView[str, str]):
    """The labels or annotations of an object: a read-only live view of its body."""

    __slots__ = ("_name", "_src")

    def __init__(self, src: Mapping[str, Any], name: str, /) -> None:
        self._src = src
        self._name = name

    def _target(self) -> Mapping[str, str]:
        return (self._src.get("metadata") or {}).get(self._name) or {}

    def _get_patch_path(self) -> str:
        return f"patch.meta.{self._name}"


class Meta(_Stanza):
    """The ``metadata`` of an object: a read-only live view of its body, with shortcuts for well-known fields."""

    __slots__ = ()
    _name = "metadata"

    @property
    def labels(self) -> Labels:
        """The labels; empty if the object has none."""
        return _MetaMapping(self._src, "labels")

    @property
    def annotations(self) -> Annotations:
        """The annotations; empty if the object has none."""
        return _MetaMapping(self._src, "annotations")

    @property
    def uid(self) -> str | None:
        """The UID; ``None`` if the object was never stored in a cluster."""
        return cast("str | None", self.get("uid"))

    @property
    def name(self) -> str | None:
        """The name; ``None`` if the object has no name yet, e.g. because the server generates it."""
        return cast("str | None", self.get("name"))

    @property
    def namespace(self) -> NamespaceName | None:
        """The namespace; ``None`` for cluster-scoped objects."""
        return cast("NamespaceName | None", self.get("namespace"))

    @property
    def creation_timestamp(self) -> str | None:
        """The time of the creation (ISO 8601); ``None`` if the object was never stored in a cluster."""
        return cast("str | None", self.get("creationTimestamp"))

    @property
    def deletion_timestamp(self) -> str | None:
        """The time of the deletion request (ISO 8601); ``None`` if there was none."""
        return cast("str | None", self.get("deletionTimestamp"))


class Body(MappingView[str, Any]):
    """
    The whole object: a read-only mapping.

    It can wrap any mapping. Kopf decodes the bodies that it makes on demand, field by field.
    """

    __slots__ = ("_src",)

    def __init__(self, src: Mapping[str, Any], /) -> None:
        self._src = src

    def _target(self) -> Mapping[str, Any]:
        return self._src

    def _replace_with(self, src: Mapping[str, Any]) -> None:
        """Show another state of the same object through this body and all of its views."""
        self._src = src

    @property
    def object(self) -> KubeObject:
        """The object behind the body, with decoded metadata."""
        if not isinstance(self._src, KubeObject):
            self._src = KubeObject.from_dict(self._src)
        return self._src

    @property
    def metadata(self) -> Meta:
        """The metadata of the object."""
        return Meta(self)

    @property
    def meta(self) -> Meta:
        """The same as :attr:`metadata`."""
        return Meta(self)

    @property
    def spec(self) -> Spec:
        """The spec of the object; empty if it has none."""
        return Spec(self)

    @property
    def status(self) -> Status:
        """The status of the object; empty if it has none."""
        return Status(self)
