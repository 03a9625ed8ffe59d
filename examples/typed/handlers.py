"""
Backups of volumes: a Job every now and then.

Everything has its types: the types of the spec and the status are also the schema of the resource.
"""

import datetime
from typing import Annotated, Any

import msgspec

import kopf

kopf.needs("jobs.batch", verbs=["get", "create", "patch"])


class BackupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What is to be backed up, and how often."""

    claim_name: str
    """The claim of the volume."""
    every: kopf.Duration = kopf.Duration("24h")
    image: str = "example.com/backup:1"
    memory: kopf.Quantity = kopf.Quantity("100Mi")
    attempts: Annotated[int, msgspec.Meta(ge=1, le=10)] = 3


class BackupStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What was done."""

    count: int = 0
    last: datetime.datetime | None = None


class Backup(
    kopf.CustomResource[BackupSpec, BackupStatus],
    group="example.com",
    version="v1",
    columns={"Claim": ".spec.claimName", "Every": ".spec.every", "Last": ".status.last"},
):
    """Backups of one volume."""


@kopf.timer(Backup, interval=60)
async def back_up(name: str, spec: BackupSpec, status: BackupStatus, patch: kopf.Patch, **_: Any) -> None:
    now = datetime.datetime.now(datetime.UTC)
    if status.last is None or now - status.last >= spec.every.value:
        number = status.count + 1
        await kopf.apply(make_job(f"{name}-{number}", spec))  # the same one if the operator dies before it is counted
        patch.status.update({"count": number, "last": now.isoformat()})


def make_job(name: str, spec: BackupSpec) -> dict[str, Any]:
    container = {
        "name": "backup",
        "image": spec.image,
        "resources": {"limits": {"memory": spec.memory}},
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
    }
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": spec.claim_name, "readOnly": True}}
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": spec.attempts - 1, "ttlSecondsAfterFinished": 86400, "template": {"spec": pod}},
    }
