"""
Which rules there are for which kinds.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from kopf_cluster.statuses import FieldError
from kopf_cluster.validation import (
    admission_policies,
    autoscaler_specs,
    bounds,
    claim_specs,
    config_data,
    ingresses,
    job_specs,
    limits,
    network_policies,
    pod_specs,
    role_rules,
    service_specs,
    webhook_configurations,
    workload_specs,
)

Obj: TypeAlias = dict[str, Any]
Validator: TypeAlias = Callable[[Obj, Obj | None], Iterator[FieldError]]

# By the plural names, which are unique among built-in kinds.
_VALIDATORS: Final[Mapping[str, Validator]] = {
    "apiservices": bounds.validate_api_service,
    "clusterrolebindings": role_rules.validate_binding,
    "clusterroles": role_rules.validate_role,
    "configmaps": config_data.validate_config_map,
    "cronjobs": job_specs.validate_cron_job,
    "daemonsets": workload_specs.validate_daemon_set,
    "deployments": workload_specs.validate_deployment,
    "horizontalpodautoscalers": autoscaler_specs.validate,
    "ingresses": ingresses.validate,
    "jobs": job_specs.validate_job,
    "leases": bounds.validate_lease,
    "limitranges": limits.validate_range,
    "mutatingwebhookconfigurations": webhook_configurations.validate,
    "networkpolicies": network_policies.validate,
    "persistentvolumeclaims": claim_specs.validate,
    "persistentvolumes": claim_specs.validate_volume,
    "poddisruptionbudgets": limits.validate_budget,
    "pods": pod_specs.validate,
    "priorityclasses": bounds.validate_priority_class,
    "replicasets": workload_specs.validate_replica_set,
    "replicationcontrollers": workload_specs.validate_replication_controller,
    "resourcequotas": limits.validate_quota,
    "rolebindings": role_rules.validate_binding,
    "roles": role_rules.validate_role,
    "secrets": config_data.validate_secret,
    "services": service_specs.validate,
    "statefulsets": workload_specs.validate_stateful_set,
    "validatingadmissionpolicies": admission_policies.validate_policy,
    "validatingadmissionpolicybindings": admission_policies.validate_binding,
    "validatingwebhookconfigurations": webhook_configurations.validate,
}

# What the rules are not about; a write that changes nothing else is as good as the object was before.
_LEFT_OUT: Final = frozenset({"metadata", "status"})


def validate(plural: str, new: Obj, old: Obj | None) -> list[FieldError]:
    """Give everything that is wrong with a new state; the old one is there if the object is changed."""
    validator = _VALIDATORS.get(plural)
    return [] if validator is None or (old is not None and _is_same(new, old)) else list(validator(new, old))


def _is_same(new: Obj, old: Obj) -> bool:
    return all(new.get(name) == old.get(name) for name in {*new, *old} if name not in _LEFT_OUT)
