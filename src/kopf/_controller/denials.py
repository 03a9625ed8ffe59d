"""
Denials: what the operator is not permitted to list or watch, said once, until it changes.

Where only the listing is permitted, everything is listed again and again instead of being watched.
"""

from __future__ import annotations

from collections.abc import Collection

from kopf._client.resources.watch_machine import LISTED, State, WatchEvent, WatchMachine

BACKOFF = 60.0
"""How often to check if it is permitted now, in seconds. The permissions are not something that changes often."""


class Denials:
    """The denied verbs of one watcher, whose state of mind is in the machine."""

    def __init__(self, machine: WatchMachine) -> None:
        self._machine = machine
        self._verbs: set[str] = set()

    def deny(self) -> str | None:
        """Note that the last request was denied. Give the verb of it, unless it was already denied before."""
        verb = "list"
        if self._machine.state is State.WATCHING:
            verb = "watch"
            self._machine.expire()
        is_new = verb not in self._verbs
        self._verbs.add(verb)
        return verb if is_new else None

    def permit(self, events: Collection[WatchEvent]) -> None:
        """Note that something has come, so it is permitted."""
        if self._verbs:
            is_listing = self._machine.state is not State.WATCHING or any(event is LISTED for event in events)
            self._verbs.discard("list" if is_listing else "watch")
