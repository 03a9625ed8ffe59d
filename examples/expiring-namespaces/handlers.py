"""Namespaces with the annotation ``example.com/lives-for: 8h`` are deleted when they have lived for so long."""

import datetime
import re

import kubernetes

import kopf

LIFETIME = "example.com/lives-for"
UNITS = {"m": "minutes", "h": "hours", "d": "days"}

kopf.needs("namespaces", verbs=["delete"])


@kopf.timer("namespaces", annotations={LIFETIME: kopf.PRESENT}, interval=60, optional=True)
def expire(name, uid, meta, annotations, logger, **_):
    found = re.fullmatch(r"([0-9]+)([mhd])", annotations[LIFETIME])
    if found is None:
        logger.warning(
            f"It is to live for a number of minutes, hours, or days: 30m, 8h, 7d; not {annotations[LIFETIME]}."
        )
        return

    lifetime = datetime.timedelta(**{UNITS[found[2]]: int(found[1])})
    born = datetime.datetime.fromisoformat(meta["creationTimestamp"])
    if datetime.datetime.now(datetime.UTC) - born >= lifetime and not meta.deletion_timestamp:
        logger.info(f"It is deleted, as it has lived for {annotations[LIFETIME]}.")
        # Only this very namespace: not a new one of the same name.
        kubernetes.client.CoreV1Api().delete_namespace(name, body={"preconditions": {"uid": uid}})
