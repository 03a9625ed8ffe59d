"""
The life of custom resource definitions: their kinds are served as long as the definitions exist.

The write of a definition serves its kinds immediately; the conditions follow soon, as in a real cluster. A deleted
definition remains until all its objects are gone.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from kopf_cluster.admission.webhook_calls import Caller
from kopf_cluster.control.loops import ControlLoop, Objects, without_finalizer
from kopf_cluster.custom_resources import definitions as customs
from kopf_cluster.custom_resources.converting import Completer, PruningConverter, WebhookConverter
from kopf_cluster.kinds import objects
from kopf_cluster.kinds.kind import Converter, Obj
from kopf_cluster.store.watch_cache import Change, Key, Record

_BUCKET = f"{customs.PLURAL}.{customs.GROUP}"


class Definitions(ControlLoop):
    """Serves the kinds that are defined, and stops serving them."""

    def __init__(self, access: Objects, caller: Caller) -> None:
        super().__init__(access)
        self._caller = caller
        self._kind = access.kind(_BUCKET)

    def observe(self, bucket: str, change: Change) -> None:
        if bucket == _BUCKET:
            self._observe_definition(change)
        elif bucket in self.objects.registry.terminating and change.type == "DELETED":
            self.objects.queue.add(self._clean_up, ("", bucket))

    def _observe_definition(self, change: Change) -> None:
        record = change.record
        bucket = record.key[1]
        if change.type == "DELETED":
            plural, _, group = bucket.partition(".")
            self.objects.registry.discard(group, plural)
            self.objects.registry.terminating.discard(bucket)
            self.objects.store.drop(bucket)
            self._retry_others(group)
            return
        if record.deleting:
            if change.type == "ADDED":  # restored: its objects are still to be deleted
                self._serve(record)
            self.objects.registry.terminating.add(bucket)
            self.objects.queue.add(self._clean_up, record.key)
        elif change.type == "ADDED" or self._is_changed(change):
            self._serve(record)
            self.objects.queue.add(self._establish, record.key)

    def _is_changed(self, change: Change) -> bool:
        if change.previous is None:
            return True
        new, old = (objects.open_record(self._kind, record) for record in (change.record, change.previous))
        return bool(new["spec"] != old["spec"])

    def _find_conflict(self, definition: Obj) -> tuple[str, str] | None:
        """Return the conflict of its names with another served definition of the group, or none."""
        names, group = definition["spec"]["names"], definition["spec"]["group"]
        return customs.find_conflict(
            names,
            [
                kind
                for kind in self.objects.registry.unique_kinds()
                if kind.group == group and kind.plural != names["plural"]
            ],
        )

    def _serve(self, record: Record) -> None:
        definition = objects.open_record(self._kind, record)
        names, group = definition["spec"]["names"], definition["spec"]["group"]
        self.objects.registry.discard(group, names["plural"])
        if self._find_conflict(definition) is not None:
            return
        versions = customs.parse_schemas(definition)
        first, *others = (schema.raw for schema in versions.values())
        converter: Converter | None = None
        if definition["spec"]["conversion"]["strategy"] == "Webhook":
            converter = WebhookConverter(definition, versions, self._caller)
        elif any(other != first for other in others):
            converter = PruningConverter(versions)
        if self.objects.store.bucket(record.key[1]).records:
            converter = Completer(versions, record.revision, converter or Converter())
        for kind in customs.make_kinds(definition, versions):
            self.objects.registry.add(dataclasses.replace(kind, converter=converter))

    def _establish(self, key: Key) -> None:
        """Set the conditions of a served definition."""
        if key not in self.objects.store.bucket(_BUCKET).records:
            return

        def transform(old: Obj) -> Obj:
            conflict = self._find_conflict(old)
            known = (old.get("status") or {}).get("acceptedNames")
            status = {
                **(old.get("status") or {}),
                "acceptedNames": old["spec"]["names"] if conflict is None else known,
            }
            wanted = customs.conditions(conflict=conflict)
            if _outcomes(status) != _outcomes({"conditions": wanted}):
                status["conditions"] = wanted
            return {**old, "status": status}

        self.objects.writer.update(self._kind, key, transform, subresource="status")

    def _retry_others(self, group: str) -> None:
        """Serve the definitions that were waiting for the names of a deleted one."""
        for record in list(self.objects.store.bucket(_BUCKET).select()):
            plural, _, other = record.key[1].partition(".")
            if other == group and not record.deleting and self.objects.registry.find_any_version(group, plural) is None:
                self._serve(record)
                self.objects.queue.add(self._establish, record.key)

    def _clean_up(self, key: Key) -> None:
        """Delete the objects of the definition; finalize it when all are gone."""
        definition = self.objects.store.bucket(_BUCKET).records.get(key)
        plural, _, group = key[1].partition(".")
        kind = self.objects.registry.find_any_version(group, plural)
        if definition is None or not definition.deleting:
            return
        bucket = self.objects.store.bucket(key[1])
        for record in list(bucket.select()):
            if kind is not None and not record.deleting:
                self.objects.writer.delete(kind, record.key)
        self.objects.writer.update(self._kind, key, _mark_terminating, subresource="status")
        if not bucket.records:
            self.objects.writer.update(self._kind, key, lambda old: without_finalizer(old, customs.CLEANUP_FINALIZER))


def _outcomes(status: Obj) -> list[tuple[Any, Any]]:
    """Return the types and statuses of the conditions; conditions of clients may lack any field."""
    return [(item.get("type"), item.get("status")) for item in status.get("conditions") or ()]


def _mark_terminating(old: Obj) -> Obj:
    status = old.get("status") or {}
    if any(kind == "Terminating" for kind, _ in _outcomes(status)):
        return old
    return {**old, "status": {**status, "conditions": customs.conditions(terminating=True)}}
