"""
Moves of slots: this replica of the operator gets objects, and hands objects over to others; see :class:`Share`.

All data that must survive a move is on the objects themselves before the move.
"""

from __future__ import annotations

import asyncio

from kopf._controller.runtime import Runtime
from kopf._operator.watchers import Watchers
from kopf._values.slots import Slots, get_slot


class SlotMoves:
    """Takes over and hands over the objects of slots."""

    def __init__(self, runtime: Runtime, watchers: Watchers) -> None:
        self._runtime = runtime
        self._watchers = watchers
        self._share = runtime.share

    def take_over(self, slots: Slots) -> None:
        """
        Handle the objects of these slots, too, as after a restart of the operator; stop leaving those among them.

        The fence must be open.
        """
        share = self._share
        gained = slots - share.slots
        share.slots |= slots
        share.leaving -= slots
        if share.fence is not None:
            self._runtime.context.run(share.fence.enter)
        self._hold_leaving()
        if gained:
            self._watchers.take_over(gained)

    async def hand_over(self, slots: Slots, timeout: float) -> Slots:
        """
        Leave the objects of these slots: begin nothing, wait for what runs, forget them; no deletions are seen.

        Functions that run longer than the timeout (in seconds) are cancelled, except in threads. Return the slots that
        could not be left: functions in threads still run there, or others ignore their cancellation. These slots are
        still ours, but nothing begins there. Slots that were taken over again meanwhile are ours as before.
        """
        share = self._share
        share.leaving |= slots & share.slots
        self._hold_leaving()
        await self._leave(slots, timeout, is_urgent=False)
        running = [key for watcher in self._watchers.list_all() for key in watcher.controller.list_running()]
        busy = {get_slot(key) for key in (*running, *self._runtime.executor.list_abandoned())}
        self._forget((slots & share.leaving) - busy)
        return slots & share.slots

    async def give_up(self) -> None:
        """Leave all objects at once: begin nothing, cancel everything, save nothing, forget everything."""
        share = self._share
        if share.fence is not None:
            share.fence.shut()
        share.leaving = share.slots
        self._hold_leaving()
        await self._leave(share.slots, 0, is_urgent=True)
        self._forget(share.slots)

    async def _leave(self, slots: Slots, timeout: float, *, is_urgent: bool) -> None:
        def covers(key: str) -> bool:
            return get_slot(key) in slots

        controllers = [watcher.controller for watcher in self._watchers.list_all()]
        await asyncio.gather(*(item.leave(covers, timeout, is_urgent=is_urgent) for item in controllers))

    def _forget(self, slots: Slots) -> None:
        self._share.slots -= slots
        self._share.leaving -= slots
        for watcher in self._watchers.list_all():
            watcher.hand_over(slots)
        self._runtime.memos.hand_over(slots)
        self._hold_leaving()

    def _hold_leaving(self) -> None:
        self._runtime.pause.hold_some(self._share.is_being_left if self._share.leaving else None)
