"""
Which rules there are for which kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from kopf_cluster.statuses import FieldError
from kopf_cluster.validation import (
    admission_kinds,
    autoscaler_specs,
    claim_specs,
    config_data,
    networking,
    pod_specs,
    single_kinds,
    workload_specs,
)

Obj: TypeAlias = dict[str, Any]
Validator: TypeAlias = Callable[[Obj, Obj | None], Iterator[FieldError]]

# By the plural names, which are unique among built-in kinds.
_VALIDATORS: Final[Mapping[str, Validator]] = {
    "apiservices": single_kinds.validate_api_service,
    "clusterrolebindings": single_kinds.validate_binding,
    "clusterroles": single_kinds.validate_role,
    "configmaps": config_data.validate_config_map,
    "cronjobs": workload_specs.validate_cron_job,
    "daemonsets": workload_specs.validate_daemon_set,
    "deployments": workload_specs.validate_deployment,
    "horizontalpodautoscalers": autoscaler_specs.validate_autoscaler,
    "ingresses": networking.validate_ingress,
    "jobs": workload_specs.validate_job,
    "leases": single_kinds.validate_lease,
    "limitranges": single_kinds.validate_range,
    "mutatingwebhookconfigurations": admission_kinds.validate_webhooks,
    "networkpolicies": networking.validate_network_policy,
    "persistentvolumeclaims": claim_specs.validate_claim,
    "persistentvolumes": claim_specs.validate_volume,
    "poddisruptionbudgets": single_kinds.validate_budget,
    "pods": pod_specs.validate_pod,
    "priorityclasses": single_kinds.validate_priority_class,
    "replicasets": workload_specs.validate_replica_set,
    "replicationcontrollers": workload_specs.validate_replication_controller,
    "resourcequotas": single_kinds.validate_quota,
    "rolebindings": single_kinds.validate_binding,
    "roles": single_kinds.validate_role,
    "secrets": config_data.validate_secret,
    "services": networking.validate_service,
    "statefulsets": workload_specs.validate_stateful_set,
    "validatingadmissionpolicies": admission_kinds.validate_policy,
    "validatingadmissionpolicybindings": admission_kinds.validate_binding,
    "validatingwebhookconfigurations": admission_kinds.validate_webhooks,
}

# What the rules are not about; a write that changes nothing else is as good as the object was before.
_LEFT_OUT: Final = frozenset({"metadata", "status"})


def validate(plural: str, new: Obj, old: Obj | None) -> list[FieldError]:
    """Give everything that is wrong with a new state; the old one is there if the object is changed."""
    validator = _VALIDATORS.get(plural)
    return [] if validator is None or (old is not None and _is_same(new, old)) else list(validator(new, old))


def _is_same(new: Obj, old: Obj) -> bool:
    return all(new.get(name) == old.get(name) for name in {*new, *old} if name not in _LEFT_OUT)
