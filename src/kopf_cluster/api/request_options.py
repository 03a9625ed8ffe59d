"""
The options of writes, as requests tell them: in the query, and for deletions in the body, too.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kopf_cluster import patches, statuses
from kopf_cluster.api.bodies import JSON_TYPES, decode_body, find_repeated
from kopf_cluster.requests import Request
from kopf_cluster.writes import owners
from kopf_cluster.writes.write_options import POLICIES, DeleteOptions, WriteOptions

_VALIDATIONS: Final = ("Ignore", "Warn", "Strict")
_NAMES: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions"}


class _Options(msgspec.Struct, frozen=True):
    """How the options of a request are named in refusals."""

    kind: str
    group: str = "meta.k8s.io"
    version: str = "v1"
    plural: str = ""


_DELETION: Final = _Options("DeleteOptions")


def write_options(request: Request) -> WriteOptions:
    """Read the options of a creation, an update, or a patch; refuse wrong ones."""
    validation = request.query.get("fieldValidation")
    named = _Options(_NAMES.get(request.method, "PatchOptions"))
    if validation and validation not in _VALIDATIONS:
        raise statuses.invalid(named, "", [statuses.unsupported_value("fieldValidation", validation, _VALIDATIONS)])
    if request.method == "PATCH" and request.flag("force") and request.content_type != patches.APPLY:
        raise statuses.invalid(
            named, "", [statuses.forbidden_value("force", "may not be specified for non-apply patch")]
        )
    warnings: list[str] = []
    # Repeated fields are a matter of hand-written manifests: who wants them found, says so, as kubectl does.
    repeated = (
        find_repeated(request, strict=validation == "Strict")
        if validation in ("Warn", "Strict") and request.body
        else []
    )
    return WriteOptions(
        dry_run=_is_dry_run(named, request.query.get("dryRun")),
        strict=validation == "Strict",
        repeated=tuple(repeated),
        text=request.body if request.method in ("POST", "PUT") and request.content_type in JSON_TYPES else b"",
        warnings=None if validation in ("Ignore", "Strict") else warnings,
        remarks=[],
        manager=_read_manager(named, request),
        agent=request.agent,
        patching=request.method == "PATCH",
    )


def _read_manager(named: _Options, request: Request) -> str:
    name = request.query.get("fieldManager", "")
    applying = request.content_type == patches.APPLY
    if name or applying:
        errors = list(owners.validate_name(name, applying=applying))
        if errors:
            raise statuses.invalid(named, "", errors)
    return name


def _is_dry_run(named: _Options, value: str | None) -> bool:
    if value not in (None, "", "All"):
        raise statuses.invalid(named, "", [statuses.unsupported_value("dryRun", [value], ("All",))])
    return value == "All"


def delete_options(request: Request) -> DeleteOptions:
    """Read the options from the body and the query; the query is for what the body does not say."""
    raw = {**request.query, **(decode_body(request, _DELETION) if request.body else {})}
    if isinstance(raw.get("dryRun"), str):
        raw["dryRun"] = [raw["dryRun"]] if raw["dryRun"] else []
    return convert_delete_options(raw)


def convert_delete_options(raw: Any) -> DeleteOptions:
    """Make the options of a deletion; refuse wrong ones."""
    try:
        options = msgspec.convert(raw, DeleteOptions, strict=False)
    except msgspec.ValidationError as error:
        raise statuses.bad_request(f"DeleteOptions cannot be decoded: {error}") from None
    policy, errors = options.propagationPolicy, []
    if policy is not None and options.orphanDependents is not None:
        errors.append(
            statuses.invalid_value(
                "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"
            )
        )
    if policy is not None and policy not in POLICIES:
        errors.append(statuses.unsupported_value("propagationPolicy", policy, (*POLICIES, "nil")))
    if any(stage != "All" for stage in options.dryRun or ()):
        errors.append(statuses.unsupported_value("dryRun", options.dryRun, ("All",)))
    if errors:
        raise statuses.invalid(_DELETION, "", errors)
    return options
