"""
How to write: the options of creations, updates, and patches, and those of deletions.
"""
from __future__ import annotations

from typing import Any, Final

import msgspec

#: Who writes if it is nobody from outside.
CONTROLLER: Final = "kube-controller-manager"

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"

#: The policies of propagation, and the finalizers by which the garbage collector knows of them.
POLICIES: Final[dict[str, tuple[str, ...]]] = {"Foreground": (FOREGROUND,), "Background": (), "Orphan": (ORPHAN,)}


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

    def settle_finalizers(self, finalizers: list[str]) -> list[str]:
        """Give the finalizers with the one by which the garbage collector knows what to do with the dependents.

        If nothing is wanted, they are as they were, and so decide themselves.
        """
        policy = self.propagationPolicy
        if self.orphanDependents is not None:
            policy = "Orphan" if self.orphanDependents else "Background"
        if policy is None:
            return finalizers
        wanted = POLICIES[policy]
        if set(wanted) == {FOREGROUND, ORPHAN} & set(finalizers):
            return finalizers
        return [*(one for one in finalizers if one not in (FOREGROUND, ORPHAN)), *wanted]


class WriteOptions(msgspec.Struct, frozen=True):
    """How to write: for real or not, and what to do about unknown fields."""

    dry_run: bool = False
    strict: bool = False
    """Whether unknown and repeated fields are refused."""
    repeated: tuple[str, ...] = ()
    """Notes about the fields that are more than once in what was sent."""
    text: bytes = b""
    """The whole object as it was sent in JSON, if it was."""
    warnings: list[str] | None = None
    """Where to add the warnings about unknown fields; absent if nobody wants them."""
    remarks: list[str] | None = None
    """Where to add what is odd in the object as such; absent if nobody listens."""
    manager: str = CONTROLLER
    """Who writes, as they call themselves."""
    agent: str = ""
    """Which program writes, if they do not tell."""
    applied: bool = False
    """Whether the managed fields are settled already."""
    patching: bool = False
    """Whether the new state is made by a patch, so that it is the patch to blame for what is wrong."""
    strategic: dict[str, Any] | None = None
    """The strategic merge-patch by which the new state is made, if it is one."""


DEFAULT: Final = WriteOptions()
