"""
Jobs and cron jobs: how often and how long they run, and by what their pods are found.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster.kinds import selectors
from kopf_cluster.kinds.job_selectors import make_labels
from kopf_cluster.statuses import FieldError, invalid_value, required, unsupported_value
from kopf_cluster.validation.nested_selectors import validate_selector
from kopf_cluster.validation.numbers import not_negative
from kopf_cluster.validation.workload_specs import MISMATCH, validate_pods

Obj: TypeAlias = dict[str, Any]

_MAX_CRON_NAME: Final = 52  # so that the names of jobs are not too long
_BY_INDEX: Final = ("backoffLimitPerIndex", "maxFailedIndexes")


def validate_job(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """The template of an existing job cannot be changed anyway."""
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
    yield from not_negative(spec, "spec", "startingDeadlineSeconds", "successfulJobsHistoryLimit",
                            "failedJobsHistoryLimit")
    job, path = (spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec"
    yield from _validate_spec(job, path)
    if job.get("selector") is not None:
        yield invalid_value(f"{path}.selector", job["selector"], "`selector` will be auto-generated")
    if job.get("manualSelector"):
        yield unsupported_value(f"{path}.manualSelector", job["manualSelector"], ("nil", "false"))


def _validate_generated(job: Obj, spec: Obj) -> Iterator[FieldError]:
    """What the server wanted to add must not have been there with other values."""
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
    yield from not_negative(spec, path, "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit",
                            "ttlSecondsAfterFinished", *_BY_INDEX)
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
        yield invalid_value(f"{path}.template.spec.restartPolicy", policy,
                            'only "Never" is supported when podFailurePolicy is specified')
