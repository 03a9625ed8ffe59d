"""
Scales: the view of an object in the subresource ``scale``, and the paths of its values in the object.

They are the same for built-in kinds and for custom ones with these paths in their definitions: see "Scale
subresource" in "Extend the Kubernetes API with CustomResourceDefinitions". The kind is `Scale` of ``autoscaling/v1``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from kopf_cluster import codec, statuses
from kopf_cluster.statuses import FieldError

Obj: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]

API_VERSION: Final = "autoscaling/v1"
KIND: Final = "Scale"

_OPERATORS: Final = {"In": "in", "NotIn": "notin"}
_SHOWN: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


@dataclasses.dataclass(frozen=True, slots=True)
class ScalePaths:
    """The paths of the numbers of replicas, and of the selector of the pods, if there is one."""

    spec: Path
    status: Path
    selector: Path = ()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> ScalePaths:
        """Read them from the definition of a custom kind."""
        return cls(
            *(
                tuple(filter(None, (raw.get(name) or "").split(".")))
                for name in ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
            )
        )


BUILTIN: Final = ScalePaths(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))
"""The paths in all built-in kinds that can be scaled."""


SCALE: Final = statuses.Naming(group="autoscaling", kind=KIND, plural="scales")


def show(obj: Obj, paths: ScalePaths, default: int | None = None) -> Obj:
    """Return the scale of an object; without a number of replicas or a default, raise the refusal."""
    replicas = codec.dig(obj, *paths.spec)
    replicas = default if replicas is None else replicas
    if replicas is None:
        raise statuses.internal(f"the spec replicas field {statuses.quoted('.' + '.'.join(paths.spec))} does not exist")
    status: Obj = {"replicas": codec.dig(obj, *paths.status) or 0}
    if selector := _show_selector(codec.dig(obj, *paths.selector) if paths.selector else None):
        status["selector"] = selector
    metadata = {name: obj["metadata"][name] for name in _SHOWN if name in obj["metadata"]}
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": metadata,
        "spec": {"replicas": replicas},
        "status": status,
    }


def take(scale: Any, obj: Obj, paths: ScalePaths) -> Obj:
    """Return the object with the number of replicas of the scale; refuse a wrong one."""
    spec = (scale.get("spec") or {}) if isinstance(scale, dict) else None
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if type(replicas) is not int or not -(2**31) <= replicas < 2**31:
        raise statuses.bad_request(
            f'{KIND} in version "v1" cannot be handled as a {KIND}: json: cannot unmarshal '
            "the replicas into Go struct field ScaleSpec.spec.replicas of type int32"
        )
    if replicas < 0:
        error: FieldError = statuses.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise statuses.invalid(SCALE, obj["metadata"]["name"], [error])
    metadata = scale.get("metadata")
    known = (
        {name: metadata[name] for name in ("resourceVersion", "uid") if metadata.get(name)}
        if isinstance(metadata, dict)
        else {}
    )
    return {**_put(obj, paths.spec, replicas), "metadata": {**obj["metadata"], **known}}


def _put(obj: Any, path: Path, value: Any) -> Obj:
    inner = obj if isinstance(obj, dict) else {}
    name, *rest = path
    return {**inner, name: _put(inner.get(name), tuple(rest), value) if rest else value}


def _show_selector(selector: Any) -> str:
    """Show a selector as a text: it is a text in custom kinds, a map or a LabelSelector in built-in kinds."""
    if not isinstance(selector, dict):
        return selector if isinstance(selector, str) else ""
    has_parts = not {"matchLabels", "matchExpressions"}.isdisjoint(selector)
    labels = (selector.get("matchLabels") or {}) if has_parts else selector
    parts = [f"{key}={value}" for key, value in sorted(labels.items())]
    for item in (selector.get("matchExpressions") or ()) if has_parts else ():
        match item.get("operator"):
            case "In" | "NotIn" as operator:
                parts.append(f"{item['key']} {_OPERATORS[operator]} ({','.join(sorted(item.get('values') or ()))})")
            case "DoesNotExist":
                parts.append(f"!{item['key']}")
            case _:
                parts.append(str(item.get("key")))
    return ",".join(parts)
