"""The facts of admission: reviews come in, and are answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopf._facts.bus import Fact
from kopf._values.reviews import Response


class ReviewBegun(Fact, frozen=True, eq=False):
    """A review is going to be answered."""

    webhook: str | None
    """For which handler it is, if the server knows."""
    payload: Mapping[str, Any]
    """The whole of it."""
    headers: Mapping[str, str] = {}
    """Those of the request that has brought it, if there is one; there can be credentials."""
    is_authenticated: bool = False
    """Whether the caller has shown a certificate that was verified: anybody can have sent the rest."""
    at: float = 0.0


class ReviewEnded(Fact, frozen=True, eq=False):
    """It is answered, or cannot be."""

    begun: ReviewBegun
    response: Response | None
    """``None`` if the review made no sense, or nobody waits for the answer anymore."""
    at: float = 0.0
