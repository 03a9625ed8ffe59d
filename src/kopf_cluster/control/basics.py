"""
The initial objects of every cluster besides the namespaces.

These are the service of the API; in each namespace, the default service account and the certificate of the cluster's
authority; and the default roles with their bindings. The roles follow "Using RBAC Authorization" ("Default roles
and role bindings"), without the roles of control plane components, as there are none. Each rule is a line:
``verbs | API group | resources``, where a dash is the core group.
"""

from __future__ import annotations

import functools
from typing import Final

from kopf_cluster.access.authorizing import GROUP
from kopf_cluster.control.loops import ControlLoop, Objects
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.store.watch_cache import Change

ROOT_CA: Final = "kube-root-ca.crt"
SERVICE_ACCOUNT: Final = "default"
CLUSTER_IP: Final = "10.96.0.1"

_SLICES: Final = "endpointslices.discovery.k8s.io"
_CLUSTER_ROLES: Final = f"clusterroles.{GROUP}"
_CLUSTER_BINDINGS: Final = f"clusterrolebindings.{GROUP}"


class Basics(ControlLoop):
    """Creates the default objects of every namespace, recreates deleted ones, and restores the certificate."""

    def __init__(self, access: Objects, *, ca: str, port: int) -> None:
        super().__init__(access)
        self._ca = ca
        self._port = port

    def observe(self, bucket: str, change: Change) -> None:
        namespace, name = change.record.key
        if bucket == "namespaces" and change.type == "ADDED" and not change.record.deleting:
            self.objects.queue.add(self._complete, name)
        elif ((bucket, name) == ("configmaps", ROOT_CA) and change.type != "ADDED") or (
            (bucket, name) == ("serviceaccounts", SERVICE_ACCOUNT) and change.type == "DELETED"
        ):
            self.objects.queue.add(self._complete, namespace)

    def _complete(self, namespace: str) -> None:
        for bucket, body in (
            ("configmaps", self._make_root_ca()),
            ("serviceaccounts", {"metadata": {"name": SERVICE_ACCOUNT}}),
        ):
            if not self.objects.has(bucket, (namespace, body["metadata"]["name"])):
                self.objects.create(bucket, namespace, body)
        self.objects.update("configmaps", (namespace, ROOT_CA), self._restore_root_ca)

    def _restore_root_ca(self, old: Obj) -> Obj:
        """Restore only the data and the description, as the real publisher does; the rest belongs to others."""
        made, metadata = self._make_root_ca(), old["metadata"]
        annotations = {**made["metadata"]["annotations"], **(metadata.get("annotations") or {})}
        return {**old, "data": made["data"], "metadata": {**metadata, "annotations": annotations}}

    def _make_root_ca(self) -> Obj:
        note = "The certificate of the authority of the local cluster, to verify its API by."
        return {
            "metadata": {"name": ROOT_CA, "annotations": {"kubernetes.io/description": note}},
            "data": {"ca.crt": self._ca},
        }

    def create_initial(self) -> None:
        """Create the service of the API, the default roles, and the components; complete the existing namespaces."""
        for bucket, made in (
            (_CLUSTER_ROLES, cluster_roles()),
            (_CLUSTER_BINDINGS, cluster_role_bindings()),
        ):
            for role in made:
                self.objects.create(bucket, "", role)
        for namespace in [record.key[1] for record in self.objects.records("namespaces") if not record.deleting]:
            self._complete(namespace)
        labels = {"component": "apiserver", "provider": "kubernetes"}
        self.objects.create(
            "services",
            "default",
            {
                "metadata": {"name": "kubernetes", "labels": labels},
                "spec": {
                    "clusterIP": CLUSTER_IP,
                    "clusterIPs": [CLUSTER_IP],
                    "type": "ClusterIP",
                    "ipFamilies": ["IPv4"],
                    "ipFamilyPolicy": "SingleStack",
                    "internalTrafficPolicy": "Cluster",
                    "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": self._port}],
                },
            },
        )
        port = {"name": "https", "port": self._port, "protocol": "TCP"}
        slice_ = {
            "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4",
            "ports": [port],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        }
        endpoints = {
            "metadata": {"name": "kubernetes"},
            "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": [port]}],
        }
        for bucket, body in ((_SLICES, slice_), ("endpoints", endpoints)):
            if self.objects.create(bucket, "default", body) is None:  # from before the restart, of another port
                self.objects.update(bucket, ("default", "kubernetes"), functools.partial(_replace, body))
        for name in ("controller-manager", "etcd-0", "scheduler"):
            healthy = {"type": "Healthy", "status": "True", "message": "ok"}
            self.objects.create("componentstatuses", "", {"metadata": {"name": name}, "conditions": [healthy]})


def _replace(body: Obj, old: Obj) -> Obj:
    return {**old, **body, "metadata": old["metadata"]}


_READ: Final = "get list watch"
_WRITE: Final = "create delete deletecollection patch update"
_ALL: Final = f"{_WRITE} {_READ}"

_WORKLOADS: Final = """
| - | configmaps endpoints persistentvolumeclaims pods serviceaccounts services
| - | replicationcontrollers replicationcontrollers/scale
| apps | controllerrevisions daemonsets deployments deployments/scale replicasets replicasets/scale
| apps | statefulsets statefulsets/scale
| autoscaling | horizontalpodautoscalers
| batch | cronjobs jobs
| policy | poddisruptionbudgets
| networking.k8s.io | ingresses networkpolicies
"""

_VIEW: Final = f"""
{_WORKLOADS}
| - | persistentvolumeclaims/status services/status bindings events limitranges namespaces/status pods/log pods/status
| - | replicationcontrollers/status resourcequotas resourcequotas/status namespaces
| discovery.k8s.io | endpointslices
| apps | daemonsets/status deployments/status replicasets/status statefulsets/status
| autoscaling | horizontalpodautoscalers/status
| batch | cronjobs/status jobs/status
| policy | poddisruptionbudgets/status
| networking.k8s.io | ingresses/status
"""

_EDIT: Final = f"""
{_READ} | - | pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy
impersonate | - | serviceaccounts
{_WRITE} | - | pods pods/attach pods/exec pods/portforward pods/proxy
create | - | pods/eviction serviceaccounts/token
{_WRITE} | - | configmaps events persistentvolumeclaims secrets serviceaccounts services services/proxy
{_WRITE} | - | replicationcontrollers replicationcontrollers/scale
{_WRITE} | apps | daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale
{_WRITE} | apps | statefulsets statefulsets/scale
{_WRITE} | autoscaling | horizontalpodautoscalers
{_WRITE} | batch | cronjobs jobs
{_WRITE} | policy | poddisruptionbudgets
{_WRITE} | networking.k8s.io | ingresses networkpolicies
{_ALL} | coordination.k8s.io | leases
"""

_ADMIN: Final = f"""
create | authorization.k8s.io | localsubjectaccessreviews
{_ALL} | {GROUP} | roles rolebindings
"""

_BASIC_USER: Final = """
create | authorization.k8s.io | selfsubjectaccessreviews selfsubjectrulesreviews
create | authentication.k8s.io | selfsubjectreviews
"""

_AUTH_DELEGATOR: Final = """
create | authentication.k8s.io | tokenreviews
create | authorization.k8s.io | subjectaccessreviews
"""

_PUBLIC_PATHS: Final = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY_PATHS: Final = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
]
_MONITORING_PATHS: Final = [
    "/healthz",
    "/healthz/*",
    "/livez",
    "/livez/*",
    "/metrics",
    "/metrics/slis",
    "/readyz",
    "/readyz/*",
]
_ISSUER_PATHS: Final = [
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
]

_SUBJECTS: Final = {
    "cluster-admin": ("system:masters",),
    "system:basic-user": ("system:authenticated",),
    "system:discovery": ("system:authenticated",),
    "system:monitoring": ("system:monitoring",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
}


def cluster_roles() -> list[Obj]:
    """Return the default cluster roles, without the fields that the server sets on every creation."""
    return [
        _role(
            "cluster-admin",
            [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}],
        ),
        _aggregated("admin"),
        _aggregated("edit", aggregate_to="admin"),
        _aggregated("view", aggregate_to="edit"),
        _role("system:aggregate-to-admin", _rules(_ADMIN), aggregate_to="admin"),
        _role("system:aggregate-to-edit", _rules(_EDIT), aggregate_to="edit"),
        _role("system:aggregate-to-view", _rules(_VIEW), aggregate_to="view"),
        _role("system:auth-delegator", _rules(_AUTH_DELEGATOR)),
        _role("system:basic-user", _rules(_BASIC_USER)),
        _role("system:discovery", _paths(_DISCOVERY_PATHS)),
        _role("system:monitoring", _paths(_MONITORING_PATHS)),
        _role("system:public-info-viewer", _paths(_PUBLIC_PATHS)),
        _role("system:service-account-issuer-discovery", _paths(_ISSUER_PATHS)),
    ]


def cluster_role_bindings() -> list[Obj]:
    """Return the default bindings of the default cluster roles to groups."""
    return [
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": _metadata(name),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
        }
        for name, groups in _SUBJECTS.items()
    ]


def _metadata(name: str, aggregate_to: str = "") -> Obj:
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    if aggregate_to:
        labels[f"{GROUP}/aggregate-to-{aggregate_to}"] = "true"
    return {"name": name, "labels": labels, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}}


def _role(name: str, rules: list[Obj], aggregate_to: str = "") -> Obj:
    metadata = _metadata(name, aggregate_to)
    return {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}


def _aggregated(name: str, aggregate_to: str = "") -> Obj:
    selector = {"matchLabels": {f"{GROUP}/aggregate-to-{name}": "true"}}
    return {**_role(name, [], aggregate_to), "aggregationRule": {"clusterRoleSelectors": [selector]}}


def _rules(text: str) -> list[Obj]:
    rules: list[Obj] = []
    for line in filter(None, text.splitlines()):
        verbs, group, resources = (part.split() for part in line.split("|"))
        rules.append(
            {"verbs": verbs or _READ.split(), "apiGroups": ["" if group == ["-"] else group[0]], "resources": resources}
        )
    return rules


def _paths(paths: list[str]) -> list[Obj]:
    return [{"verbs": ["get"], "nonResourceURLs": paths}]
