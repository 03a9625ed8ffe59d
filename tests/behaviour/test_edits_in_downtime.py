"""Edits while the operator is down in the middle of a creation: the state as of its beginning is known afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Obj, Objects, get_annotations, has_progress, is_handled
from tests.behaviour.running import Calls, Operator

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


def store_in_status(settings: kopf.OperatorSettings) -> None:
    settings.persistence.progress_storage = kopf.StatusProgressStorage()
    settings.persistence.diffbase_storage = kopf.StatusDiffBaseStorage()


def use_prefix(settings: kopf.OperatorSettings) -> None:
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="example.com", verbose=True)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="example.com")


def store_in_both(settings: kopf.OperatorSettings) -> None:
    settings.persistence.progress_storage = kopf.MultiProgressStorage(
        [kopf.StatusProgressStorage(), kopf.AnnotationsProgressStorage()]
    )


STORAGES = {"default": lambda _: None, "status": store_in_status, "prefix": use_prefix, "both": store_in_both}


class Gate:
    """Holds the last handler of the creation until the operator has restarted."""

    is_open = False

    def check(self) -> None:
        if not self.is_open:
            raise kopf.TemporaryError("not yet", delay=1000)


@pytest.fixture
def gate() -> Gate:
    return Gate()


def declare_one(plural: str, calls: Calls, gate: Gate, case: str) -> None:
    @kopf.on.create(plural, id="held", when=lambda name, **_: name == case)
    async def held(**_: Any) -> None:
        gate.check()


def declare_two(plural: str, calls: Calls, gate: Gate, case: str) -> None:
    kopf.on.create(plural, id="done", when=lambda name, **_: name == case)(calls.noting(lambda **_: (case, "done")))
    declare_one(plural, calls, gate, case)


def declare_subhandlers(plural: str, calls: Calls, gate: Gate, case: str) -> None:
    @kopf.on.create(plural, id="parent", when=lambda name, **_: name == case)
    async def parent(**_: Any) -> None:
        kopf.register(calls.noting(lambda **_: (case, "done")), id="done")

        @kopf.subhandler(id="held")
        async def held(**_: Any) -> None:
            gate.check()


def declare_resuming(plural: str, calls: Calls, gate: Gate, case: str) -> None:
    kopf.on.resume(plural, id="resume", when=lambda name, **_: name == case)(calls.noting(lambda **_: (case, "resume")))
    declare_two(plural, calls, gate, case)


def declare_patching(plural: str, calls: Calls, gate: Gate, case: str) -> None:
    @kopf.on.create(plural, id="done", when=lambda name, **_: name == case)
    async def done(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["own"] = "mine"

    declare_one(plural, calls, gate, case)


DECLARATIONS: dict[str, Callable[[str, Calls, Gate, str], None]] = {
    "one": declare_one,
    "two": declare_two,
    "sub": declare_subhandlers,
    "resume": declare_resuming,
    "patching": declare_patching,
    "undone": declare_two,
}
"""The handlers of the creation, each of them for the object of that name."""


def is_held(obj: Obj) -> bool:
    return "not yet" in repr(obj) or "Some sub-handlers" in repr(obj)


def is_calm(obj: Obj) -> bool:
    return "last-handled-configuration" in repr(obj) and "started" not in repr(obj)


def declare_updates(plural: str, calls: Calls) -> None:
    kopf.on.update(plural, id="update")(calls.noting(lambda name, diff, **_: (name, "update", diff)))
    kopf.on.field(plural, id="edited", field="spec.v", old=0, new=1)(calls.noting(lambda name, **_: (name, "0 -> 1")))
    kopf.on.field(plural, id="same", field="spec.w")(calls.noting(lambda name, old, new, **_: (name, "w", old, new)))


@pytest.mark.parametrize("storage", STORAGES)
async def test_edits_are_what_they_are(
    operator: Operator,
    objects: Objects,
    calls: Calls,
    gate: Gate,
    storage: str,
    watch_lag: float,
) -> None:
    for name, declare in DECLARATIONS.items():
        declare(objects.plural, calls, gate, name)
    operator.configure = STORAGES[storage]
    await operator.start(watching=(objects.plural,))
    await objects.create_all(DECLARATIONS, spec={"v": 0, "w": 7})
    await objects.wait_all(is_held, DECLARATIONS)
    is_killed = (objects.plural == "kopfexamples") is (watch_lag > 0)  # all of both kinds, with and without the lag
    await (operator.cancel() if is_killed else operator.stop())
    declare_updates(objects.plural, calls)
    gate.is_open = True
    for name in DECLARATIONS:
        await objects.merge({"spec": {"v": 1}}, name)
    await objects.merge({"spec": {"v": 0}}, "undone")
    await operator.start(watching=(objects.plural,))
    await objects.wait(is_calm, "undone")
    await objects.merge({"spec": {"v": 2}}, "undone")
    for name in DECLARATIONS:
        update = (name, "update", (("change", ("spec", "v"), 0, 2 if name == "undone" else 1),))
        edited = [(name, "0 -> 1")] * (name != "undone")
        await calls.wait(lambda items: all(item in items for item in (update, *edited)))  # noqa: B023
        obj = await objects.wait(is_calm, name)
        assert "baseline" not in repr(obj)
        notes = [call for call in calls if call[0] == name]
        assert [call for call in notes if call[1] == "w"] == [(name, "w", None, 7)]  # in the creation
        assert [call for call in notes if call[1] == "update"] == [update]
        assert [call for call in notes if call[1] == "0 -> 1"] == edited
        assert notes.count((name, "done")) == (name in ("two", "sub", "resume", "undone"))


@pytest.mark.parametrize("restart", [False, True])
async def test_edits_that_somebody_has_seen_are_undone_for_them(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    gate: Gate,
    restart: bool,
) -> None:
    kopf.on.create("kopfexamples", id="first")(calls.noting("first"))

    @kopf.on.create("kopfexamples", id="second")
    async def second(spec: kopf.Spec, retry: int, **_: Any) -> None:
        if spec["v"] == 0 and not gate.is_open:
            raise kopf.TemporaryError("not yet", delay=10)
        calls.append("second")

    @kopf.on.create("kopfexamples", id="third")
    async def third(**_: Any) -> None:
        gate.check()

    kopf.on.field("kopfexamples", id="field", field="spec.v")(calls.noting(lambda new, **_: ("field", new)))
    kopf.on.update("kopfexamples", id="update")(calls.noting("update"))
    await operator.start_and_create(kex, spec={"v": 0})
    await kex.wait(has_progress("first", "second", "third"))
    await kex.merge({"spec": {"v": 1}})
    await calls.wait(lambda items: "second" in items)
    await kex.wait(lambda obj: '"success":true' in get_annotations(obj).get("kopf.zalando.org/second", ""))
    if restart:
        await operator.stop()
    await kex.merge({"spec": {"v": 0}})
    gate.is_open = True
    if restart:
        await operator.start()
    await calls.wait(lambda items: "update" in items)
    await kex.wait(is_calm)
    assert [call for call in calls if call[0] == "field"][-1] == ("field", 0)


async def test_updates_are_undone_for_those_who_have_seen_them(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    gate: Gate,
) -> None:
    """The object is as it was handled last, and yet not all handlers are in line with it."""
    kopf.on.update("kopfexamples", id="done")(calls.noting(lambda spec, **_: ("done", spec["v"])))

    @kopf.on.update("kopfexamples", id="held")
    async def held(spec: kopf.Spec, retry: int, **_: Any) -> None:
        gate.check()
        if retry < 3:
            raise kopf.TemporaryError("not yet", delay=10)
        calls.append(("held", spec["v"]))

    await operator.start_and_create(kex, spec={"v": 0})
    await kex.wait(is_handled)
    await kex.merge({"spec": {"v": 1}})
    await kex.wait(has_progress("done", "held"))
    await operator.stop()
    await kex.merge({"spec": {"v": 0}})
    gate.is_open = True
    await operator.start()
    await kex.wait(is_calm)
    assert sorted(calls) == [("done", 0), ("done", 1), ("held", 0)]


async def test_it_is_kept_once_and_not_if_it_is_large(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    gate: Gate,
) -> None:
    for name in ("small", "large"):
        declare_two("kopfexamples", calls, gate, name)
    kopf.on.update("kopfexamples", id="update")(calls.noting("update"))
    await operator.start_and_create(kex, "small", spec={"v": 0})
    await kex.create("large", spec={"v": 0, "text": "x" * 150_000})
    small, large = await kex.wait(is_held, "small"), await kex.wait(is_held, "large")
    assert json.dumps(small).count("baseline") == 1
    assert json.dumps(large).count("baseline") == 0
    await operator.stop()
    gate.is_open = True
    await kex.merge({"spec": {"v": 1}}, "large")
    await operator.start()
    await calls.wait(lambda items: "update" in items)
    await kex.wait(is_calm, "large")


async def test_what_others_have_written_there_is_not_believed(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    gate: Gate,
) -> None:
    texts = {f"obj{n}": text for n, text in enumerate(["", "null", "[]", '{"metadata": 1}', "{", "x"])}
    for name in texts:
        declare_two("kopfexamples", calls, gate, name)
    kopf.on.update("kopfexamples", id="update")(calls.noting(lambda name, **_: (name, "update")))
    await operator.start()
    await kex.create_all(texts, spec={"v": 0})
    await kex.wait_all(is_held, texts)
    await operator.stop()
    key = "kopf.zalando.org/done"
    for name, text in texts.items():
        record = json.loads(get_annotations(kex.get_history(name)[-1])[key]) | {"baseline": text}
        await kex.merge({"metadata": {"annotations": {key: json.dumps(record)}}, "spec": {"v": 1}}, name)
    gate.is_open = True
    await operator.start()
    for name in texts:
        await calls.wait(lambda items: (name, "update") in items)  # noqa: B023
        await kex.wait(is_calm, name)
        assert [call for call in calls if call[0] == name] == [(name, "done"), (name, "update")]
