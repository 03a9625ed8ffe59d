"""
SeenStates: which states of an object its handlers have seen, so that they see changes in the middle of the handling.

The progress of every handler has a digest of the state that it was called for. Without it, finished handlers would
never know about changes before the end of the handling. See ``docs/decisions/concurrent-changes.md``.
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
    """Make an identifier of a state, of the whole object or of a field, regardless of the order of keys."""
    return hashlib.blake2b(codec.encode_sorted(value), digest_size=6).hexdigest()


class SeenStates(Record, eq=False):
    """The digests of one state of an object, made when they are first needed."""

    reason: Reason
    _snapshot: bytes | None
    whole: str | None = None
    """The digest of the whole object, if already known."""
    _essence: BodyEssence | None = None
    _digests: dict[FieldPath, str] | None = None

    def get(self, handler: ChangingHandler) -> str | None:
        """
        Return the digest of the state that the handler reacts to: if it has seen another one, it must be called.

        Creations, deletions, and resumings happen once, whatever the object is like.
        """
        if handler.initial or self.reason not in (Reason.UPDATE, Reason.NOOP):
            return None
        return self._get(handler.field)

    def get_seen(self, handler: ChangingHandler) -> str | None:
        """
        Return the digest of the state that the handler sees if it is called now.

        For creations, it is the whole object: to know after a restart if it has changed in the middle of the creation.
        """
        return self.get_whole() if self.reason is Reason.CREATE else self.get(handler)

    def get_noted(self, handler: ChangingHandler, *, is_final: bool) -> str | None:
        """Return the digest to note after a call; unfinished creations will see later states anyway."""
        is_needed = is_final or self.reason is not Reason.CREATE or isinstance(handler, ReconcilingHandler)
        return self.get_seen(handler) if is_needed else None

    def get_whole(self) -> str:
        """Return the digest of the whole object."""
        if self.whole is None:
            self.whole = self._make(())
        return self.whole

    def compare(self, other: SeenStates) -> Iterator[tuple[str, str]]:
        """
        Yield the digests of both states: of the whole objects, and of all their changed parts.

        Single values are left out: the same value can be in many fields, and would be confused.
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
