"""Custom resources as classes: the names of the kind in the cluster, and the types of its parts."""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

from kopf._handlers.declarations import DeclarationError, find_class_place, find_function_place, put_place
from kopf._handlers.registry import get_default_registry
from kopf._models.decoding import decode, find_field, find_strangers, is_wanted, name_classes, read_annotations
from kopf._models.markers import ConditionItem, Rule
from kopf._models.structural import SchemaError
from kopf._models.typed_fields import strip_optional
from kopf._models.versions import ResourceDescription, make_version
from kopf._values.bodies import Meta
from kopf._values.fields import FieldPath
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.selectors import Decoder
from kopf._values.user_functions import get_function

SpecT = TypeVar("SpecT")
StatusT = TypeVar("StatusT")

_TYPED = ("spec", "status", "old", "new")


class CustomResource(Generic[SpecT, StatusT]):
    """
    The base class of models, which declare a kind of objects by types.

    Declare a model with ``class WebApp(kopf.CustomResource[WebAppSpec, WebAppStatus], group="example.com",
    version="v1")``. It stands for the resource in all decorators; ``kopf crd`` prints its definition. The types of the
    spec and the status are data classes, :class:`msgspec.Struct`, typed dicts, or models of pydantic; or
    ``dict[str, Any]`` for any content.

    An instance is an object with decoded parts: ``WebApp(body).spec``.

    :param body: the object, e.g. ``body`` of a handler.
    :raises kopf.ModelMismatchError: if the object does not fit the types.
    """

    resource: ClassVar[ResourceDescription]
    """The description of the kind."""
    has_conditions: ClassVar[bool]
    """Whether the status has the field ``conditions`` with the type :data:`kopf.ConditionList`."""
    _decoders: ClassVar[dict[str, Decoder]]

    metadata: Meta
    """The read-only metadata of the object."""
    spec: SpecT
    """The decoded spec."""
    status: StatusT
    """The decoded status."""

    def __init__(self, body: Mapping[str, Any], /) -> None:
        self.metadata = Meta(body)
        for name in ("spec", "status"):
            setattr(self, name, self._decode_stanza(body, name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.metadata.name!r}, spec={self.spec!r}, status={self.status!r})"

    def __init_subclass__(
        cls,
        *,
        group: str,
        version: str,
        kind: str | None = None,
        plural: str | None = None,
        singular: str | None = None,
        scope: Literal["Namespaced", "Cluster"] = "Namespaced",
        short_names: Sequence[str] = (),
        categories: Sequence[str] = (),
        columns: Mapping[str, str | Mapping[str, Any]] | None = None,
        scale: Sequence[str] | None = None,
        selectable: Collection[str] = (),
        rules: Sequence[Rule] = (),
        storage: bool = True,
        served: bool = True,
        deprecated: bool | str = False,
    ) -> None:
        """
        Declare the kind.

        :param group: the API group: a domain, e.g. ``"example.com"``.
        :param version: the API version, e.g. ``"v1"``.
        :param kind: the kind; by default, the name of the class.
        :param plural: the plural name; by default, made from the kind.
        :param singular: the singular name; by default, the kind in lowercase.
        :param scope: ``"Namespaced"`` or ``"Cluster"``.
        :param short_names: the short names for ``kubectl``.
        :param categories: the categories for ``kubectl``, e.g. ``"all"``.
        :param columns: the columns of ``kubectl get``: paths by titles, e.g. ``{"Size": ".spec.size"}``; or mappings
            with a ``jsonPath`` and other fields of a column.
        :param scale: the paths of the desired and the actual number of replicas, and optionally of the label selector.
        :param selectable: the paths for ``--field-selector``.
        :param rules: the validation rules for whole objects.
        :param storage: whether etcd stores this version; exactly one version of a kind has ``True``.
        :param served: whether the API serves this version.
        :param deprecated: whether this version is deprecated; a string is the warning for its users.
        :raises kopf.DeclarationError: if the declaration cannot work.

        Large because it takes all properties of a kind.
        """
        super().__init_subclass__()
        kind = kind or cls.__name__
        spec, status = _get_types(cls)
        cls._decoders = {}
        cls.resource = ResourceDescription(
            group=group,
            version=version,
            kind=kind,
            plural=plural or pluralise(kind.lower()),
            singular=singular or kind.lower(),
            scope=scope,
            short_names=tuple(short_names),
            categories=tuple(categories),
            columns=columns or {},
            scale=None if scale is None else tuple(scale),
            selectable=tuple(selectable),
            rules=tuple(rules),
            storage=storage,
            served=served,
            deprecated=deprecated,
            spec=spec,
            status=status,
            cls=cls,
        )
        try:
            make_version(cls.resource)  # to find all problems before anything runs
        except SchemaError as e:
            raise DeclarationError(put_place(find_class_place(e.cls), str(e))) from None
        except ValueError as e:
            raise DeclarationError.at_caller(f"{cls.__name__}: {e}") from None
        cls.has_conditions = strip_optional(find_field(status, ("conditions",))) == list[ConditionItem]
        get_default_registry().models.append(cls)

    @classmethod
    def get_resource_names(cls) -> tuple[str, str, str]:
        """Return the group, the version, and the plural name."""
        return cls.resource.group, cls.resource.version, cls.resource.plural

    @classmethod
    def fits(cls, body: Mapping[str, Any], stanza: str) -> bool:
        """Tell if the stanza (``spec`` or ``status``) of an object fits its type."""
        try:
            cls._decode_stanza(body, stanza)
        except ModelMismatchError:
            return False
        return True

    @classmethod
    def _decode_stanza(cls, body: Mapping[str, Any], name: str) -> Any:
        return decode(getattr(cls.resource, name), body.get(name) or {}, name=name, kind=cls.resource.title)

    @classmethod
    def find_decoders(cls, fn: Callable[..., Any], field: tuple[str, ...]) -> Mapping[str, Decoder]:
        """
        Find the decoders of the function's arguments by their annotations.

        If ``field`` is not empty, the old and the new values are values of this field. Raises
        :class:`kopf.DeclarationError` if the annotations are of another model, or cannot be resolved.
        """
        if not any(name in _TYPED for name in getattr(fn, "__annotations__", _TYPED)):
            return {}
        known: dict[str, Any] = {cls.__name__: cls}
        for hint in (cls.resource.spec, cls.resource.status, cls._get_hint("old", field)):
            known |= name_classes(hint)
        annotations = read_annotations(fn, _TYPED, known)
        found: dict[str, Decoder] = {}
        for name in _TYPED:
            annotation = annotations.get(name, Any)
            hint = cls._get_hint(name, field)
            if is_wanted(annotation, hint):
                found[name] = cls._get_decoder(name, field)
            elif strangers := find_strangers(annotation):
                text = f"{get_function(fn).__qualname__}() takes {name!r} as {' or '.join(strangers)}"
                expected = getattr(hint, "__name__", str(hint))
                problem = f"{text}, but for {cls.__name__} it is {expected}: annotate it so, or leave it out."
                raise DeclarationError(put_place(find_function_place(fn), problem))
        return found

    @classmethod
    def _get_hint(cls, name: str, field: FieldPath) -> Any:
        stanzas = {"spec": cls.resource.spec, "status": cls.resource.status}
        if name in stanzas:
            return stanzas[name]
        return find_field(stanzas.get(field[0], Any), field[1:]) if field else cls

    @classmethod
    def _get_decoder(cls, name: str, field: FieldPath) -> Decoder:
        """Get the decoder: the same one for all functions, so that they can share the decoded value."""
        hint = cls._get_hint(name, field)
        if hint is cls:
            whole: Decoder = cls
            return whole
        path = ".".join(field) if name in ("old", "new") else name
        if path not in cls._decoders:
            cls._decoders[path] = functools.partial(decode, hint, name=path, kind=cls.resource.title)
        return cls._decoders[path]


def _get_types(cls: type[Any]) -> tuple[Any, Any]:
    for base in getattr(cls, "__orig_bases__", ()):
        args = typing.get_args(base)
        if typing.get_origin(base) is CustomResource and not any(isinstance(item, TypeVar | str) for item in args):
            return args[0], args[1]
    raise DeclarationError.at_caller(
        f"{cls.__name__} must say what its spec and status are: kopf.CustomResource[{cls.__name__}Spec, "
        f"{cls.__name__}Status]; dict[str, Any] is for anything."
    )


def pluralise(noun: str) -> str:
    """Make the plural in the way of Kubernetes."""
    if re.search(r"(s|x|z|ch|sh)$", noun):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if re.search(r"[^aeiou]y$", noun) else f"{noun}s"
