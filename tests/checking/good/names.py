"""What differs from call to call, where it may."""
import datetime
import random
import time
import uuid

import kopf


@kopf.on.create("widgets")
def create_fn(status, patch, name, logger, **_):
    token = status.get("phase") or uuid.uuid4().hex
    patch.status["phase"] = token
    kopf.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-{token}"}})
    logger.info(f"Done at {datetime.datetime.now(datetime.UTC)}.")


@kopf.on.update("widgets")
def update_fn(patch, spec, **_):
    started = time.monotonic()
    patch.status["phase"] = f"Updated at {datetime.datetime.now()} in {time.monotonic() - started} s."
    patch.spec["size"] = max(1, spec.get("size", 0))
    if random.random() < 0.1:
        raise kopf.TemporaryError("Later.", delay=random.randint(1, 10))


@kopf.timer("widgets", interval=86400)
def backup_fn(name, **_):
    today = datetime.date.today().isoformat()
    kopf.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"{name}-{today}"}})


@kopf.on.event("widgets")
def event_fn(status, patch, **_):
    if "seen" not in status:
        patch.status["seen"] = int(time.time())
    patch.status["phase"] = "Seen"
