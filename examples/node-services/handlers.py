"""
What a maintenance of a node affects: the Services whose pods run there. An index leads to another one.

``pods_of_nodes`` tells the applications of a node, which are the keys of ``services_of_apps``. So the answer takes two
look-ups, and no list of all pods of the cluster.
"""

import kopf


def is_to_stay(meta, **_):
    return meta.deletion_timestamp is None


@kopf.index("pods", field="spec.nodeName", labels={"app": kopf.PRESENT}, when=is_to_stay)
def pods_of_nodes(namespace, name, labels, spec, **_):
    return {spec["nodeName"]: (namespace, name, labels["app"])}


@kopf.index("services", field="spec.selector.app")
def services_of_apps(namespace, name, spec, **_):
    return {(namespace, spec["selector"]["app"]): name}


@kopf.timer("maintenances", interval=10)
async def list_services(spec, status, patch, pods_of_nodes: kopf.Index, services_of_apps: kopf.Index, **_):
    services = find_services(spec["node"], pods_of_nodes, services_of_apps)
    if services != status.get("services"):
        patch.status["services"] = services


def find_services(node, pods_of_nodes, services_of_apps):
    """List the Services with pods on the node, as ``namespace/name``."""
    apps = {(namespace, app) for namespace, _, app in pods_of_nodes.get(node, [])}
    return sorted(f"{app[0]}/{name}" for app in apps for name in services_of_apps.get(app, []))
