"""Conflicts of reconcilers: with handlers that work by themselves, but with which the reconciler cannot work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kopf._handlers.declarations import find_function_place, put_place
from kopf._handlers.handlers import ChangingHandler, ReconcilingHandler, ResourceHandler
from kopf._values.reasons import DELETE
from kopf._values.user_functions import describe_function


def list_conflicts(handlers: Iterable[ResourceHandler]) -> Iterator[str]:
    """Describe all conflicts of each reconciler, with the solutions."""
    changing = [handler for handler in handlers if isinstance(handler, ChangingHandler)]
    for one in changing:
        if isinstance(one, ReconcilingHandler):
            others = [item for item in changing if item.selector == one.selector and item is not one]
            yield from _list_namesakes(one, others)
            yield from _list_rivals(one, others)


def _list_namesakes(one: ReconcilingHandler, others: Iterable[ChangingHandler]) -> Iterator[str]:
    """The progress is stored by ids. Deletion handlers do no harm: Kopf calls no reconciler for deletions."""
    for two in others:
        if two.id == one.id and two.reason is not DELETE and not isinstance(two, ReconcilingHandler):
            text = f"The reconciler {describe_function(one.fn)} has the same id {one.id!r}, and would never be called."
            cure = "Use another id here, as the children are marked with that one: @kopf.on.create(…, id='…')."
            yield put_place(find_function_place(two.fn), f"{text} {cure}")


def _list_rivals(one: ReconcilingHandler, others: Iterable[ChangingHandler]) -> Iterator[str]:
    """Each reconciler sets the conditions by its own children only. If all declare ``conditions``, it is on purpose."""
    rivals = [item for item in others if isinstance(item, ReconcilingHandler) and item.id != one.id]
    names = [describe_function(item.fn) for item in rivals if item.sets_conditions]
    if names and one.sets_conditions and one.conditions is None:
        text = f"{describe_function(one.fn)} sets the conditions of the object, and so does {' and '.join(names)}."
        cure = "Use conditions=True for one of them, False for the others."
        yield put_place(find_function_place(one.fn), f"{text} {cure}")
