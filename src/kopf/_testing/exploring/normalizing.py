"""
Objects without what differs every time: versions, timestamps, generated names, identifiers, how often it was retried.

Names and identifiers are replaced, not removed: what refers to another object, still does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

_VOLATILE = frozenset({"resourceVersion", "managedFields", "generation", "selfLink", "uid"})
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?")
_UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_NOT_COMPARED = ("touch-dummy", "kopf.dev/applied-digest")
"""How the annotations of the framework end that are not the same every time: digests are of the owner's uid, too."""
_PROGRESS = frozenset({"retries", "success", "failure"})
"""By which keys the records of the framework on the progress of a handler are recognised."""

Obj = Mapping[str, Any]
Labelled = tuple[str, Obj]
"""An object, and the name of its kind as in the journal."""


def normalize(objects: Iterable[Labelled]) -> dict[str, Any]:
    """Give the objects as they can be compared between runs, by what they are called there."""
    cleaned = [(resource, obj, _clean(obj)) for resource, obj in objects]
    aliases = _find_aliases(cleaned)
    replaced = [(resource, obj, _replace(content, aliases)) for resource, obj, content in cleaned]
    return {
        _name(resource, obj, aliases): content
        for resource, obj, content in sorted(replaced, key=lambda item: _name(item[0], item[1], aliases))
    }


def normalize_text(text: str) -> str:
    """Give a message as it can be compared between runs: with no times, identifiers, and numbers."""
    return re.sub(r"\d+", "0", _UID.sub("<uid>", _TIME.sub("<time>", text)))


def _name(resource: str, obj: Obj, aliases: Mapping[str, str]) -> str:
    metadata = obj["metadata"]
    name = aliases.get(metadata["name"], metadata["name"])
    return f"{resource} {metadata['namespace']}/{name}" if metadata.get("namespace") else f"{resource} {name}"


def _clean(obj: Obj) -> dict[str, Any]:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _VOLATILE}
    annotations = {
        key: _clean_annotation(value)
        for key, value in (metadata.pop("annotations", None) or {}).items()
        if not key.endswith(_NOT_COMPARED)
    }
    if annotations:
        metadata["annotations"] = annotations
    return {**_forget_progress(obj), "metadata": metadata}


def _clean_annotation(text: str) -> Any:
    """Forget when and how often it was tried, if it is a record of the framework; it is JSON in the annotation."""
    if not text.startswith("{"):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return _forget_progress(value) if isinstance(value, dict) else text


def _forget_progress(value: Any) -> Any:
    if isinstance(value, list):
        return [_forget_progress(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if value.keys() >= _PROGRESS:
        return {key: value[key] for key in ("success", "failure")}
    return {key: _forget_progress(item) for key, item in value.items() if key != "observedGeneration"}


def _find_aliases(cleaned: Iterable[tuple[str, Obj, Obj]]) -> dict[str, str]:
    """Tell how to call what has another name every time: generated names and identifiers of existing objects."""
    items = list(cleaned)
    aliases: dict[str, str] = {}
    counts: dict[tuple[str, str], int] = {}
    for resource, obj, _ in sorted(items, key=lambda item: (item[0], _make_key(item[1], item[2]))):
        metadata = obj["metadata"]
        prefix = metadata.get("generateName")
        if prefix and metadata["name"].startswith(prefix):
            counts[resource, prefix] = number = counts.get((resource, prefix), 0) + 1
            aliases[metadata["name"]] = f"{prefix}<{number}>"
    for resource, obj, _ in items:
        if uid := obj["metadata"].get("uid"):
            aliases[uid] = f"<uid of {_name(resource, obj, aliases)}>"
    return aliases


def _make_key(obj: Obj, content: Obj) -> str:
    """Order the objects by what they are, whatever name was generated for them and whenever they were made."""
    text = json.dumps(content, sort_keys=True).replace(obj["metadata"]["name"], "")
    return _TIME.sub("", _UID.sub("", text))


def _replace(content: Obj, aliases: Mapping[str, str]) -> Any:
    text = json.dumps(content)
    for name, alias in aliases.items():
        text = text.replace(name, alias)
    return json.loads(_UID.sub("<uid>", _TIME.sub("<time>", text)))
