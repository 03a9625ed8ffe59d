"""
The metadata of objects, as in `ObjectMeta` of ``meta/v1``: the fields that clients may set.
"""
from __future__ import annotations

from typing import Final

DEFINITION: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
"""The name of the definition with the types."""

KNOWN_METADATA: Final = frozenset({
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers", "ownerReferences",
    "managedFields"})
"""The fields that metadata can have; the link to the object is not kept any more."""
