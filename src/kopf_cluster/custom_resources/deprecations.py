"""
Deprecated versions of custom resources: whoever asks for them is warned.

See "Version deprecation" in "Versions in CustomResourceDefinitions".
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kopf_cluster.custom_resources.specification import Version
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.kinds.registry import version_priority
from kopf_cluster.statuses import FieldError, invalid_value

_MAX_WARNING: Final = 256


def validate(version: Version, path: str) -> Iterator[FieldError]:
    text, path = version.deprecationWarning, f"{path}.deprecationWarning"
    if text is None:
        return
    if not version.deprecated:
        yield invalid_value(path, text, "can only be set for deprecated versions")
        return
    if len(text.encode()) > _MAX_WARNING:
        yield invalid_value(path, text, f"must be <= {_MAX_WARNING} characters long")
    if not text:
        yield invalid_value(path, text, "must not be an empty string")
    for index, char in enumerate(text):
        if not char.isprintable():
            yield invalid_value(path, text, "must only contain printable UTF-8 characters; "
                                            f"non-printable character found at index {len(text[:index].encode())}")
            return


def warn(definition: Obj, version: Obj) -> tuple[str, ...]:
    """Give the warnings about a version: its own one, or that there is a better version."""
    if not version.get("deprecated"):
        return ()
    if version.get("deprecationWarning"):
        return (version["deprecationWarning"],)
    spec = definition["spec"]
    group, kind = spec["group"], spec["names"]["kind"]
    text = f"{group}/{version['name']} {kind} is deprecated"
    better = [other["name"] for other in spec["versions"] if other.get("served") and not other.get("deprecated")
              and version_priority(other["name"]) < version_priority(version["name"])]
    return (f"{text}; use {group}/{min(better, key=version_priority)} {kind}" if better else text,)
