"""Whatever a handler writes, can be what the filter of another handler reads: nobody waits for the next change."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
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

READERS = ("timer", "daemon", "delete", "event", "index", "field")
BLOCKING = ("timer", "daemon", "delete")
"""They have the finalizer on their objects as long as they are for them. The others get every change anyway."""

PLACES = [("kex", "annotations"), ("sub", "annotations"), ("kex", "status"), ("sub", "status")]
"""With and without the subresource, with all storages."""


ALL = bool(os.environ.get("KOPF_TEST_FILTERS"))


def spread(*axes: Any) -> list[Any]:
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
    return [
        pytest.param(*combination, *place, id="-".join((*combination, *place)))
        for combination, place in zip(combinations, places, strict=False)
    ]


def store_in_status(settings: kopf.OperatorSettings) -> None:
    settings.persistence.progress_storage = kopf.StatusProgressStorage()
    settings.persistence.diffbase_storage = kopf.StatusDiffBaseStorage()


def declare_writers(plural: str, write: Write) -> None:
    """Declare the handlers that write, each for the object of its name; each writes once."""

    async def fn(patch: kopf.Patch, body: kopf.Body, **_: Any) -> Any:
        return None if get(body, write.path) == "yes" else write.make(patch)

    @kopf.on.create(plural, id="result", labels={"writer": "sub"})
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
        decorator(plural, id="result", labels={"writer": writer}, **options)(fn)


def declare_reader(reader: str, plural: str, calls: Calls, options: dict[str, Any]) -> None:
    decorators: dict[str, Any] = {
        "timer": functools.partial(kopf.timer, interval=3600),
        "daemon": kopf.daemon,
        "delete": kopf.on.delete,
        "event": kopf.on.event,
        "index": kopf.index,
        "field": kopf.on.field,
    }
    make = calls.accompanying if reader == "daemon" else calls.noting
    decorators[reader](plural, id="reader", **options)(make(lambda name, **_: name))


async def let_write(
    operator: Operator,
    objects: Objects,
    calls: Calls,
    storage: str,
    write: Write,
    reader: str,
    filters: Any,
) -> None:
    """Bring an object for each of the writers to where it writes; the handlers are declared meanwhile."""
    if storage == "status":
        operator.configure = store_in_status
    kopf.on.create(objects.plural, id="handle", labels={"writer": "resume"})(do_nothing)
    await operator.start(watching=(objects.plural,))
    await objects.create("resume", labels={"writer": "resume"})
    await objects.wait(is_handled, "resume")
    await operator.stop()
    declare_writers(objects.plural, write)
    declare_reader(reader, objects.plural, calls, filters)
    await operator.start(watching=(objects.plural,))
    for writer in WRITERS:
        if writer != "resume":
            await objects.create(writer, labels={"writer": writer})
    await objects.wait(is_handled, "update")
    await objects.merge({"spec": {"edit": 1}}, "update")


def is_handled(obj: Obj) -> bool:
    return "last-handled-configuration" in repr(obj)


@pytest.mark.parametrize(("reader", "filter", "what", "where", "storage"), spread(READERS, FILTERS, WRITES))
async def test_filters_begin_to_match(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    reader: str,
    filter: str,
    what: str,
    where: str,
    storage: str,
) -> None:
    objects, write = {"kex": kex, "sub": sub}[where], WRITES[what]
    await let_write(operator, objects, calls, storage, write, reader, FILTERS[filter](write.path))
    if reader != "delete":
        await calls.wait(lambda items: set(items) == set(WRITERS))
    for writer in WRITERS if reader in BLOCKING else ():
        await objects.wait(lambda obj: get(obj, write.path) == "yes" and get_finalizers(obj) == [FINALIZER], writer)


@pytest.mark.parametrize(("reader", "filter", "what", "where", "storage"), spread(BLOCKING, COUNTER_FILTERS, WRITES))
async def test_filters_cease_to_match(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    reader: str,
    filter: str,
    what: str,
    where: str,
    storage: str,
) -> None:
    objects, write = {"kex": kex, "sub": sub}[where], WRITES[what]
    await let_write(operator, objects, calls, storage, write, reader, COUNTER_FILTERS[filter](write.path))
    for writer in WRITERS:
        await objects.wait(lambda obj: get(obj, write.path) == "yes" and get_finalizers(obj) == [], writer)


@pytest.mark.parametrize("what", WRITES)
async def test_deletion_handlers_follow_each_other(
    operator: Operator,
    objects: Objects,
    calls: Calls,
    what: str,
) -> None:
    write = WRITES[what]
    if what == "result":
        pytest.skip("What has a result, is done; with all of them done, the object is released.")

    @kopf.on.delete(objects.plural, id="writer")
    async def fn(patch: kopf.Patch, retry: int, **_: Any) -> None:
        if not retry:
            write.make(patch)
        if not calls:
            raise kopf.TemporaryError("not yet", delay=0.1)

    kopf.on.delete(objects.plural, id="reader", when=lambda body, **_: get(body, write.path) == "yes")(
        calls.noting("reader")
    )
    await operator.start_and_create(objects)
    await objects.wait(get_finalizers)
    await objects.delete_and_wait()
    assert calls == ["reader"]
