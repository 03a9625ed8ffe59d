"""
Kinds of objects in one version: their names, scope, verbs, and rules.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from kopf_cluster import statuses
from kopf_cluster.cel import rules as cel_rules
from kopf_cluster.kinds import schemas, structures, topologies
from kopf_cluster.kinds.resources import Subresource
from kopf_cluster.kinds.scales import ScalePaths
from kopf_cluster.store.watch_cache import Record

Obj: TypeAlias = dict[str, Any]

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS: Final = ("get", "patch", "update")


class Strategy(Protocol):
    """Completes a new state of an object in place, knowing the old one if any, and returns the errors in it.

    It adds the paths of dropped unknown fields to the list, if there is one.
    """

    def __call__(self, new: Obj, old: Obj | None, unknown: list[str] | None = None) -> list[statuses.FieldError]: ...


class Field(Protocol):
    """A field for field selectors."""

    def show(self, obj: Any) -> str: ...


class Converter:
    """Converts the objects of a kind between the stored version and the served one; this one changes nothing."""

    converts = False
    """Whether the versions name or express the same values differently."""

    def require(self, kind: Kind, records: Iterable[Record], *, fresh: bool = False) -> None:
        """Prepare the conversion of many records; raise `Unresolved` if this needs a webhook.

        A fresh conversion is not remembered from other requests.
        """

    def read(self, kind: Kind, record: Record) -> bytes:
        """Return the encoded object in the version of the kind, without the version and the kind."""
        return record.data

    def write(self, kind: Kind, obj: Obj) -> Obj:
        """Return the object in the stored version."""
        return obj

    def remember(self, kind: Kind, obj: Obj, record: Record) -> None:
        """Remember how the record of a written object is read in the version of the kind, if that is known already."""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """One column of the Table output."""

    name: str
    type: str
    description: str
    cell: Callable[[Obj], Any]
    format: str = ""
    priority: int = 0

    def as_definition(self) -> Obj:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind in one version. All versions of a kind share the bucket with their objects."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    has_status: bool = False
    """Whether the status is a subresource, i.e. isolated from the rest of the object."""
    has_generation: bool = True
    custom: bool = False
    shows_deleted: bool = False
    """Whether the answer to a deletion is the last state of the object, even if it is gone."""
    unconditional_update: bool = True
    """Whether an update (PUT) is accepted without a resource version."""
    created_by_update: bool = False
    """Whether an update (PUT) of an absent object creates it."""
    loose_names: bool = False
    """Whether names must only fit in a URL (as of roles), instead of being DNS subdomains."""
    cleanup_finalizer: str = ""
    """The finalizer for every deleted object, so that a control loop cleans up first."""
    columns: tuple[Column, ...] = ()
    fields: Mapping[str, Field] = dataclasses.field(default_factory=dict)
    """The fields for field selectors, besides the name and the namespace."""
    other_fields: Mapping[str, Field] = dataclasses.field(default_factory=dict)
    """The fields for field selectors in other versions of the same objects; like all fields, in the stored version."""
    stored_as: str = ""
    """The bucket of the objects, if it is that of another group; empty for the own one."""
    schema: schemas.Schema | None = None
    rules: cel_rules.RuleNode | None = None
    """The rules of the schema, i.e. its ``x-kubernetes-validations``, if there are any."""
    strategy: Strategy | None = None
    list_kind: str = ""
    definition: str = ""
    """The name of the definition of a built-in kind: see `structures.of_definition`."""
    warnings: tuple[str, ...] = ()
    """The warnings for all requests to the kind, e.g. that the version is deprecated."""
    storage_version: str = ""
    """The stored version of custom resources."""
    converter: Converter | None = None
    """Converts the objects between the stored version and this one; none if only the version itself differs."""
    listed_subresources: Mapping[str, Subresource] = dataclasses.field(default_factory=dict)
    """All subresources, including unsupported ones."""
    scale: ScalePaths | None = None
    """The paths of the numbers of replicas; none if the kind cannot be scaled."""

    @property
    def is_stored(self) -> bool:
        """Whether objects of the kind are stored; other kinds are only questions to the server."""
        return "list" in self.verbs

    @functools.cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """The unambiguous name for kubectl: ``deployments.v1.apps``, or ``pods`` of the core group."""
        return f"{self.plural}.{self.version}.{self.group}" if self.group else self.plural

    @functools.cached_property
    def topology(self) -> topologies.Topology:
        """The merge strategies of the fields."""
        if self.schema is not None:
            return topologies.of_schema(self.schema.raw, root=True)
        return topologies.of_structure(structures.of_definition(self.definition))

    @functools.cached_property
    def bucket(self) -> str:
        return self.stored_as or statuses.group_resource(self)

    @functools.cached_property
    def indexed_fields(self) -> Mapping[str, Field]:
        """All fields that are stored with an object for field selectors."""
        return {**self.fields, **self.other_fields}

    @functools.cached_property
    def head(self) -> bytes:
        """The beginning of the JSON of each object, which is not stored, as it depends on the version."""
        return b'{"apiVersion":"%s","kind":"%s",' % (self.api_version.encode(), self.kind.encode())

    @functools.cached_property
    def list_frame(self) -> bytes:
        """The frame of a list: its metadata and the items; for custom kinds, in the reverse order."""
        list_kind = (self.list_kind or f"{self.kind}List").encode()
        frame = (
            b'{"apiVersion":"%s","items":[%%s],"kind":"%s","metadata":%%s}'
            if self.custom
            else b'{"apiVersion":"%s","kind":"%s","metadata":%%s,"items":[%%s]}'
        )
        return frame % (self.api_version.encode(), list_kind)

    @functools.cached_property
    def item_head(self) -> bytes:
        """The beginning of each item of a list; items of built-in kinds have no kinds, as in a real cluster."""
        return self.head if self.custom else b"{"
