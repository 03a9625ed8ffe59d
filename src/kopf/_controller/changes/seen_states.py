"""
SeenStates: which states of an object its handlers have seen, so that changes in the middle of the handling are noticed.

The progress of every handler has a digest of what it was called for. When the handling is not over yet and the object
changes again, the handlers that are done by then would never know. See ``docs/decisions/concurrent-changes.md``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from kopf._handlers.handlers import ChangingHandler, ReconcilingHandler
from kopf._values import codec
from kopf._values.bodies import BodyEssence
from kopf._values.diffs import diff
from kopf._values.fields import FieldPath, resolve
from kopf._values.reasons import Reason
from kopf._values.records import Record


def make_digest(value: object) -> str:
    """Identify a state: of the whole object, or of a field; the order of the keys does not matter."""
    return hashlib.blake2b(codec.encode_sorted(value), digest_size=6).hexdigest()


class SeenStates(Record, eq=False):
    """The digests of one object in one state of it, made when they are first needed."""

    reason: Reason
    _snapshot: bytes | None
    whole: str | None = None
    """The digest of the whole object, if it is known or was needed."""
    _essence: BodyEssence | None = None
    _digests: dict[FieldPath, str] | None = None

    def get(self, handler: ChangingHandler) -> str | None:
        """
        Identify what the handler reacts to: if that is not what it has seen, it has to see it.

        Creations, deletions, and resumings happen once, whatever the object is like.
        """
        if handler.initial or self.reason not in (Reason.UPDATE, Reason.NOOP):
            return None
        return self._get(handler.field)

    def get_seen(self, handler: ChangingHandler) -> str | None:
        """
        Identify what the handler sees when it is called now.

        For creations, it is the whole object: to know after a restart if it has changed in the middle of the creation.
        """
        return self.get_whole() if self.reason is Reason.CREATE else self.get(handler)

    def get_noted(self, handler: ChangingHandler, *, is_final: bool) -> str | None:
        """Identify what is to be noted after a call: unfinished creations will see the object as it becomes."""
        is_needed = is_final or self.reason is not Reason.CREATE or isinstance(handler, ReconcilingHandler)
        return self.get_seen(handler) if is_needed else None

    def get_whole(self) -> str:
        """Identify the whole object."""
        if self.whole is None:
            self.whole = self._make(())
        return self.whole

    def compare(self, other: SeenStates) -> Iterator[tuple[str, str]]:
        """
        Get the digests of both states: of the whole objects, and of all their changed parts.

        Single values are not compared: the same one can be in many fields, and would be taken for another one.
        """
        changed = [item.field for item in diff(self._get_essence(), other._get_essence())]
        for field in dict.fromkeys(path[:length] for path in changed for length in range(len(path))):
            yield self._get(field), other._get(field)

    def _get(self, field: FieldPath) -> str:
        if not field:
            return self.get_whole()
        if self._digests is None:
            self._digests = {}
        if (digest := self._digests.get(field)) is None:
            digest = self._digests[field] = self._make(field)
        return digest

    def _make(self, field: FieldPath) -> str:
        return make_digest(resolve(self._get_essence(), field))

    def _get_essence(self) -> BodyEssence | None:
        if self._essence is None and self._snapshot is not None:
            self._essence = codec.decode(self._snapshot)
        return self._essence
