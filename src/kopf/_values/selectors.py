"""
Selectors: the resources that a handler is declared for, in all notations of ``kubectl``.

A handler is declared before Kopf knows the cluster. So, a selector keeps the given names, and matches them with the
resources after the discovery.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, runtime_checkable

from kopf._values.resources import EVENTS, Resource
from kopf._values.user_functions import describe_function


class Marker(enum.Enum):
    """Special values for the names of resources."""

    EVERYTHING = "EVERYTHING"


EVERYTHING = Marker.EVERYTHING
"""All resources (of the group or version, if specified), except for events of Kubernetes."""

ResourceFn = Callable[[Resource], bool]

Decoder = Callable[[Any], Any]
"""A function that makes a typed value of a JSON value."""


@runtime_checkable
class ResourceModel(Protocol):
    """A class that describes a resource by types, and stands for it in decorators: :class:`kopf.CustomResource`."""

    has_conditions: bool
    """Whether the status has conditions, as :func:`kopf.conditions` writes them."""

    def get_resource_names(self) -> tuple[str, str, str]:
        """Return the group, the version, and the plural name."""

    def fits(self, body: Mapping[str, Any], stanza: str) -> bool:
        """Tell if the stanza (``spec`` or ``status``) of an object fits its type."""

    def find_decoders(self, fn: Callable[..., Any], field: tuple[str, ...]) -> Mapping[str, Decoder]:
        """
        Find the decoders of the function's arguments by their annotations.

        If ``field`` is not empty, the old and the new values are values of this field. Raises
        :class:`kopf.DeclarationError` if the annotations are of another model.
        """


NameSpec = str | Marker | ResourceFn | ResourceModel | None
"""The positional arguments of decorators, which name the resource."""


@dataclasses.dataclass(frozen=True)
class Selector:
    """
    A specification of one or several resources.

    The positional arguments are ``([[group], version], name)``, where the group and the version can be one string
    (``group/version``). The name can be ``name.group`` or ``name.version.group``, or :data:`EVERYTHING`, or a function
    that accepts or rejects a :class:`Resource`, or a :class:`ResourceModel`. Repetitions are fine if they agree.

    Raises :class:`TypeError` if the specification is contradictory or names no resource.
    """

    arg1: dataclasses.InitVar[NameSpec] = None
    arg2: dataclasses.InitVar[NameSpec] = None
    arg3: dataclasses.InitVar[NameSpec] = None

    group: str | None = dataclasses.field(default=None, kw_only=True)
    version: str | None = dataclasses.field(default=None, kw_only=True)
    kind: str | None = dataclasses.field(default=None, kw_only=True)
    plural: str | None = dataclasses.field(default=None, kw_only=True)
    singular: str | None = dataclasses.field(default=None, kw_only=True)
    shortcut: str | None = dataclasses.field(default=None, kw_only=True)
    category: str | None = dataclasses.field(default=None, kw_only=True)
    any_name: str | Marker | None = dataclasses.field(default=None, kw_only=True)
    fn: ResourceFn | None = dataclasses.field(default=None, kw_only=True)
    model: ResourceModel | None = dataclasses.field(default=None, kw_only=True, compare=False)
    """The model with these names, if it was given instead."""

    def __post_init__(
        self,
        arg1: NameSpec,
        arg2: NameSpec,
        arg3: NameSpec,
    ) -> None:
        *api, name = [arg for arg in (arg1, arg2, arg3) if arg is not None] or (None,)
        if any(not isinstance(part, str) for part in api):
            raise TypeError(f"The API group & version must be strings, got {api!r}.")
        group, version = _parse_api([part for part in api if isinstance(part, str)])
        group_of_name = version_of_name = None
        if isinstance(name, ResourceModel):
            object.__setattr__(self, "model", name)
            group_of_name, version_of_name, plural = name.get_resource_names()
            name = None
            self._agree("plural", plural, self.plural)
        elif isinstance(name, str):
            name, group_of_name, version_of_name = _parse_name(name)
        self._agree("group", group, group_of_name, self.group)
        self._agree("version", version, version_of_name, self.version)
        if name is None or isinstance(name, str | Marker):
            object.__setattr__(self, "any_name", self.any_name if name is None else name)
        elif callable(name):
            object.__setattr__(self, "fn", name)
        else:
            raise TypeError(f"A resource is named by a string, kopf.EVERYTHING, or a function, got {name!r}.")
        self._check_names()

    def _agree(self, field: str, *values: str | None) -> None:
        """Accept repetitions (by position, in the name, by keyword), and refuse contradictions."""
        given = [*dict.fromkeys(value for value in values if value is not None)]
        if len(given) > 1:
            said = " & ".join(map(repr, given))
            raise TypeError(f"The {field} of the resource is specified several times, and differently: {said}.")
        object.__setattr__(self, field, given[0] if given else None)

    def _check_names(self) -> None:
        names: list[object] = [self.kind, self.plural, self.singular, self.shortcut, self.category, self.any_name]
        names.append(self.fn)
        given = [name for name in names if name is not None]
        if any(name == "" for name in given):
            raise TypeError("The name of a resource cannot be empty.")
        if not given:
            raise TypeError(
                "The handler's resource is not specified: give a name (plural, singular, kind, or short name), "
                "or kopf.EVERYTHING."
            )
        if len(given) > 1:
            raise TypeError(f"The resource must be specified by only one name, got several: {given!r}.")

    def __repr__(self) -> str:
        fields = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self) if field.compare)
        return f"Selector({', '.join(f'{name}={value!r}' for name, value in fields if value is not None)})"

    def __str__(self) -> str:
        """The specification in the notation of users."""
        api = "/".join(part for part in (self.group, self.version) if part)
        return f"{self._show_name()} of {api}" if api else self._show_name()

    def _show_name(self) -> str:
        if isinstance(self.any_name, str):
            return repr(self.any_name)
        if self.any_name is not None:
            return "kopf.EVERYTHING"
        if self.fn is not None:
            return describe_function(self.fn)
        names = (self.kind, self.plural, self.singular, self.shortcut, self.category)
        fields = zip(("kind", "plural", "singular", "shortcut", "category"), names, strict=True)
        return next(f"{field}={name!r}" for field, name in fields if name is not None)

    @property
    def is_specific(self) -> bool:
        """Whether it means one resource, and not several ones on purpose."""
        return self.category is None and self.fn is None and not isinstance(self.any_name, Marker)

    @property
    def can_be_defined(self) -> bool:
        """Whether such resources can appear while the operator runs: not in built-in groups."""
        return self.group is None or "." in self.group

    def check(self, resource: Resource) -> bool:
        """Tell if the resource matches, regardless of ambiguities."""
        if self.group is not None and self.group != resource.group:
            return False
        if self.version is not None:
            if self.version != resource.version:
                return False
        elif not resource.preferred:
            return False
        if self.fn is not None:
            return self.fn(resource)
        return self._check_name(resource)

    def _check_name(self, resource: Resource) -> bool:
        match self.any_name:
            case Marker.EVERYTHING:
                return resource != EVENTS and resource.name != "events.events.k8s.io"
            case str() as name:
                return name in (resource.kind, resource.plural, resource.singular) or name in resource.shortcuts
        return (
            (self.kind is not None and self.kind == resource.kind)
            or (self.plural is not None and self.plural == resource.plural)
            or (self.singular is not None and self.singular == resource.singular)
            or (self.shortcut is not None and self.shortcut in resource.shortcuts)
            or (self.category is not None and self.category in resource.categories)
        )

    def select(self, resources: Collection[Resource]) -> Collection[Resource]:
        """
        Pick the matching resources. For specific selectors, core v1 resources take precedence, as in ``kubectl``.

        If a specific selector matches several resources, it is ambiguous, and the caller must warn.
        """
        result = {resource for resource in resources if self.check(resource)}
        if self.is_specific and len(result) > 1:
            return {resource for resource in result if resource.group == "" and resource.version == "v1"} or result
        return result


def _parse_api(parts: list[str]) -> tuple[str | None, str | None]:
    match parts:
        case []:
            return None, None
        case ["v1"]:
            return "", "v1"
        case [str() as single]:
            group, slash, version = single.rpartition("/")
            return (group, version) if slash else (single, None)
        case [str() as group, str() as version]:
            return group, version
    raise TypeError(f"Too many parts of the API group & version: {parts!r}.")


def _parse_name(name: str) -> tuple[str, str | None, str | None]:
    """Split ``pods``, ``pods.v1``, ``deployments.apps``, ``deployments.v1.apps`` in the way of ``kubectl``."""
    plural, dot, rest = name.partition(".")
    if not dot:
        return name, None, None
    first, _, group = rest.partition(".")
    if rest == "v1":
        return plural, "", "v1"
    if _is_version(first):
        return plural, group, first
    return plural, rest, None


def _is_version(text: str) -> bool:
    """See "Versions in CustomResourceDefinitions" of the Kubernetes documentation, e.g. ``v1``, ``v2beta3``."""
    return re.fullmatch(r"v\d+((alpha|beta)\d+)?", text) is not None
