"""
Places: which object a path of the API is about.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)


class ObjectPlace(NamedTuple):
    """An object; without the name, all objects of the kind in the namespace or in the cluster."""

    resource: str
    """The plural name with the group."""
    namespace: str
    name: str

    def __str__(self) -> str:
        path = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.resource} {path}".strip()


def parse_path(path: str) -> ObjectPlace | None:
    """Tell which object the path is about, or its subresource; ``None`` if it is about none."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    namespace, plural, name = match["namespace"] or "", match["plural"], match["name"] or ""
    if namespace and plural in ("status", "finalize") and not name and not match["group"]:
        namespace, plural, name = "", "namespaces", namespace  # of the namespace itself
    return ObjectPlace(f"{plural}.{match['group']}" if match["group"] else plural, namespace, name)
