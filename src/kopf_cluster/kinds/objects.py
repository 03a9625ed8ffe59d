"""
The encoding of objects for the store, and the validation of their metadata.

The rules and the wording follow the API conventions ("Metadata", "Object Names and IDs", "Labels", "Annotations").
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kopf_cluster import codec
from kopf_cluster.kinds import builtin_pruning, structures
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.statuses import FieldError, bad_request, forbidden_value, invalid_value, invalid_values, required
from kopf_cluster.store.watch_cache import Key, Record

MAX_ANNOTATIONS: Final = 256 * 1024
# The first fields of each encoded object; the first two are not stored, as they depend on the version.
HEAD_FIELDS: Final = ("apiVersion", "kind", "metadata")

MAX_OBJECT: Final = 3 * 512 * 1024  # bytes; the limit of requests to etcd
MAX_MESSAGE: Final = 2 * 1024 * 1024  # bytes; its client does not even send larger ones

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_OLD_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_OLD_LABEL_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_QUALIFIED_RULE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def settle_metadata(raw: Any) -> Obj:
    """Return a clean copy of the metadata, or raise `ValueError` with the field of a wrong type.

    The copy has neither unknown fields, nor nulls, nor empty values, as in the API server.
    """
    if raw is not None and not isinstance(raw, dict):
        raise ValueError("json: cannot unmarshal what is no object into the field metadata of type v1.ObjectMeta")
    known = {name: value for name, value in (raw or {}).items() if name in structures.KNOWN_METADATA}
    kept: Obj = builtin_pruning.prune(known, structures.of_definition(structures.DEFINITION))[0]
    return kept


def open_record(kind: Kind, record: Record) -> Obj:
    """Decode a stored object; the caller may modify the result."""
    document: Obj = codec.decode(encode_record(kind, record))
    return document


def encode_record(kind: Kind, record: Record) -> bytes:
    """Return the JSON of a stored object in the version of the kind."""
    return kind.head + (record.data if kind.converter is None else kind.converter.read(kind, record))


def seal(kind: Kind, obj: Obj, revision: int) -> Record:
    """Encode an object, once and for all readers, in the stored version, as of the given revision."""
    if kind.converter is not None and kind.version != kind.storage_version:
        record = _seal(kind, kind.converter.write(kind, obj), revision)
        kind.converter.remember(kind, obj, record)
        return record
    return _seal(kind, obj, revision)


def restamp(record: Record, revision: int) -> Record:
    """Return the same state of the object at another revision."""
    data = encode_body(codec.decode(b"{" + record.data), revision)
    return msgspec.structs.replace(record, revision=revision, data=data)


def is_stored_alike(kind: Kind, record: Record, obj: Obj) -> bool:
    """Whether a write of the state would change nothing of the record: neither its version nor a field."""
    if not kind.custom or (kind.converter is None and record.form == kind.storage_version):
        return True  # there is one form only
    sealed = seal(kind, obj, record.revision)
    return sealed.form == record.form and codec.decode(b"{" + sealed.data) == codec.decode(b"{" + record.data)


def encode_body(obj: Obj, revision: int) -> bytes:
    """Encode an object with the revision, if it is not zero, but with no version and kind."""
    metadata = {**obj["metadata"], "resourceVersion": str(revision)}
    if not revision:
        del metadata["resourceVersion"]
    body = {"metadata": metadata} | {key: value for key, value in obj.items() if key not in HEAD_FIELDS}
    return codec.encode(body)[1:]


def _seal(kind: Kind, obj: Obj, revision: int) -> Record:
    metadata = obj["metadata"]
    return Record(
        key=key_of(metadata),
        revision=revision,
        data=encode_body(obj, revision),
        form=kind.storage_version,
        uid=metadata["uid"],
        labels=metadata.get("labels") or {},
        fields={name: field.show(obj) for name, field in kind.indexed_fields.items()},
        owners=tuple(ref["uid"] for ref in metadata.get("ownerReferences") or ()),
        finalizers=tuple(metadata.get("finalizers") or ()),
        deleting="deletionTimestamp" in metadata,
    )


def key_of(metadata: Mapping[str, Any]) -> Key:
    return metadata.get("namespace", ""), metadata["name"]


def require_same_name(body: Obj, name: str) -> None:
    """Refuse an object whose name is not that of the URL."""
    named = codec.dig(body, "metadata", "name")
    if named != name:
        raise bad_request(f"the name of the object ({named or ''}) does not match the name on the URL ({name})")


def _find_faults(most: int, form: re.Pattern[str], rule: str, name: str) -> Iterator[str]:
    if len(name) > most:
        yield f"must be no more than {most} bytes"
    if not form.fullmatch(name):
        yield rule


label = functools.partial(_find_faults, 63, _LABEL, _LABEL_RULE)
"""Find faults in a DNS label (RFC 1123): names of containers, volumes, ports of services."""
old_label = functools.partial(_find_faults, 63, _OLD_LABEL, _OLD_LABEL_RULE)
"""Find faults in a DNS label that does not begin with a digit (RFC 1035)."""
subdomain = functools.partial(_find_faults, 253, _SUBDOMAIN, _SUBDOMAIN_RULE)
"""Find faults in a DNS subdomain (RFC 1123)."""


def label_value(value: str) -> Iterator[str]:
    """Find faults in the value of a label."""
    if len(value) > 63:
        yield "must be no more than 63 bytes"
    elif value and not _QUALIFIED.fullmatch(value):
        yield _LABEL_VALUE_RULE


def validate_name(kind: Kind, name: str) -> Iterator[FieldError]:
    if kind.loose_names:
        if name in (".", "..") or "/" in name or "%" in name:
            yield invalid_value("metadata.name", name, "may not be '.' or '..', or contain '/' or '%'")
    elif kind.plural == "namespaces" and not kind.group:
        yield from invalid_values("metadata.name", name, label(name))
    else:
        yield from invalid_values("metadata.name", name, subdomain(name))


def validate_metadata(metadata: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Yield all errors in metadata of right types; unchanged parts are not validated again."""
    known: Obj = old or {}
    labels = metadata.get("labels")
    if labels is not None and labels != known.get("labels"):
        yield from validate_labels(labels, "metadata.labels")
    annotations = metadata.get("annotations")
    if annotations is not None and annotations != known.get("annotations"):
        for key in annotations:
            yield from validate_qualified("metadata.annotations", key.lower())
        total = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
        if total > MAX_ANNOTATIONS:
            yield FieldError(
                "metadata.annotations", "FieldValueTooLong", f"Too long: may not be more than {MAX_ANNOTATIONS} bytes"
            )
    finalizers = metadata.get("finalizers")
    if finalizers is not None and finalizers != known.get("finalizers"):
        yield from _validate_finalizers(finalizers, known)
    if metadata.get("ownerReferences") is not None:
        yield from _validate_owners(metadata["ownerReferences"])


def validate_labels(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Yield all errors in the keys and the values."""
    for key, value in labels.items():
        yield from validate_qualified(path, key)
        yield from invalid_values(path, value, label_value(value))


def validate_qualified(field: str, key: str) -> Iterator[FieldError]:
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        what = "must be non-empty" if not prefix else _SUBDOMAIN_RULE
        yield invalid_value(field, key, f"prefix part {what}")
    if not name:
        yield invalid_value(field, key, "name part must be non-empty")
    elif len(name.encode()) > 63:
        yield invalid_value(field, key, "name part must be no more than 63 bytes")
    if not _QUALIFIED.fullmatch(name):
        yield invalid_value(field, key, _QUALIFIED_RULE)


def _validate_finalizers(finalizers: list[str], old: Obj) -> Iterator[FieldError]:
    for finalizer in finalizers:
        yield from validate_qualified("metadata.finalizers", finalizer)
    if old.get("deletionTimestamp"):
        added = [item for item in finalizers if item not in (old.get("finalizers") or [])]
        if added:
            names = ", ".join(f'"{item}"' for item in added)
            yield forbidden_value(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being "
                f"deleted, found new finalizers []string{{{names}}}",
            )


def _validate_owners(owners: list[Obj]) -> Iterator[FieldError]:
    for index, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield invalid_value(f"metadata.ownerReferences[{index}].{field}", "", "must not be empty")
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        names = " and ".join(f"{owner.get('kind')}/{owner.get('name')}" for owner in controllers[:2])
        yield invalid_value(
            "metadata.ownerReferences",
            None,
            f'Only one reference can have Controller set to true. Found "true" in references for {names}',
        )


def require_name(kind: Kind, metadata: Obj) -> Iterator[FieldError]:
    if not metadata.get("name"):
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from validate_name(kind, metadata["name"])
