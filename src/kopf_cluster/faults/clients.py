"""
Which clients are hit: those of a user, or those that call themselves something; everybody by default.
"""
from __future__ import annotations

import re

import msgspec

from kopf_cluster.requests import Request


def check_pattern(pattern: str | None) -> None:
    """Raise `ValueError` if it is not a regular expression."""
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None


def is_of(request: Request, user: str | None, agent: str | None) -> bool:
    """Whether the request is of the user with this name, and of an agent with this regular expression in its name."""
    return ((user is None or user == request.user.name)
            and (agent is None or re.search(agent, request.agent) is not None))


class Clients(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some of the clients, or all of them."""

    user: str | None = None
    agent: str | None = None

    def __post_init__(self) -> None:
        check_pattern(self.agent)

    def include(self, request: Request) -> bool:
        return is_of(request, self.user, self.agent)


EVERYBODY = Clients()
