"""
Workloads: their selectors and templates, which must match; volumes and claims.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from fractions import Fraction
from typing import Final

from kopf_cluster import quantities
from kopf_cluster.kinds import selectors
from kopf_cluster.kinds.objects import validate_labels
from kopf_cluster.statuses import (
    FieldError,
    forbidden_value,
    invalid_value,
    needed,
    one_of,
    required,
    unsupported_value,
)
from kopf_cluster.validation.fields import Obj, not_negative, number_or_percent, validate_selector
from kopf_cluster.validation.pod_specs import validate_spec

MISMATCH: Final = "`selector` does not match template `labels`"
"""The error of a template whose pods the selector would not find."""


def validate_deployment(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from not_negative(spec, "spec", "replicas")
    yield from _validate_selection(spec, "deployment")
    yield from _validate_template(spec, "ReplicaSet")
    strategy = spec.get("strategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    if strategy.get("type") == "Recreate" and rolling:
        yield forbidden_value("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    for field in ("maxUnavailable", "maxSurge"):
        if field in rolling:
            yield from number_or_percent(
                rolling[field], f"spec.strategy.rollingUpdate.{field}", most=100 if field == "maxUnavailable" else None
            )
    if rolling.get("maxUnavailable") in (0, "0%") and rolling.get("maxSurge") in (0, "0%"):
        yield invalid_value(
            "spec.strategy.rollingUpdate.maxUnavailable", rolling["maxUnavailable"], "may not be 0 when `maxSurge` is 0"
        )
    yield from not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if deadline is not None and deadline <= ready:
        yield invalid_value("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def validate_replica_set(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from not_negative(spec, "spec", "replicas", "minReadySeconds")
    yield from _validate_selection(spec, "deployment")
    yield from _validate_template(spec, "ReplicaSet")


def validate_replication_controller(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Yield all errors; selectors are plain labels, and a template is required."""
    spec = new.get("spec") or {}
    selector, template = spec.get("selector") or {}, spec.get("template")
    yield from not_negative(spec, "spec", "minReadySeconds")
    yield from needed("spec.selector", selector)
    yield from not_negative(spec, "spec", "replicas")
    if template is None:
        yield required("spec.template")
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector and not selector.items() <= labels.items():
        yield invalid_value("spec.template.metadata.labels", labels or None, MISMATCH)
    yield from _validate_template(spec, "ReplicationController")


def validate_stateful_set(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Yield all errors; pods can mount their claims, too, and an unchanged template is not validated again."""
    spec = new.get("spec") or {}
    yield from not_negative(spec, "spec", "replicas", "minReadySeconds", "revisionHistoryLimit")
    yield from _validate_selection(spec, "statefulset")
    if old is None or spec.get("template") != (old.get("spec") or {}).get("template"):
        claimed = [(claim.get("metadata") or {}).get("name") or "" for claim in spec.get("volumeClaimTemplates") or ()]
        yield from validate_pods(spec.get("template") or {}, "spec.template", claimed)
    yield from _validate_forever(spec, "StatefulSet")
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or () if old is None else ()):
        yield from validate_claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")


def validate_daemon_set(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from _validate_selection(spec, "daemonset")
    yield from _validate_template(spec, "DaemonSet")
    yield from not_negative(spec, "spec", "minReadySeconds")
    rolling, path = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}, "spec.updateStrategy.rollingUpdate"
    for field in ("maxUnavailable", "maxSurge") if rolling else ():
        yield from number_or_percent(rolling[field], f"{path}.{field}", most=100)
    given = [field for field in ("maxUnavailable", "maxSurge") if rolling.get(field, 0) not in (0, "0%")]
    if len(given) == 2:
        yield invalid_value(f"{path}.maxSurge", rolling["maxSurge"], "may not be set when maxUnavailable is non-zero")
    elif rolling and not given:
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")
    yield from not_negative(spec, "spec", "revisionHistoryLimit")


def _validate_selection(spec: Obj, what: str) -> Iterator[FieldError]:
    """Validate the selector, which must select the pods of the template."""
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
        return
    wrong = list(validate_selector(selector, "spec.selector"))
    yield from wrong
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid_value("spec.selector", selector, f"empty selector is invalid for {what}")
    elif not wrong:
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        if not selectors.matches(selector, labels or {}):
            yield invalid_value("spec.template.metadata.labels", labels, MISMATCH)


def _validate_template(spec: Obj, what: str) -> Iterator[FieldError]:
    yield from validate_pods(spec.get("template") or {}, "spec.template")
    yield from _validate_forever(spec, what)


def validate_pods(template: Obj, path: str, claimed: Collection[str] = ()) -> Iterator[FieldError]:
    """Yield all errors in a template of pods, which can mount these claims, too."""
    yield from validate_labels((template.get("metadata") or {}).get("labels") or {}, f"{path}.labels")
    yield from validate_spec(template.get("spec") or {}, f"{path}.spec", claimed)


def _validate_forever(spec: Obj, what: str) -> Iterator[FieldError]:
    """Refuse pods that end by themselves."""
    pods = (spec.get("template") or {}).get("spec") or {}
    if pods.get("restartPolicy", "Always") != "Always":
        yield unsupported_value("spec.template.spec.restartPolicy", pods["restartPolicy"], ("Always",))
    if pods.get("activeDeadlineSeconds") is not None:
        yield forbidden_value(
            "spec.template.spec.activeDeadlineSeconds", f"activeDeadlineSeconds in {what} is not Supported"
        )


# Jobs and cron jobs.

_MAX_CRON_NAME: Final = 52  # so that the names of jobs are not too long
_BY_INDEX: Final = ("backoffLimitPerIndex", "maxFailedIndexes")


def validate_job(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Yield all errors in a new job; the template of an existing one is immutable."""
    if old is not None:
        return
    spec = new.get("spec") or {}
    if not spec.get("manualSelector"):
        yield from _validate_generated(new, spec)
    yield from _validate_spec(spec, "spec")
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
        return
    wrong = list(validate_selector(selector, "spec.selector"))
    yield from wrong
    labels = _labels_of(spec)
    if not wrong and not selectors.matches(selector, labels):
        yield invalid_value("spec.template.metadata.labels", labels or None, MISMATCH)


def validate_cron_job(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    name = new["metadata"].get("name") or ""
    if len(name) > _MAX_CRON_NAME and old is None:
        yield invalid_value("metadata.name", name, f"must be no more than {_MAX_CRON_NAME} characters")
    spec = new.get("spec") or {}
    yield from not_negative(
        spec, "spec", "startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"
    )
    job, path = (spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec"
    yield from _validate_spec(job, path)
    if job.get("selector") is not None:
        yield invalid_value(f"{path}.selector", job["selector"], "`selector` will be auto-generated")
    if job.get("manualSelector"):
        yield unsupported_value(f"{path}.manualSelector", job["manualSelector"], ("nil", "false"))


def _validate_generated(job: Obj, spec: Obj) -> Iterator[FieldError]:
    """Refuse other values for the labels and the selector that the server generates."""
    labels, generated = _labels_of(spec), make_labels(job)
    for key, value in generated.items():
        if labels.get(key) != value:
            yield invalid_value(f"spec.template.metadata.labels[{key}]", labels, f"must be '{value}'")
    selector = spec.get("selector") or {}
    if not list(validate_selector(selector, "")) and not selectors.matches(selector, generated):
        yield invalid_value("spec.selector", selector, "`selector` not auto-generated")


def _labels_of(spec: Obj) -> dict[str, str]:
    return dict(sorted((((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}).items()))


def _validate_spec(spec: Obj, path: str) -> Iterator[FieldError]:
    yield from not_negative(
        spec,
        path,
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        *_BY_INDEX,
    )
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if spec.get("completionMode") == "Indexed":
        if spec.get("completions") is None:
            yield required(f"{path}.completions", "when completion mode is Indexed")
    else:
        for field in _BY_INDEX:
            if field in spec:
                yield invalid_value(f"{path}.{field}", spec[field], "requires indexed completion mode")
    template = spec.get("template") or {}
    yield from validate_pods(template, f"{path}.template")
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy in (None, "", "Always"):
        yield required(f"{path}.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif policy == "OnFailure" and spec.get("podFailurePolicy") is not None:
        yield invalid_value(
            f"{path}.template.spec.restartPolicy",
            policy,
            'only "Never" is supported when podFailurePolicy is specified',
        )


# The labels of the pods of a job, which the server makes from the name and the UID of the job.
#
# See "Specifying your own Pod selector" in "Jobs": with ``manualSelector``, users set the labels themselves.

CONTROLLER: Final = "batch.kubernetes.io/controller-uid"
"""The label in the selector."""


def make_labels(job: Obj) -> dict[str, str]:
    """Return the labels of the pods of a job, with the old names and the new ones."""
    uid, name = job["metadata"]["uid"], job["metadata"].get("name") or ""
    return {"controller-uid": uid, "job-name": name, CONTROLLER: uid, "batch.kubernetes.io/job-name": name}


def settle(new: Obj, old: Obj | None) -> Iterable[FieldError]:
    """Add the missing labels and selector to a new job; contradictions are refused later."""
    spec = new.get("spec") or {}
    if old is not None or spec.get("manualSelector"):
        return []
    labels = make_labels(new)
    template, selector = spec.get("template") or {}, spec.get("selector") or {}
    metadata = template.get("metadata") or {}
    metadata = {**metadata, "labels": {**labels, **(metadata.get("labels") or {})}}
    selector = {**selector, "matchLabels": {CONTROLLER: labels[CONTROLLER], **(selector.get("matchLabels") or {})}}
    new["spec"] = {**spec, "template": {**template, "metadata": metadata}, "selector": selector}
    return []


# Volumes and claims: their access modes and sizes.

_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
# The fields of a volume besides its source.
_COMMON: Final = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)


def validate_claim(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from validate_claim_spec(spec, "spec")
    if old is not None and (size := _requested(spec)) is not None:
        yield from _validate_shrinking(quantities.amount(size), old)


def validate_claim_spec(spec: Obj, path: str) -> Iterator[FieldError]:
    """Yield all errors in a claim, alone or in a template."""
    yield from validate_selector(spec.get("selector") or {}, f"{path}.selector")
    yield from _validate_modes(spec, path, "at least 1 access mode is required")
    size = _requested(spec)
    if size is None:
        yield required(f"{path}.resources[storage]")
    elif quantities.amount(size) <= 0:
        yield invalid_value(f"{path}.resources[storage]", size, "must be greater than zero")


def validate_volume(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from _validate_modes(spec, "spec", "")
    capacity = spec.get("capacity") or {}
    yield from needed("spec.capacity", capacity)
    if capacity.keys() != {"storage"}:
        yield unsupported_value("spec.capacity", capacity or None, ("storage",))
    for name, size in capacity.items():
        if quantities.amount(size) <= 0:
            yield invalid_value(f"spec.capacity[{name}]", size, "must be greater than zero")
    sources = [name for name in spec if name not in _COMMON]
    for name in sources[1:]:
        yield forbidden_value(f"spec.{name}", "may not specify more than 1 volume type")
    yield from needed("spec", sources, "must specify a volume type")


def _validate_modes(spec: Obj, path: str, missing: str) -> Iterator[FieldError]:
    modes = spec.get("accessModes") or []
    yield from needed(f"{path}.accessModes", modes, missing)
    for mode in modes:
        yield from one_of(f"{path}.accessModes", mode, _MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield forbidden_value(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")


def _requested(spec: Obj) -> str | None:
    size: str | None = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return size


def _validate_shrinking(size: Fraction, old: Obj) -> Iterator[FieldError]:
    """Refuse to shrink a claim below its capacity; see "Recovering from Failure"."""
    before = _requested(old.get("spec") or {}) or "0"
    given = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
    if size < quantities.amount(before) and size <= quantities.amount(given):
        yield forbidden_value("spec.resources.requests.storage", "field can not be less than status.capacity")
