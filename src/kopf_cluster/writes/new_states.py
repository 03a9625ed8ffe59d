"""
A new state put together: the part of it that a write may change, its metadata, and its body completed and validated.

The rules follow the API conventions ("Metadata", "Subresources") and "API Concepts" ("Generated values").
Unknown fields are reported according to the parameter ``fieldValidation``: see "Server-side field validation" there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kopf_cluster import codec, json_fields, statuses
from kopf_cluster.cel import rules as cel_rules
from kopf_cluster.custom_resources.pruning import prune, prune_embedded
from kopf_cluster.kinds import builtin_pruning, certificates, objects, schemas, structures
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.structures import DEFINITION, KNOWN_METADATA
from kopf_cluster.patches import blame_patch
from kopf_cluster.writes.write_options import WriteOptions

# Fields of the server: the values of the previous state are kept, regardless of the client.
_SERVER_FIELDS: Final = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")

_ANY_VERSION: Final = "0"
"""The resource version that means none."""


def compose(kind: Kind, body: Obj, metadata: Obj) -> Obj:
    """Put an object together of its settled metadata and all the rest."""
    rest = {key: value for key, value in body.items() if key not in objects.HEAD_FIELDS}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest}


def begin_metadata(kind: Kind, namespace: str, raw: Any) -> Obj:
    """Return the metadata of a new object without the fields of the server, or refuse wrong ones."""
    metadata = _read_metadata(kind, raw)
    if metadata.get("resourceVersion", _ANY_VERSION) != _ANY_VERSION:
        raise statuses.unknown_error("resourceVersion should not be set on objects to be created")
    if kind.namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            raise statuses.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
    else:
        metadata.pop("namespace", None)
    for field in (*_SERVER_FIELDS, "resourceVersion"):
        metadata.pop(field, None)
    return metadata


def update_metadata(kind: Kind, old: Obj, new: Obj, need_version: bool, options: WriteOptions) -> Obj:
    """Return the metadata of the client with the fields of the server, or refuse a conflict."""
    known, name = old["metadata"], old["metadata"]["name"]
    if new.get("apiVersion", kind.api_version) != kind.api_version or new.get("kind", kind.kind) != kind.kind:
        raise statuses.bad_request(
            f"the API version in the data ({new.get('apiVersion')}) and the kind ({new.get('kind')}) do not match "
            f"the expected API version ({kind.api_version}) and the kind ({kind.kind})"
        )
    metadata = _read_metadata(kind, new.get("metadata"))
    if metadata.setdefault("uid", known["uid"]) != known["uid"] and options.patching:
        raise refuse_uid(kind, name, metadata["uid"])
    if metadata["uid"] != known["uid"]:
        raise statuses.conflict(
            kind,
            name,
            f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {known['uid']}",
        )
    if metadata.get("resourceVersion") == _ANY_VERSION:
        del metadata["resourceVersion"]
    if need_version and "resourceVersion" not in metadata:
        text = "Invalid value: 0x0: must be specified for an update"
        error = statuses.FieldError("metadata.resourceVersion", "FieldValueInvalid", text)
        raise statuses.invalid(kind, name, [error])
    if metadata.setdefault("resourceVersion", known["resourceVersion"]) != known["resourceVersion"]:
        raise statuses.modified(kind, name)
    for field in ("name", "namespace"):
        if metadata.setdefault(field, known.get(field)) != known.get(field):
            raise statuses.bad_request(
                f"the {field} of the object ({metadata[field]}) does not match "
                f"the {field} on the URL ({known.get(field) or ''})"
            )
    for field in _SERVER_FIELDS:
        copy_field(known, metadata, field)
    return {field: value for field, value in metadata.items() if value is not None}


def begin_by_update(kind: Kind, body: Obj) -> Obj:
    """Return the new object of an update of an absent one, or refuse it if a certain object was meant."""
    metadata = _read_metadata(kind, body["metadata"])
    metadata.pop("resourceVersion", None)  # there is none to compare with
    if uid := metadata.get("uid"):
        text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
        raise statuses.conflict(kind, metadata["name"], text)
    return {**body, "metadata": metadata}


def refuse_uid(kind: Kind, name: str, uid: Any) -> statuses.APIStatus:
    """Refuse a patch with the UID of another object: unlike in an update, it is no precondition there."""
    return statuses.invalid(kind, name, [statuses.invalid_value("metadata.uid", uid, "field is immutable")])


def _read_metadata(kind: Kind, raw: Any) -> Obj:
    try:
        return objects.settle_metadata(raw)
    except ValueError as error:
        why = str(_find_mistyped(kind, raw) or error)
        raise statuses.Undecodable(kind.kind, kind.version, why) from None


def _find_mistyped(kind: Kind, raw: Any) -> builtin_pruning.MistypedError | None:
    """Find the API server's error about mistyped metadata, which it decodes separately in custom kinds."""
    try:
        if kind.definition:
            builtin_pruning.prune({"metadata": raw}, structures.of_definition(kind.definition))
        else:
            builtin_pruning.prune(raw, structures.of_definition(DEFINITION))
    except builtin_pruning.MistypedError as error:
        return error
    return None


# The token of the service account in new pods: a volume, and its mounts.
#
# See "Bound service account token volume mechanism" of the Kubernetes documentation.

MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
PREFIX: Final = "kube-api-access-"
_MODE: Final = 0o644
_LIFETIME: Final = 3607  # seconds; as long as the real one asks for


def mount_token(spec: Obj, account: Obj, suffix: str) -> None:
    """Add the volume to a pod and its containers, in place, unless the pod or the account declines."""
    wanted = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
    containers = [
        container
        for container in spec.get("initContainers", []) + spec.get("containers", [])
        if all(mount.get("mountPath") != MOUNT_PATH for mount in container.get("volumeMounts", ()))
    ]
    if not wanted or not containers:
        return
    known = [volume["name"] for volume in spec.get("volumes", ()) if volume.get("name", "").startswith(PREFIX)]
    name = known[0] if known else f"{PREFIX}{suffix}"  # copied pods have one already
    for container in containers:
        mount = {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}
        container["volumeMounts"] = [*container.get("volumeMounts", ()), mount]
    if known:
        return
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    spec["volumes"] = [
        *spec.get("volumes", ()),
        {
            "name": name,
            "projected": {
                "defaultMode": _MODE,
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": _LIFETIME, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"downwardAPI": {"items": [namespace]}},
                ],
            },
        },
    ]


# The body: unknown fields dropped or refused, defaults filled in, all of it validated.

# The errors that prevent the evaluation of rules; other errors are reported together with broken rules.
_BLOCKING: Final = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"}
)
_UNCHECKED: Final = statuses.invalid_value(
    "<nil>",
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


def settle(
    kind: Kind,
    new: Obj,
    old: Obj | None,
    metadata: Any,
    options: WriteOptions,
) -> list[statuses.FieldError]:
    """Settle the body of a client as `settle_body` does, and report its unknown fields."""
    if not options.strict and options.warnings is None:
        return settle_body(kind, new, old)
    unknown = (
        [f"metadata.{name}" for name in metadata if name not in KNOWN_METADATA] if isinstance(metadata, dict) else []
    )
    errors = settle_body(kind, new, old, unknown)
    notes = [*options.repeated, *(strange := json_fields.describe_unknown(unknown))]
    if len(notes) > 1 and strange and options.text and not kind.custom:
        notes = json_fields.sort(options.text, options.repeated, strange)
    if notes and options.strict:
        raise _refuse_strictly(kind, new, notes, options)
    if options.warnings is not None:
        options.warnings.extend(notes)
    return errors


def settle_body(
    kind: Kind,
    new: Obj,
    old: Obj | None,
    unknown: list[str] | None = None,
) -> list[statuses.FieldError]:
    """Complete the new state in place, and return its errors; add the paths of dropped fields to the list."""
    errors: list[statuses.FieldError] = []
    if kind.schema is not None:
        body = codec.normalise({key: value for key, value in new.items() if key not in objects.HEAD_FIELDS})
        dropped = list(prune(body, kind.schema, "", root=True))
        dropped.sort()
        dropped += sorted(prune_embedded(body, kind.schema, ""))
        if unknown is not None:
            unknown += dropped
        schemas.fill_defaults(body, kind.schema)
        for key in [key for key in new if key not in objects.HEAD_FIELDS]:
            del new[key]
        new.update(body)
        errors += _validate(kind.schema, new, old)
    blocked = any(error.reason in _BLOCKING for error in errors)
    if kind.rules is not None:
        errors += [_UNCHECKED] if blocked else cel_rules.validate(kind.rules, new, old)
    if kind.strategy is not None:
        errors += kind.strategy(new, old, unknown)
    return errors


def _validate(schema: schemas.Schema, new: Obj, old: Obj | None) -> list[statuses.FieldError]:
    errors = list(schemas.validate(new, schema, ""))
    if errors and old is not None:  # rarely, so the old state is not looked at before
        errors = list(schemas.validate(new, schema, "", old))
    return errors


def _refuse_strictly(kind: Kind, new: Obj, notes: Iterable[str], options: WriteOptions) -> statuses.APIStatus:
    """Make the refusal of unknown or repeated fields, in an object or in a patch."""
    why = f"strict decoding error: {', '.join(notes)}"
    if options.patching:
        return blame_patch(new, why)
    return statuses.Undecodable(kind.kind, kind.version, why)


# The part of an object that a write may change: all but the status, only the status, or that of another subresource.
# The rest stays as in the previous state, regardless of the client.

# The subresources that never change the metadata; and the built-in kinds whose status does not change them.
_OWN_METADATA: Final = frozenset({"binding", "ephemeralcontainers", "resize"})
_OWN_METADATA_OF_STATUS: Final = frozenset(
    {
        "apiservices.apiregistration.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "flowschemas.flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        "resourceclaims.resource.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "volumeattachments.storage.k8s.io",
    }
)
# For all other built-in kinds, the status changes the metadata for historical reasons, except for these fields.
_KEPT_BY_STATUS: Final = {"deployments.apps": ("labels",), "pods": ("ownerReferences",)}


def take_part(kind: Kind, subresource: str, old: Obj, new: Obj) -> Obj:
    """Return the new state with only the part of the (sub)resource changed; the metadata are settled elsewhere."""
    if not subresource or subresource not in _TAKERS:
        if kind.has_status:
            copy_field(old, new, "status")
        return new
    result = _TAKERS[subresource](kind, old, new)
    result["metadata"] = _take_metadata(kind, subresource, old["metadata"], new.get("metadata"))
    return result


def _take_metadata(kind: Kind, subresource: str, old: Obj, wanted: Any) -> Any:
    """Return the metadata with the changes that the subresource may make, and with the expected version."""
    if not kind.custom and subresource not in _OWN_METADATA and kind.bucket not in _OWN_METADATA_OF_STATUS:
        if isinstance(wanted, dict):
            wanted = dict(wanted)
            for field in _KEPT_BY_STATUS.get(kind.bucket, ()):
                copy_field(old, wanted, field)
        return wanted
    metadata = dict(old)
    if isinstance(wanted, dict):
        metadata["resourceVersion"] = wanted.get("resourceVersion")
        metadata["uid"] = wanted.get("uid") or metadata["uid"]
        copy_field(wanted, metadata, "managedFields")
    return metadata


def _take_status(kind: Kind, old: Obj, new: Obj) -> Obj:
    result = dict(old)
    copy_field(new, result, "status")
    if kind.bucket == "certificatesigningrequests.certificates.k8s.io" and isinstance(result.get("status"), dict):
        result["status"] = certificates.settle(result["status"], old.get("status") or {}, keep=True)
    return result


def _take_approval(kind: Kind, old: Obj, new: Obj) -> Obj:
    """Take only the conditions: whether a certificate is approved or denied."""
    status, wanted = dict(old.get("status") or {}), new.get("status")
    copy_field(wanted if isinstance(wanted, dict) else {}, status, "conditions")
    return {**old, "status": certificates.settle(status, old.get("status") or {})}


def _take_from_spec(field: str) -> Callable[[Kind, Obj, Obj], Obj]:
    """Make a function that takes only this field in the spec."""

    def take(kind: Kind, old: Obj, new: Obj) -> Obj:
        spec, wanted = dict(old.get("spec") or {}), new.get("spec")
        copy_field(wanted if isinstance(wanted, dict) else {}, spec, field)
        return {**old, "spec": spec}

    return take


def _take_sizes(kind: Kind, old: Obj, new: Obj) -> Obj:
    """Take only the resources of the containers."""
    spec, wanted = dict(old.get("spec") or {}), new.get("spec")
    for field in ("containers", "initContainers"):
        sizes = {
            item.get("name"): {name: item[name] for name in ("resources", "resizePolicy") if name in item}
            for item in codec.dig_objects(wanted, field)
        }
        if field in spec:
            spec[field] = [{**item, **sizes.get(item.get("name"), {})} for item in codec.dig_objects(spec, field)]
    return {**old, "spec": spec}


def copy_field(source: Obj, target: Obj, field: str) -> None:
    """Copy the field; nulls are the same as absent fields."""
    if source.get(field) is None:
        target.pop(field, None)
    else:
        target[field] = source[field]


_TAKERS: Final[dict[str, Callable[[Kind, Obj, Obj], Obj]]] = {
    "status": _take_status,
    "approval": _take_approval,
    "binding": lambda kind, old, new: new,  # by the server itself: both the node and the condition
    "finalize": _take_from_spec("finalizers"),
    "ephemeralcontainers": _take_from_spec("ephemeralContainers"),
    "resize": _take_sizes,
}
