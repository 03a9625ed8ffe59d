"""
A world for replicas: a store of Leases, a network that delays, loses, and doubles back, and processes with clocks of
their own, which freeze and die. Time is simulated. All that is random comes from one seed.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import replace

from kopf._coordination.lease_renewal import Step
from kopf._coordination.leases import LEADER, SHARDS, Lease, Terms
from kopf._coordination.replica_protocol import Replica

SLOTS = frozenset(range(8))
TIMEOUT = 2.5


@dataclasses.dataclass
class Network:
    """How bad the network is for one process; the times are in seconds."""

    delay: float = 0.05
    lag: float = 0.1
    loss: float = 0.0
    is_cut: bool = False
    is_deaf: bool = False
    """Whether the watch is silent, though requests are answered."""
    refused: str = ""
    """The Lease of which no requests arrive."""


class Process:
    """One replica, and what surrounds it; its clock has a rate and an offset of its own."""

    def __init__(self, world: World, number: int, terms: Terms) -> None:
        self.world = world
        self.number = number
        self.rate = world.random.uniform(0.97, 1.03)
        self.offset = world.random.uniform(0, 1_000_000)
        self.network = Network()
        self.drain = 0.1
        self.is_running = True
        self.is_frozen = False
        self.is_stopping = False
        self.postponed: list[Callable[[], None]] = []
        self.drains: list[Callable[[], None]] = []
        self.over: set[str] = set()
        """The lives that were past their deadline."""
        self.life = 0
        self.events: collections.deque[Callable[[], None]] = collections.deque()
        self.watched_at = 0.0
        names = (f"{terms.identity}_{number}-{life}" for life in itertools.count())
        self.replica = Replica(terms, names.__next__)
        self.wakes = 0

    @property
    def now(self) -> float:
        return self.offset + self.world.now * self.rate

    @property
    def hands(self) -> frozenset[int]:
        """What it acts upon now."""
        if not self.is_running or self.now >= self.replica.renewal.deadline:
            return frozenset()
        return self.replica.acting | self.replica.draining

    def later(self, delay: float, fn: Callable[[], None]) -> None:
        """Do it in this process, unless it dies; after the freeze, if it is frozen."""

        def run() -> None:
            if self.is_frozen:
                self.postponed.append(run)
            elif self.is_running:
                if self.replica.is_alive and self.now >= self.replica.renewal.deadline:
                    self.over.add(self.replica.name)
                fn()
                is_back = self.now < self.replica.renewal.deadline and self.replica.name in self.over
                assert not is_back, "what is over, remains over"

        self.world.later(delay, run)

    def catch_up(self) -> None:
        """What has not come by the watch, comes now, in its order."""
        while self.events:
            self.later(0, self.events.popleft())
        self.watched_at = self.world.now

    def step(self) -> None:
        self.wakes += 1
        wake = self.wakes
        step = self.replica.step(self.now)
        self.world.check(self, step)
        assert step.wake_at > self.now, "it never sleeps"
        self.perform(step)
        self.later((step.wake_at - self.now) / self.rate, lambda: self.step() if wake == self.wakes else None)

    def perform(self, step: Step) -> None:
        if step.gave_up:
            self.life += 1
            self.drains.clear()
            self.later(self.world.random.uniform(0, 0.5), self.tell(self.replica.accept_stop))
            return
        life = self.life
        if step.left:

            def end(left: frozenset[int] = step.left) -> None:
                if end in self.drains and life == self.life:
                    self.drains.remove(end)
                    self.replica.accept_end(left)
                    self.step()

            self.drains.append(end)
            self.later(self.drain * self.world.random.uniform(0.5, 1), end)
        for lease in step.writes:
            self.request(lease.name, lambda lease=lease: self.world.write(lease), self.accept_write)  # type: ignore[misc]
        for name in step.reads:
            read = self.accept_read
            self.request(name, lambda name=name: self.world.store.get(name), read)  # type: ignore[misc]
        if step.is_listing:
            self.request("", self.world.list_labelled, self.accept_list)

    def tell(self, fn: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            fn()
            self.step()

        return run

    def request(self, name: str, serve: Callable[[], object], accept: Callable[[str, object], None]) -> None:
        rnd, network, life = self.world.random, self.network, self.life
        answered = False
        started = self.now

        def fail() -> None:
            if not answered and life == self.life:
                self.replica.accept_failure(name, started)
                self.step()

        def arrive() -> None:
            answer = serve()
            if rnd.random() < network.loss or network.is_cut:
                return
            self.later(rnd.random() * network.delay, lambda: respond(answer))

        def respond(answer: object) -> None:
            nonlocal answered
            if not answered and self.world.now < deadline:
                answered = True
                if life == self.life:
                    accept(name, answer)
                    self.step()

        deadline = self.world.now + TIMEOUT
        self.later(TIMEOUT, fail)
        if rnd.random() >= network.loss and not network.is_cut and name != (network.refused or None):
            self.world.later(rnd.random() * network.delay, arrive)

    def accept_write(self, name: str, answer: object) -> None:
        self.replica.accept_write(name, answer if isinstance(answer, Lease) else None, self.now)

    def accept_read(self, name: str, answer: object) -> None:
        assert answer is None or isinstance(answer, Lease)
        self.replica.accept_read(name, answer, self.now)

    def accept_list(self, name: str, answer: object) -> None:
        assert isinstance(answer, list)
        self.replica.accept_listing(answer, self.now)

    def watch(self, lease: Lease, is_deleted: bool) -> None:
        """The events come in their order, and late."""
        at = max(self.watched_at + 0.001, self.world.now + self.world.random.random() * self.network.lag)
        self.watched_at = at

        def take() -> None:
            if is_deleted:
                self.replica.observed.observe_absence(lease.name, lease.version, self.now)
            else:
                self.replica.observe(lease, self.now)
            self.step()

        def come() -> None:
            if self.events and not (self.network.is_cut or self.network.is_deaf):
                self.events.popleft()()

        self.events.append(take)
        self.later(at - self.world.now, come)


class World:
    """All of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.version = 1000
        self.store: dict[str, Lease] = {}
        self.processes: list[Process] = []
        self.moves = 0
        self.writes = 0
        self.tokens: dict[int, tuple[int, str]] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def later(self, delay: float, fn: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._numbers), fn))

    def run(self, until: float) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _, fn = heapq.heappop(self._queue)
            fn()
        self.now = until

    def run_until(self, condition: Callable[[], bool], limit: float) -> float:
        """Run until the condition holds; give how long this took, or more than the limit."""
        started = self.now
        while not condition() and self.now - started <= limit and self._queue:
            self.now, _, fn = heapq.heappop(self._queue)
            fn()
        return self.now - started

    # ------------------------------------------------------------------ the server

    def write(self, lease: Lease) -> Lease | None:
        known = self.store.get(lease.name)
        if lease.version != ("" if known is None else known.version):
            return None
        self.version += self.random.randint(1, 3)
        self.writes += 1
        holders = [item.holder for name, item in self.store.items() if name not in ("op", lease.name)]
        assert lease.name == "op" or not lease.holder or lease.holder not in holders, "it has two Leases"
        lease = self.store[lease.name] = replace(
            lease, version=str(self.version), acquired=lease.acquired or "now", is_ours=True
        )
        for process in self.processes:
            process.watch(lease, is_deleted=False)
        self.check_reports()
        return lease

    def list_labelled(self) -> list[Lease]:
        return [lease for lease in self.store.values() if lease.is_ours]

    def remove_label(self, name: str) -> None:
        """For those who select Leases by the label, the Lease is gone."""
        lease = self.store[name]
        self.delete(name)
        self.store[name] = replace(lease, version=str(self.version), is_ours=False)

    def delete(self, name: str) -> None:
        if (lease := self.store.pop(name, None)) is not None:
            self.version += 1
            for process in self.processes:
                process.watch(replace(lease, version=str(self.version)), is_deleted=True)

    # ------------------------------------------------------------------ the processes

    def check_reports(self) -> None:
        """Nothing is handled that is not reported in the Lease, also if a write has arrived late."""
        lives = [item for name, item in self.store.items() if (name == "op") == (item.report.mode == LEADER)]
        held = {lease.holder: lease.report.held for lease in lives}
        for process in self.processes:
            name = process.replica.name
            assert process.hands <= held.get(name, process.hands), f"{name} does not report what it handles"

    def start(self, terms: Terms) -> Process:
        process = Process(self, len(self.processes), terms)
        self.processes.append(process)
        process.later(0, process.step)
        return process

    def stop(self, process: Process) -> None:
        """Gracefully; it does not notice that while it is frozen."""
        process.is_stopping = True
        process.later(0, process.tell(lambda: setattr(process.replica, "is_leaving", True)))

    def crash(self, process: Process) -> None:
        process.is_running = False

    def freeze(self, process: Process) -> None:
        process.is_frozen = True

    def thaw(self, process: Process) -> None:
        """All that has happened meanwhile comes at once, in any order."""
        if process.is_frozen:
            process.is_frozen = False
            postponed, process.postponed = process.postponed, []
            self.random.shuffle(postponed)
            for fn in postponed:
                self.later(self.random.random() * 0.01, fn)

    def get_lease_name(self, process: Process) -> str:
        """Get the name of the Lease that a replica with shards lives by."""
        return next(name for name, item in self.store.items() if name != "op" and item.holder == process.replica.name)

    @property
    def working(self) -> list[Process]:
        return [p for p in self.processes if p.is_running and not p.is_stopping]

    @property
    def owners(self) -> dict[int, str]:
        return {slot: process.replica.name for process in self.processes for slot in process.hands}

    @property
    def is_whole(self) -> bool:
        return self.owners.keys() == SLOTS

    @property
    def shares(self) -> list[int]:
        return sorted(len(process.hands) for process in self.working)

    @property
    def is_balanced(self) -> bool:
        """Everything has an owner, and the shares are equal if all have shares."""
        is_shared = all(process.replica.terms.mode == SHARDS for process in self.working)
        return self.is_whole and not (is_shared and max(self.shares) - min(self.shares) > 1)

    def check(self, process: Process, step: Step) -> None:
        """No slot is in two hands, also not for a moment; tokens grow with every owner."""
        self.check_reports()
        for slot in process.hands:
            others = [p.replica.name for p in self.processes if p is not process and slot in p.hands]
            assert not others, f"{slot} is in the hands of {process.replica.name} and {others} at {self.now}"
        for slot in step.taken:
            self.moves += 1
            assert process.replica.assignment is not None
            token, owner = process.replica.assignment.get_token(slot, process.replica.name), process.replica.name
            last, former = self.tokens.get(slot, (0, ""))
            assert token > last or (token == last and owner == former), (slot, token, owner, last, former)
            self.tokens[slot] = (token, owner)
        if process.is_running and self.now < process.replica.renewal.deadline:
            held = process.replica.acting | process.replica.draining
            assert held <= SLOTS
