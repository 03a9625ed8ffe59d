"""Why something is being handled: the detected reasons of the objects' changes, and the operator's activities."""

from __future__ import annotations

import enum
from typing import Final, Literal


class Reason(enum.StrEnum):
    """What has happened to the object."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RESUME = "resume"
    NOOP = "noop"
    FREE = "free"
    GONE = "gone"


# For what is done for every object: in Python 3.11, each mention of a member of an enumeration is a slow search for it.
CREATE: Final = Reason.CREATE
UPDATE: Final = Reason.UPDATE
DELETE: Final = Reason.DELETE
RESUME: Final = Reason.RESUME
NOOP: Final = Reason.NOOP
FREE: Final = Reason.FREE


class WebhookType(enum.StrEnum):
    """What a webhook may do with the changes that it is asked about."""

    VALIDATING = "validating"
    MUTATING = "mutating"


Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
"""What is asked to be done with the object; in the terms of admission."""


class Activity(enum.StrEnum):
    """What the operator itself is doing."""

    STARTUP = "startup"
    CLEANUP = "cleanup"
    AUTHENTICATION = "authentication"
    PROBE = "probe"
