"""
Volumes in two versions: v1beta1 has the size only, v1 has the class of the storage, too. They are stored as v1.

What v1beta1 has no place for is kept in an annotation: clients of v1beta1 that read and write the object lose nothing.
"""

import os
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

import kopf

CLASS = "example.com/storage-class"

Gigabytes = Annotated[int, Meta(ge=1, le=1000)]


@dataclass
class BetaSpec:
    size: Gigabytes


class BetaVolume(
    kopf.CustomResource[BetaSpec, dict[str, Any]], group="example.com", version="v1beta1", kind="Volume", storage=False
):
    """A volume, as it was in the beginning."""


@dataclass
class Storage:
    gigabytes: Gigabytes
    className: str = "standard"


@dataclass
class VolumeSpec:
    storage: Storage


class Volume(kopf.CustomResource[VolumeSpec, dict[str, Any]], group="example.com", version="v1"):
    """A volume."""


@kopf.convert(Volume, "v1beta1", "v1")
def upgrade(obj):
    class_name = obj["metadata"].get("annotations", {}).pop(CLASS, "standard")
    obj["spec"] = {"storage": {"gigabytes": obj["spec"]["size"], "className": class_name}}
    return obj


@kopf.convert(Volume, "v1", "v1beta1")
def downgrade(obj):
    storage = obj["spec"]["storage"]
    obj["metadata"].setdefault("annotations", {})[CLASS] = storage["className"]
    obj["spec"] = {"size": storage["gigabytes"]}
    return obj


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", port=int(os.environ.get("WEBHOOK_PORT", "9443")))
    settings.admission.managed = "volumes.example.com"  # the conversion is managed, too


@kopf.reconcile(Volume, owns="persistentvolumeclaims")
async def claim(spec: VolumeSpec, **_):
    """However the object was written, handlers see it as v1."""
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": spec.storage.className,
            "resources": {"requests": {"storage": f"{spec.storage.gigabytes}Gi"}},
        },
    }
