"""
Writes: create, update (of which a patch is one), and delete, with the rules that apply to all kinds.

Every write is synchronous: what it has read is still so when it writes, thus no transactions and no retries.
The rules are those of the Kubernetes "API Concepts" and "API conventions": generations, finalizers,
preconditions, isolation of the status, immutable metadata.
"""
from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from . import ages, cel_rules, codec, managing, objects, schemas, sessions, statuses
from .admission.configurations import Operation
from .admission.reviewing import Gate
from .kinds.kind import Kind, Obj
from .kinds.registry import Registry
from .storage import Key, Record, Store

#: Who writes if it is nobody from outside.
CONTROLLER: Final = "kube-controller-manager"

Transform: TypeAlias = Callable[[Obj], Any]

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"

_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # as in Kubernetes: no vowels, no look-alikes
# What only the server decides: the values are taken from the previous state whatever the client says.
_SERVER_FIELDS: Final = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class Preconditions(msgspec.Struct):
    """What must be so for a deletion to happen."""

    uid: str | None = None
    resourceVersion: str | None = None


class DeleteOptions(msgspec.Struct):
    """The options of a deletion, as in `meta/v1`."""

    gracePeriodSeconds: int | None = None
    preconditions: Preconditions | None = None
    orphanDependents: bool | None = None
    propagationPolicy: str | None = None
    dryRun: list[str] | None = None

    @property
    def finalizer(self) -> str | None:
        """The finalizer by which the garbage collector knows what to do with the dependents."""
        if self.propagationPolicy == "Foreground":
            return FOREGROUND
        if self.propagationPolicy == "Orphan" or self.orphanDependents:
            return ORPHAN
        return None


class WriteOptions(msgspec.Struct, frozen=True):
    """How to write: for real or not, and what to do about unknown fields."""

    dry_run: bool = False
    strict: bool = False
    warnings: list[str] | None = None
    """Where to add the warnings about unknown fields; absent if nobody wants them."""
    manager: str = CONTROLLER
    """Who writes, as they call themselves."""
    agent: str = ""
    """Which program writes, if they do not tell."""
    applied: bool = False
    """Whether the managed fields are settled already."""


_DEFAULT_OPTIONS: Final = WriteOptions()


class Writer:
    """All writes to the store, for clients and for control loops."""

    def __init__(self, store: Store, registry: Registry, gate: Gate, *, managed_fields: bool = False) -> None:
        super().__init__()
        self._managed_fields = managed_fields
        self._store = store
        self._registry = registry
        self._gate = gate
        self._own_random = random.Random()

    @property
    def _random(self) -> random.Random:
        """The same for all attempts of one request, so that they make the same object."""
        session = sessions.current()
        return self._own_random if session is None else session.random

    def create(self, kind: Kind, namespace: str, body: Obj, options: WriteOptions = _DEFAULT_OPTIONS) -> Record:
        """Create the object, or raise the error with which the API refuses it."""
        metadata = self._read_metadata(kind, body.get("metadata"))
        if metadata.get("resourceVersion"):
            raise statuses.unknown_error("resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generate_name(kind, namespace, metadata["generateName"])
        self._settle_namespace(kind, namespace, metadata)
        for field in (*_SERVER_FIELDS, "resourceVersion"):
            metadata.pop(field, None)
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = _now()
        if kind.has_generation or kind.custom:
            metadata["generation"] = 1
        new = self._compose(kind, body, metadata)
        if kind.has_status:
            new.pop("status", None)
        if self._gate:
            new = self._admit("CREATE", kind, new, None, options)
            metadata = new["metadata"]
        errors = list(objects.require_name(kind, metadata)) + list(objects.validate_metadata(metadata, None))
        errors += self._settle_body(kind, new, None, options)
        if errors:
            raise statuses.invalid(kind, metadata.get("name", ""), errors)
        self._check_namespace_accepts(kind, namespace, metadata["name"])
        if self._gate:
            self._gate.validate("CREATE", kind, new, None, dry_run=options.dry_run)
        if (namespace, metadata["name"]) in self._store.bucket(kind.bucket).records:
            raise statuses.already_exists(kind, metadata["name"])
        self._settle_managers(kind, None, new, options, "")
        return self._put(kind, new, options)

    def update(
            self,
            kind: Kind,
            key: Key,
            transform: Transform,
            *,
            subresource: str = "",
            need_version: bool = False,
            options: WriteOptions = _DEFAULT_OPTIONS,
    ) -> Record:
        """Replace the object with what the function makes of it; nothing is written if nothing changes.

        The function must not modify what it gets.
        """
        record = self.need(kind, key)
        old = objects.open_record(kind, record)
        new = transform(old)
        if not isinstance(new, dict):
            raise statuses.unprocessable()
        if subresource == "status":
            new = self._take_status(old, new)
        new = self._compose(kind, new, self._update_metadata(kind, old, new, need_version))
        if subresource != "status" and kind.has_status:
            _copy_field(old, new, "status")
        if self._gate:
            new = self._admit("UPDATE", kind, new, old, options, subresource)
        return self._replace(kind, record, old, new, options, subresource)

    def apply(
            self, kind: Kind, key: Key, applied: Obj, *, force: bool, subresource: str, options: WriteOptions,
    ) -> tuple[Record, bool]:
        """Create the object or change it as of the configuration; tell whether it is created."""
        manager = managing.name_manager(options.manager, options.agent)
        options = msgspec.structs.replace(options, applied=True)

        def transform(old: Obj | None) -> Obj | None:
            return managing.apply(kind, old, applied, manager=manager, force=force, now=_now(),
                                  subresource=subresource)

        record = self._store.bucket(kind.bucket).records.get(key)
        if record is None:
            if subresource:
                raise statuses.not_found(kind, key[1])
            return self.create(kind, key[0], transform(None) or applied, options), True
        version = (applied.get("metadata") or {}).get("resourceVersion")
        if version and version != str(record.revision):
            raise statuses.modified(kind, key[1])
        record = self.update(kind, key, lambda old: transform(old) or old, subresource=subresource, options=options)
        return record, False

    def has(self, kind: Kind, key: Key) -> bool:
        return key in self._store.bucket(kind.bucket).records

    def need(self, kind: Kind, key: Key) -> Record:
        """Find the object's current state or raise "not found"."""
        record = self._store.bucket(kind.bucket).records.get(key)
        if record is None:
            raise statuses.not_found(kind, key[1])
        return record

    def review_deletion(self, kind: Kind, record: Record, options: DeleteOptions) -> None:
        """Raise the refusal if the object may not be deleted; it is not asked again for the deletion as such."""
        if self._gate:
            self._gate.review_deletion(kind, objects.open_record(kind, record), dry_run=bool(options.dryRun))

    def delete(self, kind: Kind, key: Key, options: DeleteOptions | None = None) -> tuple[Record, bool]:
        """Delete the object, or mark it as being deleted if something must happen before.

        Give the last known state, and whether the object has gone.
        """
        options = options or DeleteOptions()
        record = self.need(kind, key)
        _check_preconditions(kind, record, options.preconditions)
        old = objects.open_record(kind, record)
        self.review_deletion(kind, record, options)
        metadata = dict(old["metadata"])
        finalizers = list(metadata.get("finalizers") or [])
        if not metadata.get("deletionTimestamp"):
            if options.finalizer is not None and options.finalizer not in finalizers:
                finalizers.append(options.finalizer)
            if kind.cleanup_finalizer and kind.cleanup_finalizer not in finalizers:
                finalizers.append(kind.cleanup_finalizer)
            metadata["finalizers"] = finalizers
            metadata["deletionTimestamp"] = _now()
            metadata["deletionGracePeriodSeconds"] = 0
            if "generation" in metadata:
                metadata["generation"] += 1
        held = bool(finalizers) or _is_held_by_spec(kind, old)
        if options.dryRun:
            return record, not held
        if not held:
            return self._remove(kind, old), True
        new = {**old, "metadata": {name: value for name, value in metadata.items() if value != []}}
        if kind.bucket == "namespaces":
            new["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
        return (record if new == old else self._put(kind, new, _DEFAULT_OPTIONS)), False

    def _replace(
            self, kind: Kind, record: Record, old: Obj, new: Obj, options: WriteOptions, subresource: str,
    ) -> Record:
        metadata = new["metadata"]
        errors = list(objects.validate_metadata(metadata, old["metadata"]))
        if not _is_same_body(old, new):
            errors += self._settle_body(kind, new, old, options)
        if errors:
            raise statuses.invalid(kind, record.key[1], errors)
        metadata = new["metadata"]  # the settled body may have a new one
        if "generation" in metadata and _is_new_generation(kind, old, new):
            metadata["generation"] += 1
        if self._gate:
            self._gate.validate("UPDATE", kind, new, old, subresource=subresource, dry_run=options.dry_run)
        finished = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
        if finished and not _is_held_by_spec(kind, new) and not options.dry_run:
            return self._remove(kind, new)
        self._settle_managers(kind, old, new, options, subresource)
        return record if new == old else self._put(kind, new, options)

    def _settle_managers(
            self, kind: Kind, old: Obj | None, new: Obj, options: WriteOptions, subresource: str,
    ) -> None:
        if options.applied:
            return
        if not self._managed_fields and "managedFields" not in new["metadata"] and (
                old is None or "managedFields" not in old["metadata"]):
            return  # the usual case, to be as fast as possible
        managing.settle(kind, old, new, manager=managing.name_manager(options.manager, options.agent),
                        always=self._managed_fields, now=_now(), subresource=subresource)

    def _admit(
            self, operation: Operation, kind: Kind, new: Obj, old: Obj | None, options: WriteOptions,
            subresource: str = "",
    ) -> Obj:
        """Let webhooks change the object, which they see complete, and which need not be valid yet."""
        self._settle_body(kind, new, old, options)
        new = self._gate.mutate(operation, kind, new, old, subresource=subresource, dry_run=options.dry_run)
        if old is not None and subresource == "status":
            return {**old, "metadata": new["metadata"], **({"status": new["status"]} if "status" in new else {})}
        if old is not None and kind.has_status:
            _copy_field(old, new, "status")
        return new

    def _put(self, kind: Kind, obj: Obj, options: WriteOptions) -> Record:
        record = objects.seal(kind, obj, self._store.next_revision)
        if len(record.data) > objects.MAX_OBJECT:
            raise statuses.unknown_error("etcdserver: request is too large")
        if not options.dry_run:
            self._store.put(kind.bucket, record)
        return record

    def _remove(self, kind: Kind, obj: Obj) -> Record:
        record = objects.seal(kind, obj, self._store.next_revision)
        self._store.remove(kind.bucket, record)
        return record

    def _read_metadata(self, kind: Kind, raw: Any) -> Obj:
        try:
            return objects.settle_metadata(raw)
        except ValueError as error:
            raise statuses.bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as '
                                       f"a {kind.kind}: {error}") from None

    def _generate_name(self, kind: Kind, namespace: str, prefix: str) -> str:
        taken = self._store.bucket(kind.bucket).records
        while True:
            name = prefix[:58] + "".join(self._random.choices(_SUFFIX_LETTERS, k=5))
            if (namespace, name) not in taken:
                return name

    @staticmethod
    def _settle_namespace(kind: Kind, namespace: str, metadata: Obj) -> None:
        if kind.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise statuses.bad_request("the namespace of the provided object does not match "
                                           "the namespace sent on the request")
        else:
            metadata.pop("namespace", None)

    def _check_namespace_accepts(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        namespaces = self._registry.find("", "v1", "namespaces")
        if namespaces is None:
            raise LookupError("the registry has no namespaces")
        record = self.need(namespaces, ("", namespace))
        if record.deleting:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            causes = [{"reason": "NamespaceTerminating", "field": "metadata.namespace",
                       "message": f"namespace {namespace} is being terminated"}]
            raise statuses.forbidden(kind, name, why, causes)

    @staticmethod
    def _compose(kind: Kind, body: Obj, metadata: Obj) -> Obj:
        rest = {key: value for key, value in body.items() if key not in objects.HEAD_FIELDS}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest}

    @staticmethod
    def _take_status(old: Obj, new: Obj) -> Obj:
        """Only the status is taken from an update of the status, with the version it is based on."""
        metadata = dict(old["metadata"])
        wanted = new.get("metadata")
        if isinstance(wanted, dict):
            metadata["resourceVersion"] = wanted.get("resourceVersion")
            metadata["uid"] = wanted.get("uid") or metadata["uid"]
            _copy_field(wanted, metadata, "managedFields")
        result = {**old, "metadata": metadata}
        _copy_field(new, result, "status")
        return result

    def _update_metadata(self, kind: Kind, old: Obj, new: Obj, need_version: bool) -> Obj:
        """Take the client's metadata with all that it may not decide on, or refuse a conflict."""
        known, name = old["metadata"], old["metadata"]["name"]
        if new.get("apiVersion", kind.api_version) != kind.api_version or new.get("kind", kind.kind) != kind.kind:
            raise statuses.bad_request(
                f"the API version in the data ({new.get('apiVersion')}) and the kind ({new.get('kind')}) do not match "
                f"the expected API version ({kind.api_version}) and the kind ({kind.kind})")
        metadata = self._read_metadata(kind, new.get("metadata"))
        if metadata.setdefault("uid", known["uid"]) != known["uid"]:
            raise statuses.conflict(kind, name, f"Precondition failed: UID in precondition: {metadata['uid']}, "
                                                f"UID in object meta: {known['uid']}")
        if need_version and "resourceVersion" not in metadata:
            text = "Invalid value: 0x0: must be specified for an update"
            error = statuses.FieldError("metadata.resourceVersion", "FieldValueInvalid", text)
            raise statuses.invalid(kind, name, [error])
        if metadata.setdefault("resourceVersion", known["resourceVersion"]) != known["resourceVersion"]:
            raise statuses.modified(kind, name)
        errors = [statuses.invalid_value(f"metadata.{field}", metadata.get(field), "field is immutable")
                  for field in ("name", "namespace")
                  if metadata.setdefault(field, known.get(field)) != known.get(field)]
        if errors:
            raise statuses.invalid(kind, name, errors)
        for field in _SERVER_FIELDS:
            _copy_field(known, metadata, field)
        return {field: value for field, value in metadata.items() if value is not None}

    @staticmethod
    def _settle_body(kind: Kind, new: Obj, old: Obj | None, options: WriteOptions) -> list[statuses.FieldError]:
        errors: list[statuses.FieldError] = []
        if kind.schema is not None:
            body = codec.decode(codec.encode(
                {key: value for key, value in new.items() if key not in objects.HEAD_FIELDS}))
            unknown = list(schemas.prune(body, kind.schema, "", root=True))
            _report_unknown(unknown, options)
            schemas.fill_defaults(body, kind.schema)
            errors += schemas.validate(body, kind.schema, "", root=True)
            for key in [key for key in new if key not in objects.HEAD_FIELDS]:
                del new[key]
            new.update(body)
        if kind.rules is not None and not errors:
            errors += cel_rules.validate(kind.rules, new, cel_rules.ABSENT if old is None else old)
        if kind.strategy is not None:
            errors += kind.strategy(new, old)
        return errors


def _now() -> str:
    session = sessions.current()
    return ages.now() if session is None else session.moment


def _report_unknown(unknown: list[str], options: WriteOptions) -> None:
    if unknown and options.strict:
        fields = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise statuses.bad_request(f"strict decoding error: {fields}")
    if options.warnings is not None:
        options.warnings.extend(f'unknown field "{path}"' for path in unknown)


def _copy_field(source: Obj, target: Obj, field: str) -> None:
    if source.get(field) is None:
        target.pop(field, None)
    else:
        target[field] = source[field]


def _is_same_body(old: Obj, new: Obj) -> bool:
    return all(old.get(key) == new.get(key) for key in {*old, *new} if key != "metadata")


def _is_new_generation(kind: Kind, old: Obj, new: Obj) -> bool:
    """Anything but the metadata counts, and the status counts only where it is not isolated."""
    ignored = ("metadata", "status") if kind.has_status else ("metadata",)
    return any(old.get(key) != new.get(key) for key in {*old, *new} if key not in ignored)


def _is_held_by_spec(kind: Kind, obj: Obj) -> bool:
    """Namespaces have one more list of finalizers, in the spec."""
    return kind.bucket == "namespaces" and bool((obj.get("spec") or {}).get("finalizers"))


def _check_preconditions(kind: Kind, record: Record, wanted: Preconditions | None) -> None:
    if wanted is None:
        return
    name = record.key[1]
    if wanted.uid is not None and wanted.uid != record.uid:
        raise statuses.conflict(kind, name, f"Precondition failed: UID in precondition: {wanted.uid}, "
                                            f"UID in object meta: {record.uid}")
    if wanted.resourceVersion is not None and wanted.resourceVersion != str(record.revision):
        raise statuses.conflict(
            kind, name, f"Precondition failed: ResourceVersion in precondition: {wanted.resourceVersion}, "
                        f"ResourceVersion in object meta: {record.revision}")
