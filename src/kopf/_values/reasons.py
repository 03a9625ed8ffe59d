"""The reasons of calls: the detected changes of objects, and the activities of the operator."""

from __future__ import annotations

import enum
from typing import Final, Literal


class Reason(enum.StrEnum):
    """The reason of a call: the change of the object that Kopf has detected."""

    CREATE = "create"
    """The object is new to the operator: nothing has handled it before."""
    UPDATE = "update"
    """The essence of the object differs from the last handled one."""
    DELETE = "delete"
    """The object is being deleted, and handlers must be called before it goes."""
    RESUME = "resume"
    """Nothing has changed, but the operator sees the object for the first time since its start."""
    NOOP = "noop"
    """Nothing has changed that handlers are called for."""
    FREE = "free"
    """The object is in deletion, and Kopf no longer blocks it: the finalizers of others can."""
    GONE = "gone"
    """The object does not exist any more."""


# For the hot path: in Python 3.11, access to a member of an enumeration is slow.
CREATE: Final = Reason.CREATE
UPDATE: Final = Reason.UPDATE
DELETE: Final = Reason.DELETE
RESUME: Final = Reason.RESUME
NOOP: Final = Reason.NOOP
FREE: Final = Reason.FREE


class WebhookType(enum.StrEnum):
    """The rights of a webhook: to deny changes, or to modify them, too."""

    VALIDATING = "validating"
    MUTATING = "mutating"


Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
"""The requested operation on an object, in an admission review."""


class Activity(enum.StrEnum):
    """An activity of the operator itself, with its own handlers."""

    STARTUP = "startup"
    """The handlers of ``@kopf.on.startup``, before the operator does anything else."""
    CLEANUP = "cleanup"
    """The handlers of ``@kopf.on.cleanup``, after the operator has done everything else."""
    AUTHENTICATION = "authentication"
    """The handlers of ``@kopf.on.login``, at the start and when the credentials no longer work."""
    PROBE = "probe"
    """The handlers of ``@kopf.on.probe``, for requests to the health endpoint."""
