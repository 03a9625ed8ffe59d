"""Refusals: all errors of the decorators and the registry about handlers that cannot work, not only the first."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from kopf import on
from kopf._checking.findings import Finding
from kopf._handlers.declarations import DeclarationError, find_function_place
from kopf._handlers.handlers import ReconcilingHandler, ResourceHandler
from kopf._handlers.registry import HandlersOfResource, OperatorRegistry
from kopf._handlers.signatures import check_registry
from kopf._values.selectors import Selector
from kopf._values.user_functions import describe_function

_IMMEDIATE = frozenset({"register", "subhandler"})
"""Handlers call these decorators; the others are called when the code is loaded."""

_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?:: (?P<text>.*))?", re.DOTALL)
_CURE = re.compile(
    r"(?P<text>.*?)[.:;] (?P<cure>(?:did you mean|remove|add|use|for one, use|name the|rename|decorate|omit) .*)",
    re.DOTALL | re.IGNORECASE,
)
_OTHERWISE = "Correct the declaration: the operator refuses to start with it."


@contextlib.contextmanager
def collecting_refusals() -> Iterator[list[str]]:
    """Collect the refusals of the decorators inside of the block: they do not raise errors there."""
    problems: list[str] = []
    face = vars(sys.modules["kopf"])
    originals = {name: getattr(on, name) for name in on.__all__ if name not in _IMMEDIATE}
    replaced = {name: _tolerate(decorator, problems) for name, decorator in originals.items()}
    shown = {name: value for name, value in face.items() if any(value is item for item in originals.values())}
    vars(on).update(replaced)
    face.update({name: replaced[name] for name in shown})
    try:
        yield problems
    finally:
        vars(on).update(originals)
        face.update({name: originals[name] for name in replaced if face.get(name) is replaced[name]})


def _tolerate(decorator: Callable[..., Any], problems: list[str]) -> Callable[..., Any]:
    @functools.wraps(decorator)
    def declare(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        decorate = None
        try:
            decorate = decorator(*args, **kwargs)
        except DeclarationError as e:
            problems.extend(e.problems)

        def apply(fn: Any) -> Any:
            try:
                return fn if decorate is None else decorate(fn)
            except DeclarationError as e:
                problems.extend(e.problems)
                return fn

        return apply

    return declare


def list_refusals(registry: OperatorRegistry) -> list[str]:
    """List the refusals at the start of the operator, and the handlers with the same ids."""
    problems = [*_list_clashes(registry)]
    try:
        check_registry(registry)
    except DeclarationError as e:
        problems.extend(e.problems)
    return problems


def _list_clashes(registry: OperatorRegistry) -> Iterator[str]:
    handlers: dict[Selector, list[ResourceHandler]] = {}
    for handler in registry.resources:
        if handler.selector is not None:
            handlers.setdefault(handler.selector, []).append(handler)
    for group in handlers.values():
        for one, two in HandlersOfResource.build(group).find_clashes():
            text = f"Another handler has the id {two.id!r}, {describe_function(one.fn)}: only one of them is called."
            if isinstance(one, ReconcilingHandler) is isinstance(two, ReconcilingHandler):  # otherwise, it is refused
                yield f"{find_function_place(two.fn)}: {text} Use different ids: @kopf.on.create(…, id='…')."


def make_finding(problem: str, path: str) -> Finding:
    """Split the text of a problem into its place, text, and cure; ``path`` is the file if the place is unknown."""
    text, line = problem, 0
    if place := _PLACE.fullmatch(problem):
        path, line, text = place["file"], int(place["line"]), place["text"] or ""
    said = _CURE.fullmatch(text)
    text, cure = (f"{said['text']}.", said["cure"]) if said else (text, _OTHERWISE)
    return Finding(path, line, "declaration", text, cure[0].upper() + cure[1:])
