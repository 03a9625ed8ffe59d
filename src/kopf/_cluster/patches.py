"""
The three ways to patch an object: plain functions from the old JSON document to the new one.

The old document is never modified, and the parts that a patch does not touch are shared by both: that makes
patches cheap and comparisons of the old and the new documents cheaper.

* JSON merge-patch: RFC 7386.
* JSON-patch: RFC 6902, by the ``jsonpatch`` library.
* Strategic merge-patch: Kubernetes' own, for built-in kinds only; lists are merged by their keys
  (see "Update API Objects in Place Using kubectl patch" and "strategic-merge-patch" of the API conventions).
"""
from __future__ import annotations

from typing import Any, Final

import jsonpatch
import jsonpointer

from . import codec, statuses

MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

MAX_OPERATIONS: Final = 10_000  # as in kube-apiserver


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge-patch as in RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge_patch(result.get(key), value)
        else:
            result[key] = value
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """Apply a JSON-patch as in RFC 6902; refuse as kube-apiserver does: 400 for no patch, 422 for a misfit."""
    if not isinstance(operations, list) or not all(isinstance(item, dict) for item in operations):
        raise statuses.bad_request("json: cannot unmarshal the body into a JSON-patch, a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise statuses.too_large("The allowed maximum operations in a JSON patch is "
                                 f"{MAX_OPERATIONS}, got {len(operations)}")
    copy = codec.decode(codec.encode(target))  # several times faster than a deep copy
    try:
        return jsonpatch.JsonPatch(operations).apply(copy, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError, ValueError):
        raise statuses.unprocessable() from None


# The merge keys of the lists in built-in kinds by the name of the field, and what tells apart the same names.
_MERGE_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "resourceClaims": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
    "webhooks": ("name",),
}
_MERGED_SCALARS: Final = frozenset({"finalizers"})
_ORDER, _DROP, _RETAIN = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys"


def strategic_patch(target: Any, patch: Any) -> Any:
    """Apply a strategic merge-patch to a built-in object."""
    if not isinstance(patch, dict):
        raise statuses.bad_request("a strategic merge-patch must be a JSON object")
    return _merge_mapping(target if isinstance(target, dict) else {}, patch)


def _merge_mapping(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise statuses.bad_request(f"Unknown patch directive: {directive}")
    result = dict(target)
    if isinstance(retained := patch.get(_RETAIN), list):
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_DROP) and isinstance(value, list):
            field = key.removeprefix(_DROP)
            result[field] = [item for item in result.get(field) or [] if item not in value]
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            old = result.get(key)
            result[key] = _merge_mapping(old if isinstance(old, dict) else {}, value)
        elif isinstance(value, list):
            result[key] = _merge_list(key, result.get(key), value)
        else:
            result[key] = value
    for key, value in patch.items():
        if key.startswith(_ORDER) and isinstance(value, list):
            field = key.removeprefix(_ORDER)
            if isinstance(result.get(field), list):
                result[field] = _reorder(field, result[field], value)
    return result


def _merge_list(field: str, old: Any, patch: list[Any]) -> list[Any]:
    items: list[Any] = list(old) if isinstance(old, list) else []
    if field in _MERGED_SCALARS:
        return items + [item for item in patch if item not in items]
    if any(isinstance(item, dict) and item == {"$patch": "replace"} for item in patch):
        return [item for item in patch if item != {"$patch": "replace"}]
    merge_key = _find_merge_key(field, [*items, *patch])
    if merge_key is None:
        return patch
    for item in patch:
        if merge_key not in item:
            raise statuses.bad_request(f"map: {codec.encode(item).decode()} does not contain declared merge key: "
                                       f"{merge_key}")
        places = [place for place, other in enumerate(items) if other.get(merge_key) == item[merge_key]]
        if item.get("$patch") == "delete":
            items = [other for place, other in enumerate(items) if place not in places]
        elif places:
            items[places[0]] = _merge_mapping(items[places[0]], item)
        else:
            items.append(_merge_mapping({}, item))
    return items


def _find_merge_key(field: str, items: list[Any]) -> str | None:
    if not all(isinstance(item, dict) for item in items):
        return None
    for key in _MERGE_KEYS.get(field, ()):
        if any(key in item for item in items):
            return key
    return None


def _reorder(field: str, items: list[Any], order: list[Any]) -> list[Any]:
    """Put the named items in the wanted order; the others keep their places after what they followed."""
    key = _find_merge_key(field, items)
    ranks: dict[str, int] = {}
    for rank, item in enumerate(order):
        ranks.setdefault(_identity(item, key), rank)
    positions = [place for place, item in enumerate(items) if _identity(item, key) in ranks]
    sorted_items = sorted((items[place] for place in positions), key=lambda item: ranks[_identity(item, key)])
    result = list(items)
    for place, item in zip(positions, sorted_items, strict=True):
        result[place] = item
    return result


def _identity(item: Any, key: str | None) -> str:
    return repr(item.get(key)) if key is not None and isinstance(item, dict) else repr(item)
