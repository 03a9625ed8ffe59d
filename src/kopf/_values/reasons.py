"""Why something is being handled: the detected reasons of the objects' changes, and the operator's activities."""

from __future__ import annotations

import enum


class Reason(str, enum.Enum):
    """What has happened to the object."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RESUME = "resume"
    NOOP = "noop"
    FREE = "free"
    GONE = "gone"

    def __str__(self) -> str:
        return str(self.value)


class Activity(str, enum.Enum):
    """What the operator itself is doing."""

    STARTUP = "startup"
    CLEANUP = "cleanup"
    AUTHENTICATION = "authentication"
    PROBE = "probe"
