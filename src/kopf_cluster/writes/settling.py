"""
The body of a new state brought in order: unknown fields dropped or refused, defaults filled in, all of it validated.

What is unknown, is reported as the client wants it by the parameter ``fieldValidation``: see "Server-side field
validation" in the Kubernetes "API Concepts".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kopf_cluster import codec, json_fields, statuses
from kopf_cluster.cel import rules as cel_rules
from kopf_cluster.kinds import objects, schemas
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.structures import KNOWN_METADATA
from kopf_cluster.patches import blame_patch
from kopf_cluster.writes.write_options import WriteOptions

# What makes an object unfit for being looked at by rules; with other errors, all is told at once.
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
    """Do the same as `settle_body` with what a client has sent, and report what is unknown in it."""
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
    """Complete the new state in place and tell what is wrong with it; add the paths of what is dropped to the list."""
    errors: list[statuses.FieldError] = []
    if kind.schema is not None:
        body = codec.decode(codec.encode({key: value for key, value in new.items() if key not in objects.HEAD_FIELDS}))
        dropped = list(schemas.prune(body, kind.schema, "", root=True))
        dropped.sort()
        dropped += sorted(schemas.prune_embedded(body, kind.schema, ""))
        if unknown is not None:
            unknown += dropped
        schemas.fill_defaults(body, kind.schema)
        for key in [key for key in new if key not in objects.HEAD_FIELDS]:
            del new[key]
        new.update(body)
        errors += _validate(kind.schema, new, old)
    if kind.rules is not None:
        errors += cel_rules.validate(kind.rules, new, old) if not _are_blocking(errors) else [_UNCHECKED]
    if kind.strategy is not None:
        errors += kind.strategy(new, old, unknown)
    return errors


def _are_blocking(errors: list[statuses.FieldError]) -> bool:
    return any(error.reason in _BLOCKING for error in errors)


def _validate(schema: schemas.Schema, new: Obj, old: Obj | None) -> list[statuses.FieldError]:
    errors = list(schemas.validate(new, schema, ""))
    if errors and old is not None:  # rarely, so the old state is not looked at before
        errors = list(schemas.validate(new, schema, "", old))
    return errors


def _refuse_strictly(kind: Kind, new: Obj, notes: Iterable[str], options: WriteOptions) -> statuses.APIStatus:
    """Make the refusal of what is unknown or repeated: the object is to blame, or the patch."""
    why = f"strict decoding error: {', '.join(notes)}"
    if options.patching:
        return blame_patch(new, options.strategic, why)
    return statuses.Undecodable(kind.kind, kind.version, why)
