"""What handlers get can be copied and serialised; what they do to it, is not taken for what the server has said."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest
import yaml

import kopf
from kopf._handlers.causes import WatchingCause
from tests.behaviour.objects import Objects, get_essence
from tests.behaviour.running import Calls, Operator
from tests.handlers.builders import make_watching_cause, make_watching_handler

pytestmark = pytest.mark.fastforward

SPEC: dict[str, Any] = {"field": "value", "list": [1], "template": {"metadata": {"labels": {"l": "v"}}, "spec": {}}}


def spoil(body: kopf.Body, spec: kopf.Spec, **kwargs: Any) -> None:
    """Do everything that is possible with plain lists & dicts inside of the read-only views."""
    kopf.adopt(spec["template"], owner=body)
    spec["template"]["spec"]["added"] = True
    body["spec"]["list"].append(2)
    body["metadata"].setdefault("labels", {})["spoilt"] = "yes"
    for name in ("old", "new"):
        if kwargs.get(name):
            kwargs[name]["spec"]["list"].append(3)
            kwargs[name].setdefault("metadata", {})["labels"] = {"spoilt": "yes"}


@pytest.mark.lagging
async def test_nothing_leaks_from_the_handlers_of_changes(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="one")
    @kopf.on.create("kopfexamples", id="two")
    @kopf.on.update("kopfexamples", id="three")
    @kopf.on.resume("kopfexamples", id="four")
    async def fn(reason: kopf.Reason, spec: kopf.Spec, **kwargs: Any) -> None:
        calls.append((str(reason), [*spec["list"]]))
        spoil(spec=spec, **kwargs)

    obj = await operator.start_and_handle(kex, spec=SPEC)
    assert get_essence(obj) == {"spec": SPEC}
    assert calls == [("create", [1])] * 2
    obj = await kex.change_and_wait(field="new")
    assert get_essence(obj) == {"spec": {**SPEC, "field": "new"}}
    assert calls == [("create", [1])] * 2 + [("update", [1])]
    await operator.restart()
    await calls.wait_length(4)
    await operator.restart()
    await calls.wait_length(5)
    assert calls == [("create", [1])] * 2 + [("update", [1])] + [("resume", [1])] * 2


@pytest.mark.lagging
async def test_nothing_leaks_from_other_handlers(operator: Operator, kex: Objects, calls: Calls) -> None:
    def check(**kwargs: Any) -> bool:
        spoil(**kwargs)
        return True

    @kopf.index("kopfexamples")
    def index(**kwargs: Any) -> Any:
        spoil(**kwargs)
        return kwargs["spec"]

    @kopf.on.event("kopfexamples")
    def event(**kwargs: Any) -> None:
        spoil(**kwargs)

    @kopf.daemon("kopfexamples")
    async def daemon(stopped: kopf.AsyncDaemonStopperChecker, **kwargs: Any) -> None:
        spoil(**kwargs)
        await stopped.wait()

    @kopf.timer("kopfexamples", interval=0.1)
    async def timer(**kwargs: Any) -> None:
        spoil(**kwargs)

    fn = calls.noting(lambda reason, spec, **_: (str(reason), spec["field"]))
    kopf.on.update("kopfexamples", when=check)(fn)
    kopf.on.create("kopfexamples", when=check)(fn)
    await operator.start_and_create(kex, spec=SPEC)
    for value in ("a", "b", "c"):
        await kex.change_and_wait(field=value)
    obj = await kex.get()
    assert get_essence(obj) == {"spec": {**SPEC, "field": "c"}}
    assert [call for call in calls if call[0] == "update"][-1] == ("update", "c")
    await kex.delete_and_wait()


@pytest.mark.lagging
async def test_nothing_leaks_from_the_values_patched_by_other_handlers(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    given: list[dict[str, Any]] = []

    @kopf.on.create("kopfexamples", id="patching")
    async def patching(patch: kopf.Patch, **_: Any) -> None:
        given.append({"list": [1]})
        patch.spec["added"] = given[0]

    @kopf.on.create("kopfexamples", id="spoiling")
    async def spoiling(body: kopf.Body, new: Any, **_: Any) -> None:
        body["spec"]["added"]["list"].append(2)
        new["spec"]["added"]["list"].append(3)
        given[0]["list"].append(4)

    @kopf.on.create("kopfexamples", id="last")
    async def last(retry: int, **_: Any) -> None:
        if not retry:
            raise kopf.TemporaryError("Not yet.", delay=1)

    kopf.on.update("kopfexamples")(calls.noting(lambda diff, **_: diff))
    obj = await operator.start_and_handle(kex)
    assert get_essence(obj)["spec"]["added"] == {"list": [1]}
    assert calls == []


Encoder = Callable[[Any], Any]
ENCODERS: list[Encoder] = [
    lambda value: json.loads(json.dumps(value)),
    lambda value: orjson.loads(orjson.dumps(value)),
    lambda value: msgspec.json.decode(msgspec.json.encode(value)),
    lambda value: yaml.safe_load(yaml.safe_dump(value)),
    lambda value: pickle.loads(pickle.dumps(value)),
    copy.deepcopy,
]
COPIERS: list[Encoder] = [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy, copy.copy]


def visible(obj: dict[str, Any]) -> dict[str, Any]:
    """Give the object as handlers see it: who owns which field, is not shown to them."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


async def test_events(operator: Operator, kex: Objects, calls: Calls) -> None:
    def when(event: kopf.RawEvent, **_: Any) -> bool:
        calls.append([encode(event) for encode in ENCODERS])
        return False

    kopf.on.event("kopfexamples", id="named_fn")(
        calls.noting(lambda event, **_: [encode(event) for encode in ENCODERS])
    )

    kopf.on.event("kopfexamples", id="unnamed_fn")(
        lambda **kwargs: calls.append([encode(kwargs["event"]) for encode in ENCODERS])
    )

    kopf.on.event("kopfexamples", when=kopf.not_(kopf.not_(when)))(lambda **_: None)
    await operator.start()
    obj = visible(await kex.create())
    await calls.wait_length(3)
    assert calls == [[{"type": "ADDED", "object": obj}] * len(ENCODERS)] * 3


async def test_bodies_and_their_stanzas_as_dicts(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(body: kopf.Body, **_: Any) -> None:
        for encode in ENCODERS:
            stanzas = (body.spec, body.metadata, body.status, body.metadata.labels, body.metadata.annotations)
            calls.append([encode(dict(body)), *(encode(dict(stanza)) for stanza in stanzas)])

    await operator.start()
    obj = visible(await kex.create(labels={"l": "v"}, annotations={"a": "w"}, status={"s": ["t"]}))
    await calls.wait_length(len(ENCODERS))
    expected = [obj, {"field": "value"}, obj["metadata"], {"s": ["t"]}, {"l": "v"}, {"a": "w"}]
    assert calls == [expected] * len(ENCODERS)


async def test_bodies_and_their_stanzas_as_they_are(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.daemon("kopfexamples")
    async def daemon_fn(body: kopf.Body, **_: Any) -> None:
        stanzas = (body, body.spec, body.metadata, body.status, body.metadata.labels, body.metadata.annotations)
        for value, make_copy in itertools.product(stanzas, COPIERS):
            copied = make_copy(value)
            calls.append((type(copied) is type(value), copied == value, dict(copied) == dict(value), bool(copied)))

    await operator.start_and_call(kex, calls, labels={"l": "v"}, annotations={"a": "w"}, status={"s": ["t"]}, times=18)
    assert [*calls] == [(True, True, True, True)] * 18


# --- the price: nothing is decoded for those who do not look ---


class Callable1:
    def __call__(self, event: Any, **_: Any) -> None: ...

    def method(self, event: Any, **_: Any) -> None: ...


def name_it(event: Any, **_: Any) -> None: ...
def take_all(**kwargs: Any) -> None:
    str(kwargs)


def ignore_it(body: Any, **_: Any) -> None: ...
def ignore_all(**_ignored: Any) -> None: ...


@functools.wraps(ignore_it)
def wrap(*args: Any, **kwargs: Any) -> None:
    ignore_it(*args, **kwargs)


def get_event(cause: WatchingCause, fn: Any, **filters: Any) -> Any:
    return cause.kwargs_for(make_watching_handler(fn=fn, **filters))["event"]


@pytest.mark.parametrize(
    "fn",
    [
        name_it,
        take_all,
        functools.partial(name_it, x=1),
        wrap,
        Callable1(),
        Callable1().method,
        dict,
    ],
)
def test_those_who_look_get_plain_dicts(fn: Any) -> None:
    cause = make_watching_cause({"spec": {"field": "value"}})
    for event in (
        get_event(cause, fn),
        get_event(cause, ignore_it, when=fn),
        get_event(cause, ignore_it, value=fn),
        get_event(cause, ignore_it, labels={"x": fn}),
        get_event(cause, ignore_it, annotations={"x": fn}),
    ):
        assert type(event) is dict
        assert event["object"]["spec"] == {"field": "value"}


@pytest.mark.parametrize("fn", [ignore_it, ignore_all, functools.partial(ignore_it, x=1)])
def test_it_is_not_made_for_those_who_do_not_look(fn: Any) -> None:
    handler = make_watching_handler(fn=fn, when=fn, labels={"x": "y"})
    assert "event" not in make_watching_cause({"spec": {"field": "value"}}).kwargs_for(handler)


def test_indices_take_precedence_over_the_event() -> None:
    cause = make_watching_cause({}, indices={"event": "index"})
    assert get_event(cause, name_it) == "index"
