"""The operator of ``kopf demo``: each Shop gets a domain, which costs money, a Deployment, a Service, and backups."""

import datetime
import os
from collections.abc import AsyncIterator

import kopf

DAY = 24 * 60 * 60.0


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: object) -> None:
    """Take over from a killed replica in seconds: by default, its Lease ends after 15."""
    settings.coordination.retry_period = 0.5
    settings.coordination.renew_deadline = 2
    settings.coordination.lease_duration = 3


@kopf.on.create("shops")
def buy_domain(name: str, logger: kopf.Logger, **_: object) -> str:
    """Spend money: this must not happen twice. The receipts are a file outside of the cluster."""
    domain = f"{name}.example.com"
    with open(os.environ["KOPF_DEMO_RECEIPTS"], "a") as receipts:
        print(domain, file=receipts)
    logger.info(f"Bought {domain} for $12.")  # noqa: G004
    return domain


@kopf.reconcile("shops", owns=["deployments", "services"])
async def serve(name: str, spec: kopf.Spec, **_: object) -> AsyncIterator[dict[str, object]]:
    """Declare the children. Kopf creates, repairs, and deletes them."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": spec["image"]}]}}
    yield make("apps/v1", "Deployment", replicas=spec["replicas"], selector={"matchLabels": labels}, template=template)
    yield make("v1", "Service", selector=labels, ports=[{"port": 80}])


@kopf.timer("shops", interval=DAY, initial_delay=DAY)
async def back_up(patch: kopf.Patch, logger: kopf.Logger, **_: object) -> None:
    """Back up the shop once a day."""
    day = datetime.datetime.now().strftime("%A")  # noqa: DTZ005
    logger.info(f"Backed up on {day}.")  # noqa: G004
    patch.status["backup"] = day


def make(api_version: str, kind: str, **spec: object) -> dict[str, object]:
    """Make a child, which gets the name and the namespace of its owner."""
    return {"apiVersion": api_version, "kind": kind, "spec": spec}
