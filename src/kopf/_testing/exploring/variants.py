"""
Variants: with which trouble the same story is told, one by one.

Each is one line of code on a simulation, which is executed, and printed to those who are to repeat it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Literal, get_args

from kopf._testing.exploring.deletions import delete_created
from kopf._testing.exploring.final_states import Story
from kopf._testing.simulation import Simulation
from kopf_cluster import FaultRule

TroubleKind = Literal[
    "deletion",
    "crash",
    "refusal",
    "lost answer",
    "downtime",
    "view",
    "late event",
    "doubled event",
    "stale event",
    "watch",
    "order",
]
TROUBLES: tuple[TroubleKind, ...] = get_args(TroubleKind)
"""All kinds of trouble that there are."""

_STALE = 30
"""How long views are stale, in seconds: longer than any reasonable cache, and shorter than the default retries."""
_DOWNTIME = 10
"""How long the operator is away, in seconds."""
_ORDERS = 5
"""How many other orders of events are tried."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """The story with some trouble."""

    name: str
    kind: TroubleKind
    code: str = ""
    """How to make the trouble, in Python, for a ``simulation``."""
    seed: int | None = None
    """Another seed than that of the story without trouble, if it matters."""
    ending: Literal["", "deletion", "deletion during downtime"] = ""
    """Whether everything is deleted in the end, and it is looked for what is left."""
    is_harmed: bool = False
    """Whether requests are refused or broken, so that errors of clients are natural."""
    is_test_judged: bool = True
    """Whether the test must pass with that."""

    def make_trouble(self, simulation: Simulation) -> None:
        """Execute the code: exactly what is printed for those who repeat it."""
        known = {"FaultRule": FaultRule, "delete_created": delete_created, "simulation": simulation}
        exec(compile(self.code, f"<{self.name}>", "exec"), known)


def make_variants(story: Story) -> Iterator[Variant]:
    """
    Make all variants of the story, one of each kind in turn.

    So, whatever the budget is, something of every kind is tried, and no long story spends all of it on one of them.
    """
    for turn in itertools.zip_longest(*(_MAKERS[kind](story) for kind in TROUBLES)):
        yield from (variant for variant in turn if variant is not None)


def _make_deletions(story: Story) -> Iterator[Variant]:
    yield Variant(name="deletion", kind="deletion", ending="deletion")
    yield Variant(name="deletion during downtime", kind="deletion", ending="deletion during downtime")
    for n in range(1, story.writes + 1):
        yield Variant(
            name=f"deletion at write {n}",
            kind="deletion",
            ending="deletion",
            is_test_judged=False,
            code=f"simulation.when(write={n}, do=lambda: delete_created(simulation))",
        )


def _make_crashes(story: Story) -> Iterator[Variant]:
    for n in range(1, story.writes + 1):
        yield Variant(
            name=f"crash after write {n}",
            kind="crash",
            code=f"simulation.crash_after(write={n}, restart=True)",
        )
        yield Variant(
            name=f"crash before write {n}",
            kind="crash",
            code=f"simulation.crash_after(write={n}, before=True, restart=True)",
        )


def _make_refusals(story: Story) -> Iterator[Variant]:
    for n in range(1, story.writes + 1):
        for status in (409, 500):
            yield Variant(
                name=f"write {n} refused ({status})",
                kind="refusal",
                is_harmed=True,
                code=f"simulation.when(write={n}, do=lambda: FaultRule(status={status}))",
            )


def _make_lost_answers(story: Story) -> Iterator[Variant]:
    for n in range(1, story.writes + 1):
        yield Variant(
            name=f"write {n} unanswered",
            kind="lost answer",
            is_harmed=True,
            code=f'simulation.when(write={n}, do=lambda: FaultRule(action="lose-answer"))',
        )


def _make_downtimes(story: Story) -> Iterator[Variant]:
    for n in range(1, story.steps + 1):
        yield Variant(
            name=f"restart at step {n}",
            kind="downtime",
            code=f"simulation.when(step={n}, do=simulation.restart_now)",
        )
        yield Variant(
            name=f"downtime at step {n}",
            kind="downtime",
            code=f"simulation.when(step={n}, do=lambda: simulation.downtime_now({_DOWNTIME}))",
        )


def _make_views(story: Story) -> Iterator[Variant]:
    yield Variant(name="late views", kind="view", code="simulation.faults.lag(5)")
    yield Variant(name="doubled events", kind="view", code="simulation.faults.duplicate_events()")
    for n in range(1, story.changes + 1):
        yield Variant(
            name=f"stale view at change {n}",
            kind="view",
            code=f"simulation.when(change={n}, do=lambda: simulation.faults.stale_view({_STALE}))",
        )


def _make_late_events(story: Story) -> Iterator[Variant]:
    for n in range(1, len(story.events) + 1):
        yield Variant(
            name=f"event {n} late",
            kind="late event",
            code=f"simulation.faults.delay_event({n}, {_STALE})",
        )


def _make_doubled_events(story: Story) -> Iterator[Variant]:
    for n in range(1, len(story.events) + 1):
        yield Variant(name=f"event {n} doubled", kind="doubled event", code=f"simulation.faults.duplicate_event({n})")


def _make_stale_events(story: Story) -> Iterator[Variant]:
    seen = set()
    for n, event in enumerate(story.events, 1):
        if event.place in seen:  # otherwise, there is no past
            yield Variant(
                name=f"event {n} stale",
                kind="stale event",
                code=f"simulation.faults.stale_event({n}, {_STALE})",
            )
        seen.add(event.place)


def _make_watches(story: Story) -> Iterator[Variant]:
    for n in range(1, story.changes + 1):
        for name, call in (("watches dropped", "drop_watch()"), ("history expired", "expire()")):
            yield Variant(
                name=f"{name} at change {n}",
                kind="watch",
                code=f"simulation.when(change={n}, do=lambda: simulation.faults.{call})",
            )


def _make_orders(story: Story) -> Iterator[Variant]:
    for seed in range(1, _ORDERS + 1):
        yield Variant(name=f"other order {seed}", kind="order", seed=seed, code="simulation.faults.reorder()")


_MAKERS: dict[TroubleKind, Callable[[Story], Iterator[Variant]]] = {
    "deletion": _make_deletions,
    "crash": _make_crashes,
    "refusal": _make_refusals,
    "lost answer": _make_lost_answers,
    "downtime": _make_downtimes,
    "view": _make_views,
    "late event": _make_late_events,
    "doubled event": _make_doubled_events,
    "stale event": _make_stale_events,
    "watch": _make_watches,
    "order": _make_orders,
}
