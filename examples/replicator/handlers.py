"""
Secrets with the annotation ``example.com/copy-to: "team-* staging"`` are copied to all namespaces of these patterns.

Nothing is kept in the Secrets that are copied. Each copy knows the UID of its source by a label.
"""

import fnmatch

import kubernetes

import kopf

PATTERNS = "example.com/copy-to"
SOURCE = "example.com/copy-of"

kopf.needs("secrets", verbs=["get", "create", "patch", "delete"])  # for the copies


@kopf.index("namespaces", when=lambda meta, **_: meta.deletion_timestamp is None)
def namespaces(name, **_):
    return {name: True}


@kopf.index("secrets", annotations={PATTERNS: kopf.PRESENT})
def sources(uid, namespace, annotations, **_):
    return {uid: {"namespace": namespace, "patterns": annotations[PATTERNS].split()}}


@kopf.index("secrets")
def owners(namespace, name, labels, **_):
    return {(namespace, name): labels.get(SOURCE, "somebody else")}


# By raw events and timers: the handlers of changes would keep the data of the Secret in its annotations.
@kopf.on.event("secrets", annotations={PATTERNS: kopf.PRESENT})
@kopf.timer("secrets", annotations={PATTERNS: kopf.PRESENT}, interval=60, optional=True)
async def copy(uid, name, body, namespaces, sources, owners, logger, **_):
    for target in list(namespaces):
        if is_wanted(uid, target, sources):
            if (target, name) in owners and uid not in owners[target, name]:
                logger.warning(f"It is not copied to {target!r}: there is a Secret of that name already.")
                continue
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": target, "labels": {SOURCE: uid}},
                "type": body["type"],
                "data": dict(body.get("data", {})),
            }
            await kopf.apply(secret, is_owned=False, force=True)


# The copies look after themselves: so it does not matter how and when they have lost their source.
@kopf.timer("secrets", labels={SOURCE: kopf.PRESENT}, interval=60, optional=True)
def remove_lost(name, namespace, labels, sources, **_):
    if not is_wanted(labels[SOURCE], namespace, sources):
        try:
            kubernetes.client.CoreV1Api().delete_namespaced_secret(name, namespace)
        except kubernetes.client.ApiException as e:
            if e.status != 404:
                raise


def is_wanted(uid, target, sources):
    """Tell if that source is to have a copy in that namespace."""
    return any(
        target != source["namespace"] and any(fnmatch.fnmatchcase(target, pattern) for pattern in source["patterns"])
        for source in sources.get(uid, ())
    )
