"""
Ephemeral volume claims: volumes that live only as long as the claims for them.

For every EphemeralVolumeClaim (EVC), the operator creates a PersistentVolumeClaim (PVC) as its child,
keeps its size and labels the same as the parent's, and lets Kubernetes delete it with the parent.
"""

import pathlib

import kubernetes
import yaml

import kopf

TEMPLATE = pathlib.Path(__file__).with_name("pvc.yaml").read_text()


@kopf.on.create("ephemeralvolumeclaims")
def create_pvc(name, namespace, spec, logger, **_):
    size = spec.get("size")
    if not size:
        raise kopf.PermanentError(f"The size must be set in the spec. Got {size!r}.")

    pvc = yaml.safe_load(TEMPLATE.format(name=name, size=size))
    kopf.adopt(pvc)  # so that it is in the same namespace, and is deleted with its parent

    api = kubernetes.client.CoreV1Api()
    try:
        created = api.create_namespaced_persistent_volume_claim(namespace=namespace, body=pvc)
    except kubernetes.client.ApiException as e:
        # If the operator was killed right after the creation, it is called again after the restart.
        if e.status != 409:
            raise
        created = api.read_namespaced_persistent_volume_claim(namespace=namespace, name=name)

    logger.info(f"PVC is created: {created.metadata.name}")
    return {"pvc-name": created.metadata.name}


@kopf.on.update("ephemeralvolumeclaims", field="spec.size")
def resize_pvc(namespace, new, status, logger, **_):
    if not new:
        raise kopf.PermanentError(f"The size must be set in the spec. Got {new!r}.")

    patch_pvc(namespace, status, {"spec": {"resources": {"requests": {"storage": new}}}})
    logger.info(f"PVC is resized: {new}")


@kopf.on.update("ephemeralvolumeclaims", field="metadata.labels")
def relabel_pvc(namespace, diff, status, logger, **_):
    # Only what has changed in the parent is changed in the child: other labels of the child are not ours.
    # In patches, None removes a field; and exactly so are the removed fields represented in the diffs.
    labels = {field[0]: new for _, field, _, new in diff if field}
    if not labels:  # all labels at once
        [(_, _, old, new)] = diff
        labels = {**dict.fromkeys(old or {}), **(new or {})}

    patch_pvc(namespace, status, {"metadata": {"labels": labels}})
    logger.info(f"PVC is relabelled: {labels}")


def patch_pvc(namespace, status, patch):
    if "create_pvc" not in status:
        raise kopf.PermanentError("There is no PVC for this claim, since its creation has failed.")
    api = kubernetes.client.CoreV1Api()
    api.patch_namespaced_persistent_volume_claim(namespace=namespace, name=status["create_pvc"]["pvc-name"], body=patch)
