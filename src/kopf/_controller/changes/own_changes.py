"""
Own changes: the effects of the handlers' patches on the object that they handle.

Handlers know their own changes: they need not see them again, neither as an update in the middle of the handling nor
after it. In a creation, they become a part of the created state.
"""

from __future__ import annotations

from typing import cast

from kopf._controller.changes.progress import Progress
from kopf._controller.changes.seen_states import SeenStates
from kopf._storage.snapshots import Snapshots
from kopf._values import codec
from kopf._values.bodies import BodyEssence
from kopf._values.diffs import diff
from kopf._values.fields import ensure, resolve, without
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch, thaw


class OwnChanges:
    """The changes by the handlers of one pass."""

    def __init__(self, snapshots: Snapshots, obj: KubeObject, seen: SeenStates, *, snapshot: bytes) -> None:
        self._snapshots = snapshots
        self._obj = obj
        self._seen = seen
        self._snapshot = snapshot

    def expect(self, patch: Patch, progress: Progress) -> tuple[Progress, bytes | None]:
        """
        Return the progress and the snapshot of the object as they will be with the patch applied.

        The snapshot is ``None`` if the patch does not change the essence, by which changes are detected.
        """
        if not (patch.fns or patch.keys() - {"status"} or (patch and self._snapshots.extra_fields)):
            return progress, None
        expected = self._snapshots.take(KubeObject.from_dict(patch.apply_to(self._obj)))
        progress = progress.copy()
        progress.account_for(self._seen, SeenStates(self._seen.reason, expected))
        return progress, expected

    def compare(self, expected: bytes, obj: KubeObject, progress: Progress) -> bytes:
        """
        Return the snapshot with the expected changes as they really are on the object: the API can alter them.

        This corrects the progress accordingly; then some of its states are unsaved.
        """
        before, after = codec.decode(self._snapshot), codec.decode(self._snapshots.take(obj))
        state = take_over(before, codec.decode(expected), after)
        if state == codec.decode(expected):
            return expected
        actual = codec.encode(state)
        reason = self._seen.reason
        progress.account_for(SeenStates(reason, expected), SeenStates(reason, actual))
        return actual

    def carry_over(self, baseline: bytes | None, expected: bytes | None) -> bytes | None:
        """Make the changes by the handlers also in the state as of the beginning of a creation."""
        if expected is None or baseline is None:
            return baseline
        if baseline == self._snapshot:
            return expected
        states = (codec.decode(baseline), codec.decode(self._snapshot), codec.decode(expected))
        return codec.encode(carry_over(*states))


def carry_over(state: BodyEssence, before: BodyEssence, after: BodyEssence) -> BodyEssence:
    """Make the changes between the two other states in this state, too."""
    result = thaw(state)
    for item in diff(before, after):
        if item.new is None:
            result = without(result, item.field)
        else:
            ensure(result, item.field, item.new)
    return cast(BodyEssence, result)


def take_over(before: BodyEssence, expected: BodyEssence, seen: BodyEssence) -> BodyEssence:
    """Make the expected changes of the state, but with the values that are really there afterwards."""
    result = thaw(before)
    for item in diff(before, expected):
        value = resolve(seen, item.field)
        if value is None:
            result = without(result, item.field)
        else:
            ensure(result, item.field, value)
    return cast(BodyEssence, result)
