import datetime
import uuid

import kopf
import kubernetes


@kopf.on.create("widgets")
def create_fn(name, namespace, **_):
    suffix = uuid.uuid4().hex[:6]  # expect: random-name
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"{name}-{suffix}"}, "spec": {}}
    kopf.adopt(job)
    try:
        kubernetes.client.BatchV1Api().create_namespaced_job(namespace, job)
    except kubernetes.client.ApiException as e:
        if e.status != 409:
            raise


@kopf.on.update("widgets")
def update_fn(name, **_):
    kopf.apply(make_backup(name))


def make_backup(name):
    backup = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
    backup["metadata"]["name"] = f"{name}-{datetime.datetime.now():%H%M%S}"  # expect: random-name
    return backup


@kopf.on.resume("widgets")
def resume_fn(name, **_):
    kopf.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": name}})  # expect: random-name
