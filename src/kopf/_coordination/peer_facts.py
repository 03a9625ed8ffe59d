"""The facts of the coordination: who else works."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopf._facts.bus import Fact


class PeersSeen(Fact, frozen=True, eq=False):
    """A peering object was looked at."""

    place: str
    """Which one, for humans."""
    identity: str
    """How the operator itself is called there."""
    records: Mapping[str, Any]
    """The records of all, as they are there: they can be anything. There are none if the object is absent."""
