"""The reasons of calls: the detected changes of objects, and the activities of the operator."""

from __future__ import annotations

import enum
from typing import Final, Literal


class Reason(enum.StrEnum):
    """The reason of a call: the change of the object that Kopf has detected."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RESUME = "resume"
    NOOP = "noop"
    FREE = "free"
    GONE = "gone"


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
    CLEANUP = "cleanup"
    AUTHENTICATION = "authentication"
    PROBE = "probe"
