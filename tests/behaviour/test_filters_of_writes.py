"""Whatever a handler writes, can be what the filter of another handler reads: nobody waits for the next change."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import kopf
from tests.behaviour.objects import FINALIZER, Obj, Objects, get_finalizers
from tests.behaviour.running import Calls, Operator, do_nothing

pytestmark = pytest.mark.fastforward

WRITERS = ("create", "update", "resume", "sub", "event", "timer", "daemon")


class Write(NamedTuple):
    """How a handler writes "yes" to its object, and where that is found then."""

    path: tuple[str, ...]
    make: Callable[[kopf.Patch], object]


def transform(*path: str) -> Callable[[kopf.Patch], object]:
    def append(patch: kopf.Patch) -> None:
        patch.fns.append(lambda body: body.setdefault(path[0], {}).__setitem__(path[1], "yes"))

    return append


WRITES = {
    "status": Write(("status", "ready"), lambda patch: patch.status.__setitem__("ready", "yes")),
    "result": Write(("status", "result", "ready"), lambda _: {"ready": "yes"}),
    "status-fn": Write(("status", "ready"), transform("status", "ready")),
    "spec": Write(("spec", "ready"), lambda patch: patch.spec.__setitem__("ready", "yes")),
    "label": Write(("metadata", "labels", "ready"), lambda patch: patch.meta.labels.__setitem__("ready", "yes")),
    "annotation": Write(
        ("metadata", "annotations", "ready"), lambda patch: patch.meta.annotations.__setitem__("ready", "yes")
    ),
}


def get(body: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        body = (body or {}).get(key)
    return body


def filter_metadata(path: tuple[str, ...], expected: Any) -> dict[str, Any]:
    return {path[1]: {path[2]: expected}} if path[0] == "metadata" else {"field": path, "value": expected}


FILTERS: dict[str, Callable[[tuple[str, ...]], dict[str, Any]]] = {
    "field": lambda path: {"field": path, "value": "yes"},
    "metadata": lambda path: filter_metadata(path, "yes"),
    "callback": lambda path: filter_metadata(path, lambda value, **_: value == "yes"),
    "when": lambda path: {"when": lambda body, **_: get(body, path) == "yes"},
    "when-stanza": lambda path: {
        "when": lambda status, spec, meta, **_: get({"status": status, "spec": spec, "metadata": meta}, path) == "yes"
    },
}
"""They begin to match when it is written."""

COUNTER_FILTERS: dict[str, Callable[[tuple[str, ...]], dict[str, Any]]] = {
    "absent": lambda path: {"field": path, "value": kopf.ABSENT},
    "not": lambda path: {"when": kopf.not_(lambda body, **_: get(body, path) == "yes")},
}
"""They match until it is written."""

ALL_FILTERS = FILTERS | COUNTER_FILTERS


READERS = ("timer", "daemon", "delete", "event", "index", "field")
BLOCKING = ("timer", "daemon", "delete")
"""They have the finalizer on their objects as long as they are for them. The others get every change anyway."""

PLACES = [("kex", "annotations"), ("sub", "annotations"), ("kex", "status"), ("sub", "status")]
"""With and without the subresource, with all storages."""


ALL = bool(os.environ.get("KOPF_TEST_FILTERS"))


def spread(*axes: Any) -> Iterator[tuple[tuple[str, str], tuple[str, str, str]]]:
    """
    Combine the values of the axes, and give each combination one of the places in turn.

    Any two values meet in some of the combinations, any three of them only if all are wanted.
    """
    combinations = [
        values
        for numbers, values in ((zip(*item, strict=True)) for item in itertools.product(*map(enumerate, axes)))
        if (ALL or sum(numbers) % len(BLOCKING) == 0 if values[0] in BLOCKING else values[1] == "field")
    ]
    places = itertools.cycle([*PLACES, *PLACES[1:], PLACES[0]])  # not in step with any of the axes
    return zip(places, combinations, strict=False)


def store_in_status(settings: kopf.OperatorSettings) -> None:
    settings.persistence.progress_storage = kopf.StatusProgressStorage()
    settings.persistence.diffbase_storage = kopf.StatusDiffBaseStorage()


def declare_writers(plural: str, what: str) -> None:
    """Declare the handlers that write that, each for the objects with its label; each writes once."""
    write = WRITES[what]

    async def fn(patch: kopf.Patch, body: kopf.Body, **_: Any) -> Any:
        return None if get(body, write.path) == "yes" else write.make(patch)

    @kopf.on.create(plural, id="result", labels={"what": what, "writer": "sub"})
    async def parent(**_: Any) -> None:
        async def sub(patch: kopf.Patch, **kwargs: Any) -> None:
            result = await fn(patch=patch, **kwargs)
            if result is not None:
                patch.status["result"] = result  # those of sub-handlers have slashes in their names

        kopf.register(sub, id="sub")

    declarations: list[tuple[str, Any, dict[str, Any]]] = [
        ("create", kopf.on.create, {}),
        ("update", kopf.on.update, {}),
        ("resume", kopf.on.resume, {}),
        ("event", kopf.on.event, {}),
        ("timer", kopf.timer, {"optional": True, "interval": 3600}),
        ("daemon", kopf.daemon, {"optional": True}),
    ]
    for writer, decorator, options in declarations:
        decorator(plural, id="result", labels={"what": what, "writer": writer}, **options)(fn)


def declare_reader(reader: str, plural: str, case: str, calls: Calls, options: dict[str, Any]) -> None:
    decorators: dict[str, Any] = {
        "timer": functools.partial(kopf.timer, interval=3600),
        "daemon": kopf.daemon,
        "delete": kopf.on.delete,
        "event": kopf.on.event,
        "index": kopf.index,
        "field": kopf.on.field,
    }
    make = calls.accompanying if reader == "daemon" else calls.noting
    options = {**options, "labels": {"case": case, **options.get("labels", {})}}
    decorators[reader](plural, id="reader", **options)(make(lambda name, **_: name))


async def let_write(operator: Operator, objects: Objects, calls: Calls, cases: dict[str, tuple[str, str, str]]) -> None:
    """Bring an object for each of the writers to where it writes; the handlers are declared meanwhile."""
    kopf.on.create(objects.plural, id="handle", labels={"writer": "resume"})(do_nothing)
    await operator.start(watching=(objects.plural,))
    for case, (*_, what) in cases.items():
        await objects.create(f"{case}-resume", labels={"case": case, "what": what, "writer": "resume"})
    for case in cases:
        await objects.wait(is_handled, f"{case}-resume")
    await operator.stop()
    for what in WRITES:
        declare_writers(objects.plural, what)
    for case, (reader, filter, what) in cases.items():
        declare_reader(reader, objects.plural, case, calls, ALL_FILTERS[filter](WRITES[what].path))
    await operator.start(watching=(objects.plural,))
    for (case, (*_, what)), writer in itertools.product(cases.items(), WRITERS):
        if writer != "resume":
            await objects.create(f"{case}-{writer}", labels={"case": case, "what": what, "writer": writer})
    for case in cases:
        await objects.wait(is_handled, f"{case}-update")
        await objects.merge({"spec": {"edit": 1}}, f"{case}-update")


def is_handled(obj: Obj) -> bool:
    return "last-handled-configuration" in repr(obj)


@pytest.mark.parametrize(("where", "storage"), PLACES)
async def test_filters_begin_and_cease_to_match(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    where: str,
    storage: str,
) -> None:
    objects = {"kex": kex, "sub": sub}[where]
    cases = {
        "-".join(case): case
        for place, case in (*spread(READERS, FILTERS, WRITES), *spread(BLOCKING, COUNTER_FILTERS, WRITES))
        if place == (where, storage)
    }
    if storage == "status":
        operator.configure = store_in_status
    await let_write(operator, objects, calls, cases)
    for case, (reader, filter, what) in cases.items():
        names = [f"{case}-{writer}" for writer in WRITERS]
        if reader != "delete" and filter in FILTERS:
            await calls.wait(lambda items: {*names} <= {*items})  # noqa: B023
        finalizers = [FINALIZER] if filter in FILTERS else []
        for name in names if reader in BLOCKING else ():
            path = WRITES[what].path
            await objects.wait(lambda obj: get(obj, path) == "yes" and get_finalizers(obj) == finalizers, name)  # noqa: B023


async def test_deletion_handlers_follow_each_other(operator: Operator, objects: Objects, calls: Calls) -> None:
    """What has a result, is done; with all of them done, the object is released: so results are not among these."""
    names = WRITES.keys() - {"result"}

    @kopf.on.delete(objects.plural, id="writer")
    async def fn(name: str, patch: kopf.Patch, retry: int, **_: Any) -> None:
        if not retry:
            WRITES[name].make(patch)
        if name not in calls:
            raise kopf.TemporaryError("not yet", delay=0.1)

    kopf.on.delete(objects.plural, id="reader", when=lambda name, body, **_: get(body, WRITES[name].path) == "yes")(
        calls.noting(lambda name, **_: name)
    )
    await operator.start(watching=(objects.plural,))
    await objects.create_all(names)
    for name in names:
        await objects.wait(get_finalizers, name)
        await objects.delete(name)
    await objects.wait_all_gone(names)
    assert sorted(calls) == sorted(names)
