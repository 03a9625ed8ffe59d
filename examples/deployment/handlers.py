"""An operator to be deployed: for every KopfExample, it runs a job, and keeps its result in a volume."""

import kubernetes

import kopf

# What is done by the client library: for `kopf rbac` & `kopf manifests`, and for the check at the start.
kopf.needs("persistentvolumeclaims", verbs=["create"])
kopf.needs("jobs.batch", verbs=["create"])


@kopf.on.create("kopf.dev", "v1", "kopfexamples")
def create_fn(body, name, namespace, spec, **_):
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{name}-results"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{name}-job"},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "main", "image": "busybox", "command": ["sleep", str(spec.get("duration", 1))]}
                    ],
                }
            }
        },
    }
    kopf.adopt([claim, job])
    create_unless_exists(kubernetes.client.CoreV1Api().create_namespaced_persistent_volume_claim, namespace, claim)
    create_unless_exists(kubernetes.client.BatchV1Api().create_namespaced_job, namespace, job)
    kopf.info(body, reason="Started", message=f"The job {name}-job is started.")
    return {"job": job["metadata"]["name"]}


@kopf.on.delete("kopf.dev", "v1", "kopfexamples")
def delete_fn(logger, **_):
    logger.info("The job and its results will be deleted by Kubernetes, as this object owns them.")


def create_unless_exists(create, namespace, body):
    # The handler can be retried when something is created already, e.g. if the pod was killed in the middle.
    try:
        create(namespace, body)
    except kubernetes.client.ApiException as e:
        if e.status != 409:
            raise
