"""
The objects that tests give: as much of them as matters for the test. What an object must have besides, is made up.

It is always the same, so that tests can rely on it: ``default/example`` of the kind that the handler is declared for.
"""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Mapping
from typing import Any

import yaml

from kopf._kits.hierarchies import CLUSTER_SCOPED_KINDS
from kopf._values import codec
from kopf._values.objects import KubeObject
from kopf._values.patches import thaw
from kopf._values.resources import Resource
from kopf._values.selectors import Selector

GivenObject = Mapping[str, Any] | str | pathlib.Path
"""An object, or a part of it: as a dict, as a text in YAML, or as a file with it."""

NAME = "example"
NAMESPACE = "default"
UID = "00000000-0000-0000-0000-000000000001"
GROUP, VERSION = "example.com", "v1"


def read_object(given: GivenObject | None) -> dict[str, Any]:
    """Read what is given. Raises :class:`ValueError` if it is not one object."""
    if given is None:
        return {}
    document: Mapping[str, Any] = given if isinstance(given, Mapping) else _read_yaml(given)
    content: dict[str, Any] = codec.decode(codec.encode(thaw(document)))  # with no dates & suchlike: JSON has none
    return content


def _read_yaml(given: str | pathlib.Path) -> Mapping[str, Any]:
    text = given.read_text() if isinstance(given, pathlib.Path) else given
    match [document for document in yaml.safe_load_all(text) if document]:
        case [dict() as document]:
            return document
        case documents:
            raise ValueError(f"There must be one object in the YAML, not {len(documents)} documents: {given!r}.")


def guess_resource(content: Mapping[str, Any], selector: Selector | None) -> Resource:
    """Tell of which resource the object is, by what it says of itself, and by what the handler is declared for."""
    group, _, version = str(content.get("apiVersion") or "").rpartition("/")
    names = () if selector is None else (selector.plural, selector.singular, selector.kind, selector.any_name)
    name = next((item for item in names if isinstance(item, str)), "Example")
    kind = str(content.get("kind") or (name if name[:1].isupper() else name.removesuffix("s").capitalize()))
    plural = name if name.islower() and name.endswith("s") else f"{kind.lower()}s"
    if not version:
        group = GROUP if selector is None or selector.group is None else selector.group
        version = VERSION if selector is None or selector.version is None else selector.version
    is_namespaced = (group, kind) not in CLUSTER_SCOPED_KINDS
    return Resource(group, version, plural, kind, kind.lower(), namespaced=is_namespaced)


def complete(content: Mapping[str, Any], resource: Resource, *, is_deleted: bool = False) -> dict[str, Any]:
    """Add what is missing: the kind, the names, the uid; and the time of the deletion if the object is deleted."""
    given = content.get("metadata") or {}
    metadata = {"name": NAME, "namespace": NAMESPACE, "uid": UID, **given}
    if resource.namespaced is False and "namespace" not in given:
        del metadata["namespace"]
    if is_deleted:
        metadata.setdefault("deletionTimestamp", datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
    return {"apiVersion": resource.api_version, "kind": resource.kind, **content, "metadata": metadata}


def complete_previous(previous: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Make the previous state of the same object of what is given of it."""
    identity = {key: content["metadata"].get(key) for key in ("name", "namespace", "uid")}
    metadata = {**identity, **(previous.get("metadata") or {})}
    return {"apiVersion": content["apiVersion"], "kind": content["kind"], **previous, "metadata": metadata}


def make_object(content: Mapping[str, Any]) -> KubeObject:
    """Make the object as it would arrive from the API. Raises :class:`ValueError` if its metadata are malformed."""
    return KubeObject.from_json(codec.encode(content))
