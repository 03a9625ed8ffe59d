"""
Queues of jobs: for each message in the queue, there is a Job, which gets the message as an environment variable.

A message is acknowledged when its Job is in the cluster. If the operator dies in between, the message comes again,
and is for the same Job: so there are neither lost nor doubled Jobs.
"""

import broker

import kopf

kopf.needs("jobs.batch", verbs=["get", "create", "patch"])


@kopf.daemon("jobqueues", cancellation_timeout=10, backoff=kopf.exponential(initial=1, maximum=60))
async def run_jobs(name, spec, logger, **_):
    async with broker.subscribe(spec["queue"], consumer=name) as messages:
        logger.info(f"Waiting for messages in {spec['queue']!r}.")
        async for message in messages:
            await kopf.apply(make_job(f"{name}-{message.id}", spec["image"], message.text))
            await messages.acknowledge(message)


def make_job(name, image, message):
    container = {"name": "main", "image": image, "env": [{"name": "MESSAGE", "value": message}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "ttlSecondsAfterFinished": 3600,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }
