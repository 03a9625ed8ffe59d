"""
Strategic merge-patches: merge-patches that know how each list of a built-in kind is merged, and obey directives.

Lists are merged by keys, or as sets of values, or replaced as a whole: the structure of the kind tells which. The
order of merged lists is that of the patch first; what only the server has keeps its place before what it was before.
See "Update API Objects in Place Using kubectl patch", and "strategic-merge-patch" of the API conventions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from kopf_cluster import codec, statuses
from kopf_cluster.kinds.structures import Structure

Obj: TypeAlias = dict[str, Any]

_DIRECTIVE: Final = "$patch"
_DELETED: Final = object()
_ORDER, _DROP, _RETAIN = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys"


def strategic_patch(target: Any, patch: Any, structure: Structure | None) -> Any:
    """Apply a strategic merge-patch to an object of the structure. The result shares the untouched parts."""
    if not isinstance(patch, dict):
        raise statuses.bad_request("a strategic merge-patch must be a JSON object")
    return _merge_map(target if isinstance(target, dict) else {}, patch, structure)


def _merge_map(target: Obj, patch: Obj, structure: Structure | None) -> Obj:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return _without_directives(patch)
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise statuses.bad_request(f"Unknown patch directive: {directive}")
    result = dict(target)
    if isinstance(retained := patch.get(_RETAIN), list):
        names = _rank(retained, "")
        result = {key: value for key, value in result.items() if _identify(key, "") in names}
    for key, value in _values(patch, _DROP):
        dropped = _rank(value, "")
        result[key] = [item for item in result.get(key) or [] if _identify(item, "") not in dropped]
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value, _inside(structure, key))
    for key, order in _values(patch, _ORDER):
        if isinstance(items := result.get(key), list):
            field = _inside(structure, key)
            merge_key = field.merge_key if field is not None else ""
            result[key] = _reorder(items, order, _as_list(target.get(key)), merge_key)
    return result


def _without_directives(patch: Obj) -> Obj:
    return {key: _settle(value) for key, value in patch.items() if value is not None and not key.startswith("$")}


def _values(patch: Obj, prefix: str) -> Iterator[tuple[str, list[Any]]]:
    for key, value in patch.items():
        if key.startswith(prefix) and isinstance(value, list):
            yield key.removeprefix(prefix), value


def _inside(structure: Structure | None, name: str) -> Structure | None:
    """Return the structure of a field, if it is known; other fields are merged as they come."""
    if structure is None:
        return None
    return structure.items if structure.shape == "map" else structure.fields.get(name)


def _merge(old: Any, value: Any, structure: Structure | None) -> Any:
    strategies = structure.patch_strategies if structure is not None else ()
    if isinstance(value, dict):
        if "replace" in strategies:
            return _settle(value)
        return _merge_map(old if isinstance(old, dict) else {}, value, structure)
    if isinstance(value, list) and "merge" in strategies and structure is not None:
        return _merge_list(_as_list(old), value, structure)
    return _settle(value)


def _merge_list(old: list[Any], patch: list[Any], structure: Structure) -> list[Any]:
    if not any(isinstance(item, dict) for item in (*old, *patch)):
        known = _rank(old, "")
        added = [patch[place] for name, place in _rank(patch, "").items() if name not in known]
        return _reorder([*old, *added], patch, old, "")
    key = structure.merge_key
    if not key:
        raise statuses.bad_request(f"cannot merge lists without merge key for type {structure.go_type}")
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and item.get(_DIRECTIVE) == "replace")]
    items: list[Any] = list(old)
    places: dict[str, list[int]] = {}
    for place, other in enumerate(items):
        places.setdefault(_identify(other, key), []).append(place)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise statuses.bad_request(f"map: {codec.encode(item).decode()} does not contain declared merge key: {key}")
        name = _identify(item, key)
        if item.get(_DIRECTIVE) == "delete":
            for place in places.pop(name, ()):
                items[place] = _DELETED
        elif name in places:
            items[places[name][0]] = _merge_map(items[places[name][0]], item, structure.items)
        else:
            places[name] = [len(items)]
            items.append(_merge_map({}, item, structure.items))
    return _reorder([item for item in items if item is not _DELETED], patch, old, key)


def _reorder(items: list[Any], wanted: Sequence[Any], live: Sequence[Any], key: str) -> list[Any]:
    """Put the items in order: the wanted ones as they are wanted, the others where they were among them."""
    ranks = _rank(wanted, key)
    places = _rank(live, key)
    named = sorted(
        (item for item in items if _identify(item, key) in ranks), key=lambda item: ranks[_identify(item, key)]
    )
    others = [item for item in items if _identify(item, key) not in ranks]
    result: list[Any] = []
    mine, theirs = 0, 0
    while mine < len(named) and theirs < len(others):
        before, after = places.get(_identify(others[theirs], key)), places.get(_identify(named[mine], key))
        if before is not None and after is not None and before < after:
            result.append(others[theirs])
            theirs += 1
        else:
            result.append(named[mine])
            mine += 1
    return result + named[mine:] + others[theirs:]


def _rank(items: Sequence[Any], key: str) -> dict[str, int]:
    ranks: dict[str, int] = {}
    for rank, item in enumerate(items):
        ranks.setdefault(_identify(item, key), rank)
    return ranks


def _identify(item: Any, key: str) -> str:
    return repr(item.get(key)) if key and isinstance(item, dict) else repr(item)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _settle(value: Any) -> Any:
    """Return a part of a patch as it comes into an object: with no nulls and no directives."""
    if isinstance(value, dict):
        return _without_directives(value)
    return value
