"""
Manifests: the objects to send to the API, as dicts or as objects of other client libraries.

All of them are edited in the same way, by the names of the fields as in the API.
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

from kopf._values import codec
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


Manifest = MutableMapping[Any, Any] | KubernetesModel
"""One object (or a nested structure with its own metadata, e.g. a pod template) that can be modified."""


def get_meta(manifest: Manifest, key: str) -> Any:
    """Get a field of the metadata, by its API name; ``None`` if there is none."""
    meta = get_field(manifest, "metadata")
    return None if meta is None else _to_plain(get_field(meta, key))


def set_meta(manifest: Manifest, key: str, value: Any) -> None:
    """Set a field of the metadata, which is created if it is not there; ``None`` removes the field."""
    meta = get_field(manifest, "metadata")
    if meta is None and value is None:
        return
    if meta is None:
        meta = {} if isinstance(manifest, MutableMapping) else _find_class(manifest, "metadata")()
        _set_field(manifest, "metadata", meta)
    if key == "ownerReferences" and value is not None and _is_model(meta):
        cls = _find_class(meta, key)
        value = [_from_plain(cls, item) for item in value]
    _set_field(meta, key, value)


def open_manifests(objs: K8sObjects) -> list[Manifest]:
    """
    Prepare one or many objects for editing.

    Raises :class:`TypeError` for anything that cannot be edited as a Kubernetes object.
    """
    return [_open(obj) for obj in list_objects(objs)]


def list_objects(objs: K8sObjects) -> list[K8sObject]:
    """List the objects, whether one or many are given."""
    # The models of the newest clients are also iterable.
    if isinstance(objs, Iterable) and not isinstance(objs, (str, bytes, Mapping)) and not _is_model(objs):
        return list(objs)
    return [objs]  # type: ignore[list-item]


def _open(obj: object) -> Manifest:
    if isinstance(obj, MutableMapping) or _is_model(obj):
        return obj
    if _is_pykube(obj):
        return obj.obj
    if isinstance(obj, Mapping):
        raise TypeError(
            f"{type(obj).__name__} is read-only and cannot be modified. To change the object that is being "
            f"handled, use the `patch` argument of the handler; to make a child of it, make a dict."
        )
    raise TypeError(
        f"{type(obj).__name__} is not supported as a Kubernetes object. Use dicts, "
        f"or the objects of the clients `kubernetes`, `kubernetes_asyncio`, `pykube-ng`."
    )


def to_plain(obj: K8sObject) -> dict[str, Any]:
    """
    Make a dict of the object, with the names of the fields as in the API; the object itself is not shared with it.

    Raises :class:`TypeError` for anything that is not a Kubernetes object.
    """
    if type(obj) is dict:
        try:
            return codec.decode(codec.encode(obj))  # type: ignore[no-any-return]
        except TypeError:
            pass  # there are models inside of it
    _open(obj)
    return codec.decode(codec.encode(_to_plain(obj.obj if _is_pykube(obj) else obj)))  # type: ignore[no-any-return]


def _is_model(obj: object) -> TypeGuard[KubernetesModel]:
    cls = type(obj)
    return hasattr(cls, "openapi_types") and hasattr(cls, "attribute_map")


def _is_pykube(obj: object) -> TypeGuard[PykubeObject]:
    # If the library is not imported by now, then nobody could have made its objects.
    module = sys.modules.get("pykube.objects")
    return module is not None and isinstance(obj, module.APIObject)


def list_nested(obj: object, path: FieldPath) -> Iterator[Manifest]:
    """List the structures at the path: none if it is absent, many if there are lists on it."""
    if obj is None:
        return
    elif isinstance(obj, (list, tuple)):
        for item in obj:
            yield from list_nested(item, path)
    elif not path:
        yield _open(obj)
    elif isinstance(obj, Mapping) or _is_model(obj):
        yield from list_nested(get_field(obj, path[0]), path[1:])
    else:
        raise TypeError(f"No nested field {'.'.join(path)!r} is possible inside of {type(obj).__name__}.")


def get_field(obj: Mapping[Any, Any] | KubernetesModel, key: str) -> Any:
    """Get a field of the object itself, by its API name; ``None`` if there is none."""
    if isinstance(obj, Mapping):
        return obj.get(key)
    attribute = _find_attribute(obj, key)
    return None if attribute is None else getattr(obj, attribute)


def _set_field(obj: MutableMapping[Any, Any] | KubernetesModel, key: str, value: Any) -> None:
    if not isinstance(obj, MutableMapping):
        setattr(obj, _require_attribute(obj, key), value)
    elif value is not None:
        obj[key] = value
    else:
        obj.pop(key, None)


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
        return {name: _to_plain(item) for name, item in plain.items() if item is not None}
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in value.items()}
    return value


def _from_plain(cls: Any, value: Mapping[str, Any]) -> Any:
    return cls(**{attribute: value.get(name) for attribute, name in cls.attribute_map.items()})


def name_object(obj: Mapping[str, Any]) -> str:
    """Name the object in messages: the kind, the namespace if there is one, and the name."""
    metadata = obj["metadata"]
    namespace = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{obj.get('kind')} {namespace}{metadata.get('name')}"
