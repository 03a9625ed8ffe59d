"""
Teams have quotas, which are divided equally among their namespaces: those with the label ``example.com/team``.

In each of these namespaces, there is a ResourceQuota. It is a child of the Team.
"""

import kopf

TEAM = "example.com/team"


@kopf.index("namespaces", labels={TEAM: kopf.PRESENT}, when=lambda meta, **_: meta.deletion_timestamp is None)
def namespaces_by_team(labels, name, **_):
    return {labels[TEAM]: name}


@kopf.reconcile("teams", owns="resourcequotas", interval=10)
async def divide(name, spec, status, patch, namespaces_by_team: kopf.Index, **_):
    namespaces = sorted(namespaces_by_team.get(name, ()))
    for namespace in namespaces:
        share = {
            "limits.cpu": f"{spec['cores'] * 1000 // len(namespaces)}m",
            "limits.memory": f"{spec['gigabytes'] * 1024 // len(namespaces)}Mi",
        }
        yield {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "team", "namespace": namespace},
            "spec": {"hard": share},
        }
    if status.get("namespaces") != namespaces:
        patch.status["namespaces"] = namespaces
