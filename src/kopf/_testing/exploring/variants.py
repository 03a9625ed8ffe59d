"""
Variants: with which trouble the same story is told, one by one.

Each is one line of code on a simulation. It is executed, and printed for people who want to repeat it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

from kopf._testing.exploring.explored_runs import delete_created
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
    """The Python code that makes the trouble in a ``simulation``."""
    seed: int | None = None
    """The seed, if it must differ from the seed of the run without trouble."""
    ending: Literal["", "deletion", "deletion during downtime"] = ""
    """Whether to delete everything at the end, and to look for leftovers."""
    is_harmed: bool = False
    """Whether requests are refused or broken, so that errors of clients are natural."""
    is_test_judged: bool = True
    """Whether the test must pass with that."""

    def make_trouble(self, simulation: Simulation) -> None:
        """Execute the code, exactly as it is printed for repetitions."""
        known = {"FaultRule": FaultRule, "delete_created": delete_created, "simulation": simulation}
        exec(compile(self.code, f"<{self.name}>", "exec"), known)


_ONCE = (
    Variant(name="deletion", kind="deletion", ending="deletion"),
    Variant(name="deletion during downtime", kind="deletion", ending="deletion during downtime"),
    Variant(name="late views", kind="view", code="simulation.faults.lag(5)"),
    Variant(name="doubled events", kind="view", code="simulation.faults.duplicate_events()"),
    *(
        Variant(name=f"other order {seed}", kind="order", seed=seed, code="simulation.faults.reorder()")
        for seed in range(1, _ORDERS + 1)
    ),
)
"""The variants that run once."""
_AT_MOMENTS: Mapping[Literal["write", "step", "change", "event"], Sequence[Variant]] = {
    "write": [
        Variant(
            name="deletion at write {n}",
            kind="deletion",
            ending="deletion",
            is_test_judged=False,
            code="simulation.when(write={n}, do=lambda: delete_created(simulation))",
        ),
        Variant(name="crash after write {n}", kind="crash", code="simulation.crash_after(write={n}, restart=True)"),
        Variant(
            name="crash before write {n}",
            kind="crash",
            code="simulation.crash_after(write={n}, before=True, restart=True)",
        ),
        Variant(
            name="write {n} refused (409)",
            kind="refusal",
            is_harmed=True,
            code="simulation.when(write={n}, do=lambda: FaultRule(status=409))",
        ),
        Variant(
            name="write {n} refused (500)",
            kind="refusal",
            is_harmed=True,
            code="simulation.when(write={n}, do=lambda: FaultRule(status=500))",
        ),
        Variant(
            name="write {n} unanswered",
            kind="lost answer",
            is_harmed=True,
            code='simulation.when(write={n}, do=lambda: FaultRule(action="lose-answer"))',
        ),
    ],
    "step": [
        Variant(
            name="restart at step {n}", kind="downtime", code="simulation.when(step={n}, do=simulation.restart_now)"
        ),
        Variant(
            name="downtime at step {n}",
            kind="downtime",
            code=f"simulation.when(step={{n}}, do=lambda: simulation.downtime_now({_DOWNTIME}))",
        ),
    ],
    "change": [
        Variant(
            name="stale view at change {n}",
            kind="view",
            code=f"simulation.when(change={{n}}, do=lambda: simulation.faults.stale_view({_STALE}))",
        ),
        Variant(
            name="watches dropped at change {n}",
            kind="watch",
            code="simulation.when(change={n}, do=lambda: simulation.faults.drop_watch())",
        ),
        Variant(
            name="history expired at change {n}",
            kind="watch",
            code="simulation.when(change={n}, do=lambda: simulation.faults.expire())",
        ),
    ],
    "event": [
        Variant(name="event {n} late", kind="late event", code=f"simulation.faults.delay_event({{n}}, {_STALE})"),
        Variant(name="event {n} doubled", kind="doubled event", code="simulation.faults.duplicate_event({n})"),
        Variant(name="event {n} stale", kind="stale event", code=f"simulation.faults.stale_event({{n}}, {_STALE})"),
    ],
}
"""The variants that run for each moment of the story; ``n`` is the number of the moment among its kind."""


def make_variants(story: Story) -> Iterator[Variant]:
    """
    Make all variants of the story, one of each kind in turn.

    So, with any budget, something of every kind is tried, and a long story does not spend it on a single kind.
    """
    variants = [*_ONCE, *_make_at_moments(story)]
    for turn in itertools.zip_longest(*([item for item in variants if item.kind == kind] for kind in TROUBLES)):
        yield from (variant for variant in turn if variant is not None)


def _make_at_moments(story: Story) -> Iterator[Variant]:
    places = [event.place for event in story.events]
    counts = {"write": story.writes, "step": story.steps, "change": story.changes, "event": len(places)}
    for moment, variants in _AT_MOMENTS.items():
        for n, variant in itertools.product(range(1, counts[moment] + 1), variants):
            if variant.kind != "stale event" or places[n - 1] in places[: n - 1]:  # otherwise, there is no past
                yield dataclasses.replace(variant, name=variant.name.format(n=n), code=variant.code.format(n=n))
