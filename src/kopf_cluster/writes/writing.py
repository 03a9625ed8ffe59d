"""
Writes: create, update (of which a patch is one), and delete, with the rules that apply to all kinds.

Every write is synchronous, so that its reads are still true when it writes: no transactions and retries are needed.
The rules follow the Kubernetes "API Concepts" and "API conventions": generations, finalizers,
preconditions, isolation of the status, immutable metadata.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from kopf_cluster import ages, codec, json_fields, sessions, statuses
from kopf_cluster.admission.reviewing import Gate
from kopf_cluster.kinds import immutables, objects
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.kinds.topologies import Topology
from kopf_cluster.patches import blame_patch
from kopf_cluster.store.storage import Store
from kopf_cluster.store.watch_cache import Key, Record
from kopf_cluster.validation import pod_warnings
from kopf_cluster.writes import managed_fields, new_states, write_options
from kopf_cluster.writes.applying import Translate
from kopf_cluster.writes.write_options import DEFAULT, DeleteOptions, Preconditions, WriteOptions

Transform: TypeAlias = Callable[[Obj], Any]
Guard: TypeAlias = Callable[[Kind, Obj, Obj | None], None]

_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # as in Kubernetes: no vowels, no look-alikes

_IMMORTAL: Final = frozenset({"default", "kube-public", "kube-system"})
"""The namespaces that every cluster has, and that cannot be deleted."""


class Writer:
    """All writes to the store, for clients and for control loops."""

    def __init__(self, store: Store, registry: Registry, gate: Gate, *, managed_fields: bool) -> None:
        self._managed_fields = managed_fields
        self._store = store
        self._registry = registry
        self._gate = gate
        self.guard: Guard | None = None
        """Refuses writes that grant or own too much."""
        self._own_random = random.Random(random.getrandbits(64))  # as the sessions: by a seed if there is one

    @property
    def _random(self) -> random.Random:
        """Random numbers, the same ones for all attempts of one request."""
        session = sessions.current()
        return self._own_random if session is None else session.random

    def create(self, kind: Kind, namespace: str, body: Obj, options: WriteOptions = DEFAULT) -> Record:
        """Create the object, or raise the error with which the API refuses it."""
        metadata = new_states.begin_metadata(kind, namespace, body.get("metadata"))
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generate_name(kind, namespace, metadata["generateName"])
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = _now()
        if kind.has_generation or kind.custom:
            metadata["generation"] = 1
        new = new_states.compose(kind, body, metadata)
        if kind.has_status:
            new.pop("status", None)
        wrong = new_states.settle(kind, new, None, body.get("metadata"), options)
        if kind.bucket == "pods":
            self._mount_token(new["spec"], namespace)
        if self._gate:
            new = self._gate.mutate("CREATE", kind, new, None, dry_run=options.dry_run)
            wrong = new_states.settle_body(kind, new, None)
        metadata = new["metadata"]
        errors = [*objects.require_name(kind, metadata), *objects.validate_metadata(metadata, None), *wrong]
        if self.guard is not None:
            self.guard(kind, new, None)
        statuses.require_valid(kind, metadata.get("name", ""), errors)
        self._check_namespace_accepts(kind, namespace, metadata["name"])
        if self._gate:
            self._gate.validate("CREATE", kind, new, None, dry_run=options.dry_run)
        if known := self._store.bucket(kind.bucket).records.get((namespace, metadata["name"])):
            is_ending = "deletionTimestamp" in objects.open_record(kind, known)["metadata"]
            raise statuses.already_exists(kind, metadata["name"], is_ending=is_ending)
        _remark(kind, new, None, options)
        self._settle_managers(kind, None, new, options, "")
        return self._put(kind, new, options)

    def _mount_token(self, spec: Obj, namespace: str) -> None:
        accounts = self._registry.find("", "v1", "serviceaccounts")
        record = self._store.bucket("serviceaccounts").records.get((namespace, spec["serviceAccountName"]))
        if accounts is not None and record is not None:
            suffix = "".join(self._random.choices(_SUFFIX_LETTERS, k=5))
            new_states.mount_token(spec, objects.open_record(accounts, record), suffix)

    def update(
        self,
        kind: Kind,
        key: Key,
        transform: Transform,
        *,
        subresource: str = "",
        need_version: bool = False,
        options: WriteOptions = DEFAULT,
    ) -> Record:
        """Replace the object with the result of the function; nothing is written if nothing changes.

        The function must not modify its argument.
        """
        record = self.need(kind, key)
        old = objects.open_record(kind, record)
        new = transform(old)
        if not isinstance(new, dict):
            raise statuses.unprocessable()
        sent, outcome = new.get("metadata"), new
        try:
            new = new_states.take_part(kind, subresource, old, dict(new))
            new = new_states.compose(kind, new, new_states.update_metadata(kind, old, new, need_version, options))
            is_same = (
                codec.same_fields(old, new, ("metadata",))
                and kind.converter is None  # otherwise, what is read can lack defaults
                and not options.repeated
                and not (kind.rules and kind.rules.transitional)
            )
            wrong: list[statuses.FieldError] = []
            if is_same:
                new = {**old, "metadata": new["metadata"]}  # with the numbers as they are stored
            else:
                wrong = new_states.settle(kind, new, old, sent, options)
        except statuses.Undecodable as error:
            if not options.patching or options.applied:
                raise
            raise blame_patch(outcome, error.why) from None
        if self._gate:
            mutated = self._gate.mutate("UPDATE", kind, new, old, subresource=subresource, dry_run=options.dry_run)
            mutated = {**new_states.take_part(kind, subresource, old, dict(mutated)), "metadata": mutated["metadata"]}
            if mutated != new:
                new, wrong = mutated, new_states.settle_body(kind, mutated, old)
        return self._replace(kind, record, old, new, wrong, options, subresource)

    def apply(
        self,
        kind: Kind,
        key: Key,
        applied: Obj,
        *,
        force: bool,
        subresource: str,
        options: WriteOptions,
    ) -> tuple[Record, bool]:
        """Create the object or apply the configuration to it; return whether it is created."""
        options = msgspec.structs.replace(options, applied=True)

        def transform(old: Obj | None) -> Obj | None:
            return managed_fields.apply(
                kind,
                old,
                applied,
                manager=options.manager,
                force=force,
                now=_now(),
                subresource=subresource,
                translate=self._translator(kind),
            )

        record = self._store.bucket(kind.bucket).records.get(key)
        uid = (applied.get("metadata") or {}).get("uid")
        if record is None:
            if subresource:
                raise statuses.not_found(kind, key[1])
            if uid:  # it is another object that was meant, and it exists no more
                text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                raise statuses.conflict(kind, key[1], text)
            return self.create(kind, key[0], transform(None) or applied, options), True
        if uid and uid != record.uid:
            raise new_states.refuse_uid(kind, key[1], uid)
        version = (applied.get("metadata") or {}).get("resourceVersion")
        if version and version != str(record.revision):
            raise statuses.modified(kind, key[1])
        record = self.update(kind, key, lambda old: transform(old) or old, subresource=subresource, options=options)
        return record, False

    def has(self, kind: Kind, key: Key) -> bool:
        return key in self._store.bucket(kind.bucket).records

    def need(self, kind: Kind, key: Key) -> Record:
        """Return the current state of the object, or raise "not found"."""
        record = self._store.bucket(kind.bucket).records.get(key)
        if record is None:
            raise statuses.not_found(kind, key[1])
        return record

    def review_deletion(self, kind: Kind, record: Record, options: DeleteOptions) -> None:
        """Raise the refusal of webhooks for a deletion."""
        if self._gate:
            self._gate.review_deletion(kind, objects.open_record(kind, record), dry_run=bool(options.dryRun))

    def review_connection(self, kind: Kind, key: Key, subresource: str, options: Obj) -> None:
        """Raise the refusal of webhooks for a connection."""
        if self._gate:
            self._gate.review_connection(kind, key, subresource, options)

    def delete(self, kind: Kind, key: Key, options: DeleteOptions | None = None) -> tuple[Record, bool]:
        """Delete the object, or mark it as being deleted if it has finalizers or a grace period.

        Return the last known state, and whether the object is gone.
        """
        options = options or DeleteOptions()
        record = self.need(kind, key)
        _check_preconditions(kind, record, options.preconditions)
        old = objects.open_record(kind, record)
        if kind.bucket == "namespaces" and key[1] in _IMMORTAL:
            raise statuses.forbidden(kind, key[1], "this namespace may not be deleted")
        self.review_deletion(kind, record, options)
        metadata = dict(old["metadata"])
        period = write_options.find_period(kind, old, options.gracePeriodSeconds)
        if period > 0 and metadata.get("deletionGracePeriodSeconds") == period:
            return record, False  # another request changes nothing about the deletion
        finalizers = options.settle_finalizers(list(metadata.get("finalizers") or []))
        if "deletionTimestamp" not in metadata:
            if kind.cleanup_finalizer and kind.cleanup_finalizer not in finalizers:
                finalizers.append(kind.cleanup_finalizer)
            if "generation" in metadata:
                metadata["generation"] += 1
        metadata["finalizers"] = finalizers
        write_options.mark(metadata, period, _now())
        held = bool(finalizers) or period > 0 or _is_held_by_spec(kind, old)
        if not held and not write_options.is_graceful(kind):
            return (record if options.dryRun else self._remove(kind, record)), True
        new = {**old, "metadata": {name: value for name, value in metadata.items() if value != []}}
        if kind.bucket == "namespaces":
            new["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
        record = record if new == old else self._put(kind, new, WriteOptions(dry_run=bool(options.dryRun)))
        return (record, False) if held else (record if options.dryRun else self._remove(kind, record), True)

    def _replace(
        self,
        kind: Kind,
        record: Record,
        old: Obj,
        new: Obj,
        wrong: list[statuses.FieldError],
        options: WriteOptions,
        subresource: str,
    ) -> Record:
        metadata = new["metadata"]
        errors = [*objects.validate_metadata(metadata, old["metadata"]), *wrong]
        if not kind.custom:
            errors += immutables.validate(f"{kind.bucket}/{subresource}" if subresource else kind.bucket, new, old)
        if self.guard is not None:
            self.guard(kind, new, old)
        statuses.require_valid(kind, record.key[1], errors)
        # The status counts only where it is not isolated.
        ignored = ("metadata", "status") if kind.has_status else ("metadata",)
        if "generation" in metadata and not codec.same_fields(old, new, ignored):
            metadata["generation"] += 1
        if self._gate:
            self._gate.validate("UPDATE", kind, new, old, subresource=subresource, dry_run=options.dry_run)
        finished = metadata.get("deletionTimestamp") and not (
            metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        )
        if finished and not _is_held_by_spec(kind, new) and not options.dry_run:
            last = objects.seal(kind, new, record.revision)  # the answer has the old version, as of the real server
            self._remove(kind, last)
            return last
        self._settle_managers(kind, old, new, options, subresource)
        _remark(kind, new, old, options)
        if codec.same(new, old) or (options.applied and _drop_times(new) == _drop_times(old)):
            if objects.is_stored_alike(kind, record, old):
                return record
            new = old  # it is stored in another version, or has fields that this version does not know
        return self._put(kind, new, options)

    def _settle_managers(
        self,
        kind: Kind,
        old: Obj | None,
        new: Obj,
        options: WriteOptions,
        subresource: str,
    ) -> None:
        if not options.applied:
            try:
                managed_fields.settle(
                    kind,
                    old,
                    new,
                    manager=options.manager,
                    always=self._managed_fields,
                    now=_now(),
                    subresource=subresource,
                    translate=self._translator(kind),
                )
            except statuses.APIStatus:  # from a conversion for the managers in another version
                new["metadata"].pop("managedFields", None)

    def _translator(self, kind: Kind) -> Translate:
        """Return a function that converts objects into the versions in which other managers own fields."""

        def translate(obj: Obj, api_version: str) -> tuple[Obj, Topology] | None:
            target = self._registry.find(*_split_version(api_version), kind.plural)
            if target is None or target.bucket != kind.bucket or "uid" not in obj["metadata"]:
                return None
            source = self._registry.find(*_split_version(str(obj["apiVersion"])), kind.plural) or kind
            return objects.open_record(target, objects.seal(source, obj, 0)), target.topology

        return translate

    def _put(self, kind: Kind, obj: Obj, options: WriteOptions) -> Record:
        if options.dry_run:  # nothing happens, so the version is the old one, and a new object has none
            return objects.seal(kind, obj, int(obj["metadata"].get("resourceVersion") or 0))
        record = objects.seal(kind, obj, self._store.next_revision)
        if (size := len(record.data)) > objects.MAX_MESSAGE:
            excess = f"trying to send message larger than max ({size} vs. {objects.MAX_MESSAGE})"
            raise statuses.unknown_error(f"rpc error: code = ResourceExhausted desc = {excess}")
        if size > objects.MAX_OBJECT:
            raise statuses.unknown_error("etcdserver: request is too large")
        self._store.put(kind.bucket, record)
        return record

    def _remove(self, kind: Kind, last: Record) -> Record:
        record = objects.restamp(last, self._store.next_revision)
        self._store.remove(kind.bucket, record)
        return record

    def _generate_name(self, kind: Kind, namespace: str, prefix: str) -> str:
        taken = self._store.bucket(kind.bucket).records
        while True:
            name = prefix[:58] + "".join(self._random.choices(_SUFFIX_LETTERS, k=5))
            if (namespace, name) not in taken:
                return name

    def _check_namespace_accepts(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        namespaces = self._registry.find("", "v1", "namespaces")
        if namespaces is None:
            raise LookupError("the registry has no namespaces")
        record = self.need(namespaces, ("", namespace))
        if record.deleting:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            causes = [
                {
                    "reason": "NamespaceTerminating",
                    "field": "metadata.namespace",
                    "message": f"namespace {namespace} is being terminated",
                }
            ]
            raise statuses.forbidden(kind, name, why, causes)


def _split_version(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version


def _now() -> str:
    session = sessions.current()
    return ages.now() if session is None else session.moment


def _is_held_by_spec(kind: Kind, obj: Obj) -> bool:
    """Namespaces have one more list of finalizers, in the spec."""
    return kind.bucket == "namespaces" and bool((obj.get("spec") or {}).get("finalizers"))


def _remark(kind: Kind, new: Obj, old: Obj | None, options: WriteOptions) -> None:
    if options.remarks is not None and not kind.custom:
        options.remarks.extend(json_fields.limit(pod_warnings.find_warnings(kind.plural, new, old)))


def _check_preconditions(kind: Kind, record: Record, wanted: Preconditions | None) -> None:
    if wanted is None:
        return
    name = record.key[1]
    if wanted.uid is not None and wanted.uid != record.uid:
        raise statuses.conflict(
            kind, name, f"Precondition failed: UID in precondition: {wanted.uid}, UID in object meta: {record.uid}"
        )
    if wanted.resourceVersion is not None and wanted.resourceVersion != str(record.revision):
        raise statuses.conflict(
            kind,
            name,
            f"Precondition failed: ResourceVersion in precondition: {wanted.resourceVersion}, "
            f"ResourceVersion in object meta: {record.revision}",
        )


def _drop_times(obj: Obj) -> Obj:
    """Drop the times of managed fields, which change even if the applied values are the same in another form."""
    metadata = obj["metadata"]
    entries = [{**entry, "time": None} for entry in metadata.get("managedFields") or ()]
    return {**obj, "metadata": {**metadata, "managedFields": entries}}
