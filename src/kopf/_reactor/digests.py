"""
Digests: which states of an object its handlers have seen, so that changes in the middle of the handling are noticed.

The progress of every handler has a digest of what it was called for. When the handling is not over yet and the object
changes again, the handlers that are done by then would never know. See ``docs/decisions/concurrent-changes.md``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable

from kopf._handlers.causes import ChangingCause
from kopf._handlers.handlers import ChangingHandler
from kopf._reactor.causation import detect
from kopf._reactor.progress import find_overtaken, find_seen
from kopf._settings.settings import PersistenceSettings
from kopf._values import codec
from kopf._values.bodies import Body, BodyEssence
from kopf._values.fields import FieldPath, resolve
from kopf._values.reasons import Reason


def make_digest(value: object) -> str:
    """Identify a state: of the whole object, or of a field."""
    return hashlib.blake2b(codec.encode(value), digest_size=6).hexdigest()


class Digests:
    """The digests of one object in one state of it, made when they are first needed."""

    def __init__(
        self,
        cause: ChangingCause,
        extra_fields: Collection[FieldPath],
        persistence: PersistenceSettings,
        *,
        known: str | None = None,
    ) -> None:
        """``known`` is the digest of the whole object, if it is known to be so still; see :meth:`remember`."""
        self._cause = cause
        self._extra_fields = extra_fields
        self._persistence = persistence
        self._digests: dict[FieldPath, str] = {} if known is None else {(): known}

    def get(self, handler: ChangingHandler) -> str | None:
        """Identify what the handler reacts to; creations & deletions happen once, whatever the object is like."""
        return self._get(handler.field) if self._cause.reason in (Reason.UPDATE, Reason.NOOP) else None

    def _get(self, field: FieldPath) -> str:
        if field not in self._digests:
            self._digests[field] = make_digest(resolve(self._cause.new, field))
        return self._digests[field]

    def remember(self) -> str | None:
        """Give the digest of the whole object for the next time, if it was needed, and if we change nothing in it."""
        return None if self._is_patched or self._extra_fields else self._digests.get(())

    @property
    def _is_patched(self) -> bool:
        return bool(self._cause.patch.fns or self._cause.patch.keys() - {"status"})

    def get_after(self) -> Callable[[ChangingHandler], str | None]:
        """
        Identify what the handlers will react to when their own patch is applied.

        They know what they do, so their own changes are not something that they have to see again. For creations, it
        is what they have seen: to know after a restart if that has changed in the middle of the creation.
        """
        if self._cause.reason is Reason.CREATE:
            return lambda handler: self._get(())
        if self._cause.reason is not Reason.UPDATE or not self._is_patched:
            return self.get
        body = Body(self._cause.patch.apply_to(self._cause.body.object))
        detection = detect(body, initial=False, extra_fields=self._extra_fields, persistence=self._persistence)
        return lambda handler: make_digest(resolve(detection.new, handler.field))

    def find_overtaken(self, handlers: Iterable[ChangingHandler]) -> list[ChangingHandler]:
        """Those of the handlers that were called for another change than the actual one."""
        if self._cause.reason not in (Reason.UPDATE, Reason.NOOP):
            return []
        storage = self._persistence.progress_storage
        return list(find_overtaken(handlers, storage=storage, body=self._cause.body, get_digest=self.get))

    def find_baseline(self, handlers: Iterable[ChangingHandler]) -> BodyEssence | None:
        """
        Get the state as of the beginning of the creation.

        If the operator was restarted in the middle, and some handlers have seen another state before that, then that
        one is not known anymore. With an empty one instead, the creation is followed by an update of everything.
        """
        seen = set(find_seen(handlers, storage=self._persistence.progress_storage, body=self._cause.body))
        return BodyEssence() if seen and seen != {self._get(())} else self._cause.new
