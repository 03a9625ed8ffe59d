"""
Manifests: the objects that are to be sent to the API, as dicts or as objects of other client libraries.

All of them are edited in the same way via :class:`Manifest`, by the names of the fields as in the API.
The libraries are not imported and not even needed: their objects are recognised by how they look.

- Dicts & other mutable mappings, and their nested ones.
- The resource models of the official clients (``kubernetes``, ``kubernetes_asyncio``): they declare
  ``openapi_types`` & ``attribute_map``, i.e. the types and the API names of their attributes.
- The objects of ``pykube-ng``: they keep the whole object in the dict ``.obj``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, Protocol, TypeGuard

from kopf._values.fields import FieldPath


class KubernetesModel(Protocol):
    """A resource model of the official client libraries."""

    openapi_types: ClassVar[dict[str, str]]
    attribute_map: ClassVar[dict[str, str]]


class PykubeObject(Protocol):
    """An object of ``pykube-ng``: any descendant of ``pykube.objects.APIObject``."""

    api: Any
    obj: dict[str, Any]


K8sObject = MutableMapping[Any, Any] | KubernetesModel | PykubeObject
K8sObjects = K8sObject | Iterable[K8sObject]


class Manifest(Protocol):
    """One object (or a nested structure with its own metadata, e.g. a pod template) that can be modified."""

    def get(self, key: str) -> Any:
        """Get a field of the object itself, by its API name; ``None`` if there is none."""

    def get_meta(self, key: str) -> Any:
        """Get a field of the metadata, by its API name; ``None`` if there is none."""

    def set_meta(self, key: str, value: Any) -> None:
        """Set a field of the metadata, which is created if it is not there; ``None`` removes the field."""

    def nested(self, path: FieldPath) -> Iterator[Manifest]:
        """Go through the nested structures: none if the path is absent, many if there are lists on it."""


class DictManifest:
    """A manifest in a mutable mapping."""

    def __init__(self, obj: MutableMapping[Any, Any]) -> None:
        self._obj = obj

    def get(self, key: str) -> Any:
        return self._obj.get(key)

    def get_meta(self, key: str) -> Any:
        return (self._obj.get("metadata") or {}).get(key)

    def set_meta(self, key: str, value: Any) -> None:
        if value is not None:
            if self._obj.get("metadata") is None:
                self._obj["metadata"] = {}
            self._obj["metadata"][key] = value
        elif self._obj.get("metadata"):
            self._obj["metadata"].pop(key, None)

    def nested(self, path: FieldPath) -> Iterator[Manifest]:
        return _walk(self._obj, path)


class ModelManifest:
    """A manifest in a model of the official client."""

    def __init__(self, obj: KubernetesModel) -> None:
        self._obj = obj

    def get(self, key: str) -> Any:
        return _get_attribute(self._obj, key)

    def get_meta(self, key: str) -> Any:
        meta = _get_attribute(self._obj, "metadata")
        value = None if meta is None else _get_attribute(meta, key)
        return _to_plain(value)

    def set_meta(self, key: str, value: Any) -> None:
        meta = _get_attribute(self._obj, "metadata")
        if meta is None:
            meta = _find_class(self._obj, "metadata")()
            _set_attribute(self._obj, "metadata", meta)
        if key == "ownerReferences" and value is not None:
            cls = _find_class(meta, key)
            value = [_from_plain(cls, item) for item in value]
        _set_attribute(meta, key, value)

    def nested(self, path: FieldPath) -> Iterator[Manifest]:
        return _walk(self._obj, path)


def open_manifests(objs: K8sObjects) -> list[Manifest]:
    """
    Prepare one or many objects for editing.

    Raises :class:`TypeError` for anything that cannot be edited as a Kubernetes object.
    """
    if _is_single(objs):
        return [_open(objs)]
    if isinstance(objs, Iterable) and not isinstance(objs, (str, bytes, Mapping)):
        return [_open(obj) for obj in objs]
    return [_open(objs)]  # which raises


def _open(obj: object) -> Manifest:
    if isinstance(obj, MutableMapping):
        return DictManifest(obj)
    if _is_model(obj):
        return ModelManifest(obj)
    if _is_pykube(obj):
        return DictManifest(obj.obj)
    if isinstance(obj, Mapping):
        raise TypeError(
            f"{type(obj).__name__} is read-only and cannot be modified. To change the object that is being "
            f"handled, use the `patch` argument of the handler; to make a child of it, make a dict."
        )
    raise TypeError(
        f"{type(obj).__name__} is not supported as a Kubernetes object. Use dicts, "
        f"or the objects of the clients `kubernetes`, `kubernetes_asyncio`, `pykube-ng`."
    )


def _is_single(obj: object) -> bool:
    # The models of the newest clients are also iterable, so they are to be recognised before the collections.
    return isinstance(obj, MutableMapping) or _is_model(obj) or _is_pykube(obj)


def _is_model(obj: object) -> TypeGuard[KubernetesModel]:
    cls = type(obj)
    return hasattr(cls, "openapi_types") and hasattr(cls, "attribute_map")


def _is_pykube(obj: object) -> TypeGuard[PykubeObject]:
    # If the library is not imported by now, then nobody could have made its objects.
    module = sys.modules.get("pykube.objects")
    return module is not None and isinstance(obj, module.APIObject)


def _walk(obj: object, path: FieldPath) -> Iterator[Manifest]:
    if obj is None:
        return
    elif isinstance(obj, (list, tuple)):
        for item in obj:
            yield from _walk(item, path)
    elif not path:
        yield _open(obj)
    elif _is_model(obj):
        yield from _walk(_get_attribute(obj, path[0]), path[1:])
    elif isinstance(obj, Mapping):
        yield from _walk(obj.get(path[0]), path[1:])
    else:
        raise TypeError(f"No nested field {'.'.join(path)!r} is possible inside of {type(obj).__name__}.")


def _get_attribute(model: KubernetesModel, key: str) -> Any:
    attribute = _find_attribute(model, key)
    return None if attribute is None else getattr(model, attribute)


def _set_attribute(model: KubernetesModel, key: str, value: Any) -> None:
    setattr(model, _require_attribute(model, key), value)


def _find_class(model: KubernetesModel, key: str) -> Any:
    """Find the class of a field in the same library where the class of the model comes from."""
    declared = model.openapi_types[_require_attribute(model, key)]
    class_name = declared.rpartition("[")[2].rstrip("]")  # both X and List[X]
    origin = next(cls for cls in type(model).__mro__ if "openapi_types" in vars(cls))
    package, _, _ = origin.__module__.rpartition(".")
    return getattr(sys.modules[package], class_name)


def _find_attribute(model: KubernetesModel, key: str) -> str | None:
    return next((attribute for attribute, name in model.attribute_map.items() if name == key), None)


def _require_attribute(model: KubernetesModel, key: str) -> str:
    attribute = _find_attribute(model, key)
    if attribute is None:
        raise TypeError(f"{type(model).__name__} has no field {key!r}, so it is not a Kubernetes object.")
    return attribute


def _to_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_plain(item) for item in value]
    if _is_model(value):
        plain = {name: getattr(value, attribute) for attribute, name in value.attribute_map.items()}
        return {name: item for name, item in plain.items() if item is not None}
    return value


def _from_plain(cls: Any, value: Mapping[str, Any]) -> Any:
    return cls(**{attribute: value.get(name) for attribute, name in cls.attribute_map.items()})
