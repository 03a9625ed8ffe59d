"""Manifests: the objects that deploy an operator in production: its roles, deployment, services, and so on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._handlers.handlers import DaemonHandler
from kopf._handlers.registry import OperatorRegistry
from kopf._packaging.rules import Rule
from kopf._serving.endpoints import READINESS_PATH
from kopf._settings.coordination import CoordinationSettings
from kopf._settings.settings import OperatorSettings
from kopf._values.permissions import make_rule
from kopf._values.reasons import Activity
from kopf._values.records import FrozenRecord

Obj = dict[str, Any]
Files = dict[str, list[Obj]]
"""The objects by the names of the files for them, with no extensions."""

EXTRAS = ("pdb", "network-policy", "service-monitor")
"""The optional manifests."""

NAMESPACE_VARIABLE = "POD_NAMESPACE"
"""The environment variable with the namespace of the pod."""
_NAME_VARIABLE = "POD_NAME"

_RBAC_GROUP = "rbac.authorization.k8s.io"

_PORT = 8080
"""The port of the health and the metrics."""
_WEBHOOK_PORT = 9443
_NOBODY = 65534
_GRACE_PERIOD = 60
"""The default time for a pod to stop, in seconds."""
_OWN_EXIT_TIME = 12
"""How long the framework can take to exit after the handlers, in seconds; see docs/command-line.md."""
_ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}


class Package(FrozenRecord, frozen=True, kw_only=True):
    """The source of the manifests."""

    name: str
    """The name of the operator, and of its service account, its roles, and so on."""
    namespace: str
    """The namespace of its pods and of its service account."""
    arguments: Sequence[str]
    """The options of ``kopf run`` for it, without those of its health and metrics."""
    rules: Sequence[Rule]
    definitions: Sequence[Obj]
    registry: OperatorRegistry
    settings: OperatorSettings
    image: str = ""
    sources: Sequence[str] = ()
    """The files and modules of the operator in the image, as arguments of ``kopf run``."""
    extras: frozenset[str] = frozenset()
    replicas: int = 1


def make_objects(package: Package) -> Files:
    """Make all objects, by their files, in the order of their application; some files can have no objects."""
    roles = make_roles(package.rules, package.name)
    has_budget = "pdb" in package.extras or package.replicas > 1
    return {
        "crds": [*package.definitions],
        "serviceaccount": [_make(package, "v1", "ServiceAccount", {})],
        "rbac": [*roles, *make_bindings(roles, package)],
        "deployment": [_make(package, "apps/v1", "Deployment", {"spec": _make_deployment(package)})],
        "service": _make_services(package),
        "poddisruptionbudget": [_make_budget(package)] if has_budget else [],
        "networkpolicy": [_make_network_policy(package)] if "network-policy" in package.extras else [],
        "servicemonitor": [_make_monitor(package)] if "service-monitor" in package.extras else [],
    }


def _make(package: Package, api_version: str, kind: str, content: Mapping[str, Any], name: str | None = None) -> Obj:
    metadata = {"name": name or package.name, "namespace": package.namespace, "labels": _make_labels(package)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def _make_labels(package: Package) -> dict[str, str]:
    return {"app.kubernetes.io/name": package.name}


def _make_deployment(package: Package) -> Obj:
    arguments = ["kopf", "run", *package.sources, *package.arguments, f"--liveness=http://0.0.0.0:{_PORT}/healthz"]
    if "service-monitor" in package.extras:
        arguments.append(f"--metrics=http://0.0.0.0:{_PORT}/metrics")
    ports: list[Obj] = [{"name": "health", "containerPort": _PORT}]
    probe: Obj = {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3}
    container: Obj = {
        "name": "operator",
        "image": package.image,
        "command": arguments,
        "env": [_make_variable(NAMESPACE_VARIABLE, "metadata.namespace")],
        "ports": ports,
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, **probe},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    if (webhooks := _find_webhook_server(package)) is not None:
        ports.append({"name": "webhooks", "containerPort": webhooks[2]})
        container["readinessProbe"] = {"tcpSocket": {"port": "webhooks"}, **probe}
    is_replicated = package.settings.coordination.mode is not None
    if is_replicated:
        container["env"].append(_make_variable(_NAME_VARIABLE, "metadata.name"))
        # The probe of webhooks comes first: a replica that cannot renew its Lease can still answer reviews.
        container.setdefault("readinessProbe", {"httpGet": {"path": READINESS_PATH, "port": "health"}, **probe})
    pod = {
        "serviceAccountName": package.name,
        "terminationGracePeriodSeconds": get_grace_period(package.registry, package.settings.coordination),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}],
    }
    return {
        "replicas": package.replicas,
        # Two operators would handle everything twice, so the old pod must be gone before the new one comes. Replicas
        # know of each other; the old ones stay until the new ones can take over.
        "strategy": _ROLLING if is_replicated else {"type": "Recreate"},
        "selector": {"matchLabels": _make_labels(package)},
        "template": {"metadata": {"labels": _make_labels(package)}, "spec": pod},
    }


def _make_variable(name: str, path: str) -> Obj:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def get_grace_period(registry: OperatorRegistry, coordination: CoordinationSettings) -> int:
    """
    Return how long a pod can take to stop, in seconds: at least as long as the slowest daemon and the cleanup handlers.

    A replica also needs time to hand over its objects before that.
    """
    daemons = [handler for handler in registry.resources if isinstance(handler, DaemonHandler)]
    cancelling = [(item.cancellation_backoff or 0) + (item.cancellation_timeout or 0) for item in daemons]
    cleaning = sum(handler.timeout or 0 for handler in registry.get_activities(Activity.CLEANUP))
    draining = 0 if coordination.mode is None else coordination.drain_timeout
    return max(_GRACE_PERIOD, math.ceil(_OWN_EXIT_TIME + max(cancelling, default=0) + cleaning + draining))


def _find_webhook_server(package: Package) -> tuple[str, int, int] | None:
    """Return the name and the port of the service of webhooks, and the port of the pod; ``None`` if there is none."""
    from kopf._admission.servers.service import WebhookServiceServer

    server = package.settings.admission.server
    if not isinstance(server, WebhookServiceServer):
        return None
    return server.name, server.service_port or 443, server.port or _WEBHOOK_PORT


def _make_services(package: Package) -> list[Obj]:
    ports: dict[str, list[Obj]] = {}
    if (webhooks := _find_webhook_server(package)) is not None:
        ports.setdefault(webhooks[0], []).append({"name": "webhooks", "port": webhooks[1], "targetPort": "webhooks"})
    if "service-monitor" in package.extras:
        ports.setdefault(package.name, []).append({"name": "metrics", "port": _PORT, "targetPort": "health"})
    return [
        _make(package, "v1", "Service", {"spec": {"selector": _make_labels(package), "ports": items}}, name)
        for name, items in ports.items()
    ]


def _make_budget(package: Package) -> Obj:
    # With one pod, anything stricter would hold the maintenance of nodes forever.
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _make_labels(package)}}
    return _make(package, "policy/v1", "PodDisruptionBudget", {"spec": spec})


def _make_network_policy(package: Package) -> Obj:
    webhooks = _find_webhook_server(package)
    ports = ["health", *(["webhooks"] if webhooks is not None else [])]
    spec = {
        "podSelector": {"matchLabels": _make_labels(package)},
        "policyTypes": ["Ingress"],  # the API server and the peers of the handlers are unknown here
        "ingress": [{"ports": [{"protocol": "TCP", "port": port} for port in ports]}],
    }
    return _make(package, "networking.k8s.io/v1", "NetworkPolicy", {"spec": spec})


def _make_monitor(package: Package) -> Obj:
    spec = {"selector": {"matchLabels": _make_labels(package)}, "endpoints": [{"port": "metrics"}]}
    return _make(package, "monitoring.coreos.com/v1", "ServiceMonitor", {"spec": spec})


def merge_rules(rules: Sequence[Rule]) -> list[Obj]:
    """Make the items of ``rules`` for one role; rules that differ only in the resources are merged."""
    merged: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for rule in rules:
        merged.setdefault((rule.group, rule.verbs, rule.names), []).append(rule.resource)
    return [make_rule(group, resources, verbs, names) for (group, verbs, names), resources in merged.items()]


def make_roles(rules: Sequence[Rule], name: str) -> list[Obj]:
    """Make the roles: one for each namespace, and one for the whole cluster, if they have any rules."""
    return [
        _make_role(namespace, "Role", name, rules=merge_rules([rule for rule in rules if rule.namespace == namespace]))
        for namespace in sorted({rule.namespace for rule in rules})
    ]


def make_bindings(roles: Sequence[Obj], package: Package) -> list[Obj]:
    """Make the bindings that give the roles to the service account."""
    subject = {"kind": "ServiceAccount", "name": package.name, "namespace": package.namespace}
    return [
        _make_role(
            role["metadata"].get("namespace", ""),
            "RoleBinding",
            package.name,
            roleRef={"apiGroup": _RBAC_GROUP, "kind": role["kind"], "name": package.name},
            subjects=[subject],
        )
        for role in roles
    ]


def _make_role(namespace: str, kind: str, name: str, **content: Any) -> Obj:
    prefix = "" if namespace else "Cluster"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{_RBAC_GROUP}/v1", "kind": f"{prefix}{kind}", "metadata": metadata, **content}
